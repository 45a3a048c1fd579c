"""Slurm's `topology.conf`: a tree of switches, or blocks of nodes (topology/tree, topology/block).

A block is the domain within which accelerators of several nodes reach each other directly, so it
becomes an NVLink domain. BlockSizes are sizes for planning and no places.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from coord.model.place import Located, Place, Switch, Uplink
from coord.topology.graph import cycle, place_in_tree
from coord.topology.names import BadNames, expanded, short
from coord.topology.topology import Topology, TopologyError

FORMAT = "slurm"

_PAIR = re.compile(r'\s*([A-Za-z_][\w.]*)\s*=\s*(?:"([^"]*)"|([^\s"]+))(?=\s|$)')
_KEYS = {
    "switchname": ("switches", "nodes", "linkspeed"),
    "blockname": ("nodes",),
    "blocksizes": (),
}


class _Line(msgspec.Struct):
    """What a line defines: `kind` is one of `_KEYS`, `name` its value, `line` counts from 1."""

    kind: str
    name: str
    rest: dict[str, str]
    line: int


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    lines = _lines(text, name)
    kinds = dict.fromkeys(line.kind for line in lines)
    if "switchname" in kinds and len(kinds) > 1:
        other = next(line for line in lines if line.kind != lines[0].kind)
        raise TopologyError(
            name,
            other.line,
            "switches and blocks in one file",
            "keep either the tree or the blocks",
        )
    if "switchname" in kinds:
        return _tree(lines, name)
    if "blockname" in kinds:
        return _blocks(lines, name)
    raise TopologyError(
        name, 0, "no line begins with SwitchName= or BlockName=", "give Slurm's topology.conf"
    )


def _lines(text: str, name: str) -> list[_Line]:
    found = []
    carried, begun = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.partition("#")[0].rstrip()
        begun = begun or number
        if line.endswith("\\"):
            carried += line[:-1] + " "
            continue
        line, at = carried + line, begun
        carried, begun = "", 0
        if line.strip():
            found.append(_line(line, name, at))
    if carried.strip():
        raise TopologyError(name, begun, "the last line goes on and the file ends", "complete it")
    return found


def _line(line: str, name: str, number: int) -> _Line:
    pairs: list[tuple[str, str]] = []
    at = 0
    while line[at:].strip():
        match = _PAIR.match(line, at)
        if match is None:
            what = f"`{short(line[at:].strip())}` is no Key=Value"
            raise TopologyError(name, number, what, "write for example SwitchName=s1 Nodes=n[1-4]")
        pairs.append((match[1].lower(), match[2] if match[2] is not None else match[3]))
        at = match.end()
    kind, value = pairs[0]
    if kind not in _KEYS:
        what = f"begins with `{short(kind)}`, not SwitchName, BlockName or BlockSizes"
        raise TopologyError(name, number, what, "correct or remove the line")
    rest: dict[str, str] = {}
    for key, given in pairs[1:]:
        if key not in _KEYS[kind]:
            allowed = ", ".join(_KEYS[kind]) or "nothing"
            what = f"unknown key `{short(key)}` (there is {allowed})"
            raise TopologyError(name, number, what, "correct or remove it")
        if key in rest:
            raise TopologyError(name, number, f"`{key}` stands there twice", "keep one")
        rest[key] = given
    return _Line(kind, value, rest, number)


def _names(text: str, name: str, line: int) -> list[str]:
    try:
        return expanded(text)
    except BadNames as error:
        raise TopologyError(name, line, str(error), "correct the list") from error


def _define(line: _Line, defined: dict[str, int], name: str) -> str:
    (one, *more) = _names(line.name, name, line.line)
    if more:
        raise TopologyError(
            name, line.line, f"`{short(line.name)}` is a list", "name one in a line"
        )
    if one in defined:
        what = f"`{one}` is defined a second time (first in line {defined[one]})"
        raise TopologyError(name, line.line, what, "name each once")
    defined[one] = line.line
    return one


def _tree(lines: list[_Line], name: str) -> Topology:
    defined: dict[str, int] = {}
    above: dict[str, str] = {}
    told_in: dict[str, int] = {}
    leaf_of: dict[str, str] = {}
    for line in lines:
        switch = _define(line, defined, name)
        if "switches" not in line.rest and "nodes" not in line.rest:
            what = f"switch `{switch}` has neither Switches= nor Nodes="
            raise TopologyError(name, line.line, what, "say what hangs on it")
        for under in (
            _names(line.rest["switches"], name, line.line) if "switches" in line.rest else ()
        ):
            if under in above:
                what = f"switch `{under}` has two parents, `{above[under]}` and `{switch}`"
                raise TopologyError(name, line.line, what, "keep one: topology.conf is a tree")
            above[under] = switch
            told_in[under] = line.line
        for host in _names(line.rest["nodes"], name, line.line) if "nodes" in line.rest else ():
            _once(host, leaf_of, switch, name, line.line)
    for under, number in told_in.items():
        if under not in defined:
            what = f"switch `{under}` is defined in no line"
            raise TopologyError(name, number, what, f"add SwitchName={under} or take it away")
    ring = cycle(above)
    if ring:
        what = f"a cycle: {' below '.join([*ring, ring[0]])}"
        raise TopologyError(name, told_in[ring[0]], what, "take one link away")
    places = {leaf: place_in_tree(leaf, above) for leaf in dict.fromkeys(leaf_of.values())}
    hosts = tuple(
        Located(host, places[leaf_of[host]], switch=leaf_of[host]) for host in sorted(leaf_of)
    )
    switches = tuple(
        Switch(one, (Uplink(above[one]),) if one in above else ()) for one in sorted(defined)
    )
    return Topology(FORMAT, hosts, switches, _notes_of_tree(lines, above, defined))


def _once(host: str, seen: dict[str, str], here: str, name: str, line: int) -> None:
    if host in seen:
        where = f"`{seen[host]}` and `{here}`" if seen[host] != here else f"`{here}` twice"
        raise TopologyError(name, line, f"node `{host}` is named in {where}", "keep it in one")
    seen[host] = here


def _notes_of_tree(
    lines: list[_Line], above: dict[str, str], defined: dict[str, int]
) -> tuple[str, ...]:
    notes = []
    deep: dict[str, int] = {}
    for switch in defined:
        depth, at = 1, switch
        while at in above:
            depth, at = depth + 1, above[at]
        deep[switch] = depth
    deepest = max(deep.values())
    if deepest > 3:
        notes.append(
            f"switches stand in {deepest} tiers: the three next to the hosts are rack, pod and "
            "zone; those above are kept as switches alone"
        )
    if any("linkspeed" in line.rest for line in lines):
        notes.append("LinkSpeed is not used")
    return tuple(notes)


def _blocks(lines: list[_Line], name: str) -> Topology:
    defined: dict[str, int] = {}
    block_of: dict[str, str] = {}
    sizes: list[int] = []
    sized = 0
    for line in lines:
        if line.kind == "blocksizes":
            if sized:
                what = f"BlockSizes a second time (first in line {sized})"
                raise TopologyError(name, line.line, what, "keep one line")
            sizes, sized = _sizes(line, name), line.line
            continue
        block = _define(line, defined, name)
        if "nodes" not in line.rest:
            what = f"block `{block}` has no Nodes="
            raise TopologyError(name, line.line, what, "say which nodes are in it")
        for host in _names(line.rest["nodes"], name, line.line):
            _once(host, block_of, block, name, line.line)
    hosts = tuple(Located(host, Place(nvlink=block_of[host])) for host in sorted(block_of))
    notes = []
    if sizes:
        counts: dict[str, int] = {}
        for block in block_of.values():
            counts[block] = counts.get(block, 0) + 1
        small = [block for block in defined if counts[block] < sizes[0]]
        if small:
            notes.append(
                f"{len(small)} blocks have fewer than {sizes[0]} nodes, the smallest of "
                f"BlockSizes: {', '.join(small[:5])}{' ...' if len(small) > 5 else ''}"
            )
        notes.append("BlockSizes are sizes to plan with and no places: they are not used")
    return Topology(FORMAT, hosts, (), tuple(notes))


def _sizes(line: _Line, name: str) -> list[int]:
    sizes = []
    for piece in line.name.split(","):
        if not (piece.isascii() and piece.isdigit()) or len(piece) > 9 or int(piece) == 0:
            what = f"`{short(piece)}` is no size of a block"
            raise TopologyError(name, line.line, what, "give numbers from 1 on, ascending")
        sizes.append(int(piece))
    if any(one >= other for one, other in pairwise(sizes)):
        raise TopologyError(name, line.line, "BlockSizes do not ascend", "sort them")
    return sizes
