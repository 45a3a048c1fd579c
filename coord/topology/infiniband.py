"""What `ibnetdiscover` prints: every switch and adapter of a fabric with its cables.

An adapter's description is `HOST ADAPTER` (`dgx-01 mlx5_0`), which makes a rail of that host. One
that was never given a host name (`MT4129 ConnectX7 Mellanox Technologies`) belongs to nobody that
can be told, and a switch's own aggregation node is no adapter of a host.
"""

from __future__ import annotations

import re

import msgspec

from coord.topology.fabric import Port, laid_out
from coord.topology.names import BadNames, host_name, short, switch_name
from coord.topology.topology import Topology, TopologyError

FORMAT = "ibnetdiscover"

_HEAD = re.compile(r'(Switch|Ca|Rt)\s+(\d{1,4})\s+"([^"]+)"\s*#\s*"(.*?)"(?=\s|$)')
_LINK = re.compile(
    r'\[(\d{1,4})\](?:\[ext \d+\])?(?:\([0-9a-fA-Fx]+\))?\s*"([SHR]-[^"]+)"\[(\d{1,4})\]'
    r'(?:\[ext \d+\])?(?:\([0-9a-fA-Fx]+\))?\s*(?:#.*?"(.*?)".*|#.*)?$'
)
_FIELD = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x[0-9a-fA-F]+")
_AGGREGATION = "Aggregation Node"
_KIND = {"Switch": "S", "Ca": "H", "Rt": "R"}


class _Node(msgspec.Struct):
    """A section. `links`: own port -> (the other's id, its port, line)."""

    node: str
    kind: str
    description: str
    line: int
    links: dict[int, tuple[str, int, int]]


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    nodes, told = _sections(text, name)
    _hang_together(nodes, name)
    switches = _switch_names([node for node in nodes.values() if node.kind == "Switch"], name)
    ports, unnamed, notes = _ports(nodes, told, switches, name)
    cables: dict[tuple[str, str], int] = {}
    links = 0
    for node in nodes.values():
        if node.kind != "Switch":
            continue
        links += len(node.links)
        for port, (other, its_port, _) in node.links.items():
            back = nodes[other].links.get(its_port) if other in nodes else None
            both = back is not None and back[:2] == (node.node, port)
            if other not in switches or other == node.node or (both and other < node.node):
                continue
            one, two = sorted((switches[node.node], switches[other]))
            cables[one, two] = cables.get((one, two), 0) + 1
    hosts, laid, more = laid_out(ports, list(switches.values()), cables, unnamed)
    if not hosts:
        what = "no adapter tells which host it is in"
        raise TopologyError(name, 0, what, "set node descriptions, or name the hosts another way")
    return Topology(FORMAT, hosts, laid, (*notes, *more), links)


def _sections(text: str, name: str) -> tuple[dict[str, _Node], dict[str, str]]:
    """(sections by id, descriptions of those without a section as their neighbours tell them)."""
    nodes: dict[str, _Node] = {}
    told: dict[str, str] = {}
    current: _Node | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if _FIELD.match(line):
            _ended(current, name)
            current = None
            continue
        head = _HEAD.match(line)
        if head is not None:
            _ended(current, name)
            current = _Node(head[3], head[1], head[4].strip(), number, {})
            if not head[3].startswith(f"{_KIND[head[1]]}-"):
                raise TopologyError(name, number, f"{head[1]} `{short(head[3])}`", "correct the id")
            if head[3] in nodes:
                what = f"`{short(head[3])}` a second time (first in line {nodes[head[3]].line})"
                raise TopologyError(name, number, what, "give the output of one run")
            nodes[head[3]] = current
            continue
        _add_link(line, current, told, name, number)
    _ended(current, name)
    if not any(node.kind == "Switch" for node in nodes.values()):
        last = max((node.line for node in nodes.values()), default=0)
        raise TopologyError(name, last, "there is no switch", "give all that ibnetdiscover printed")
    return nodes, told


def _add_link(
    line: str, current: _Node | None, told: dict[str, str], name: str, number: int
) -> None:
    link = _LINK.fullmatch(line)
    if link is None:
        what = f"`{short(line)}` is no line of ibnetdiscover"
        raise TopologyError(name, number, what, "give what it printed, without messages between")
    if current is None:
        what = "a link that belongs to no Switch or Ca"
        raise TopologyError(name, number, what, "give all that ibnetdiscover printed")
    port = int(link[1])
    if port in current.links:
        what = f"port {port} of `{short(current.description)}` a second time"
        raise TopologyError(name, number, what, "give the output of one run")
    current.links[port] = (link[2], int(link[3]), number)
    if current.kind == "Switch" and link[4]:
        told.setdefault(link[2], link[4].strip())


def _ended(node: _Node | None, name: str) -> None:
    if node is not None and not node.links:
        what = f"{node.kind} `{short(node.description)}` has no link below it: the output is cut"
        raise TopologyError(name, node.line, what, "give all that ibnetdiscover printed")


def _hang_together(nodes: dict[str, _Node], name: str) -> None:
    """Every cable that is told from both ends is the same cable, and every switch has a section."""
    for node in nodes.values():
        for port, (other, its_port, line) in node.links.items():
            if other.startswith("S-") and other not in nodes:
                what = f"switch `{short(other)}` is named and has no section"
                raise TopologyError(name, line, what, "give all that ibnetdiscover printed")
            back = nodes[other].links.get(its_port) if other in nodes else None
            if back is not None and back[:2] != (node.node, port):
                what = (
                    f"port {its_port} of `{short(other)}` leads to `{short(back[0])}` in line "
                    f"{back[2]} and to `{short(node.node)}` here"
                )
                raise TopologyError(name, line, what, "give the output of one run")


def _switch_names(switches: list[_Node], name: str) -> dict[str, str]:
    """id -> the name of its system (`MF0;leaf-04:MQM9701/U1` is leaf-04) where that is the only
    one, else all of its description (the parts of a chassis), else its id."""
    systems: dict[str, int] = {}
    whole: dict[str, int] = {}
    for node in switches:
        systems[_system(node)] = systems.get(_system(node), 0) + 1
        whole[_unprefixed(node)] = whole.get(_unprefixed(node), 0) + 1
    found = {}
    for node in switches:
        called = node.node
        if systems[_system(node)] == 1 and _system(node):
            called = _system(node)
        elif whole[_unprefixed(node)] == 1 and _unprefixed(node):
            called = _unprefixed(node)
        try:
            found[node.node] = switch_name(called)
        except BadNames as error:
            raise TopologyError(name, node.line, str(error), "correct the description") from error
    return found


def _unprefixed(node: _Node) -> str:
    before, separator, after = node.description.partition(";")
    return (after if separator and before.startswith("MF") else node.description).strip()


def _system(node: _Node) -> str:
    return _unprefixed(node).partition(":")[0].strip()


def _ports(
    nodes: dict[str, _Node], told: dict[str, str], switches: dict[str, str], name: str
) -> tuple[list[Port], dict[str, int], list[str]]:
    """(ports of hosts, adapters of nobody by switch, notes)."""
    ports: list[Port] = []
    taken: dict[tuple[str, str], None] = {}
    unnamed: dict[str, int] = {}
    nobody = aggregating = 0
    for adapter, found in _ends(nodes).items():
        said = nodes[adapter].description if adapter in nodes else told.get(adapter, "")
        host, _, rail = said.partition(" ")
        if _AGGREGATION in said:
            aggregating += 1
        elif not said or len(said.split()) > 2:
            nobody += 1
            for _, other, _ in found:
                if other in switches:
                    unnamed[switches[other]] = unnamed.get(switches[other], 0) + 1
        else:
            for port, other, line in sorted(found):
                called = (rail.strip() or adapter) + (f":{port}" if len(found) > 1 else "")
                called += f" {adapter}" if (host, called) in taken else ""
                taken[host, called] = None
                ports.append(_port(host, called, switches.get(other, ""), name, line))
    return ports, unnamed, _told_of_adapters(nobody, aggregating, ports)


def _ends(nodes: dict[str, _Node]) -> dict[str, list[tuple[int, str, int]]]:
    """Every adapter's cables: (own port, id at the other end, line). Where an adapter has no
    section, as its switches tell them."""
    ends: dict[str, list[tuple[int, str, int]]] = {}
    for node in nodes.values():
        for port, (other, its_port, line) in node.links.items():
            if node.kind == "Ca":
                ends.setdefault(node.node, []).append((port, other, line))
            elif node.kind == "Switch" and other.startswith("H-") and other not in nodes:
                ends.setdefault(other, []).append((its_port, node.node, line))
    return ends


def _port(host: str, rail: str, switch: str, name: str, line: int) -> Port:
    try:
        return Port(host_name(host), switch_name(rail), switch)
    except BadNames as error:
        raise TopologyError(name, line, str(error), "correct the description") from error


def _told_of_adapters(nobody: int, aggregating: int, ports: list[Port]) -> list[str]:
    notes = []
    if nobody:
        notes.append(
            f"{nobody} adapters do not tell their host: hosts with fewer rails may have them"
        )
    if aggregating:
        notes.append(f"{aggregating} aggregation nodes of switches are no hosts")
    common = [host for host in ("localhost", "ubuntu") if any(port.host == host for port in ports)]
    if common:
        notes.append(f"{' and '.join(common)}: a name that several hosts may have had")
    return notes
