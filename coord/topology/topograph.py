"""The models of NVIDIA topograph: `switches` that name those below them, `blocks` of nodes.

A block's annotation or label that ends in `domain` names the domain of its accelerators; where
there is a `sub-domain` beside it, that one is taken, because a domain of NVLink lies within a rack.
"""

from __future__ import annotations

import msgspec

from coord.model.place import Located, Place, Switch, Uplink
from coord.topology.documents import Value, documents
from coord.topology.graph import cycle, place_in_tree
from coord.topology.names import BadNames, expanded, host_name, switch_name
from coord.topology.topology import Topology

FORMAT = "topograph"

_ZONE = "topology.kubernetes.io/zone"
_FIELDS = ("switches", "blocks", "nodes", "vpc", "metadata", "name", "version")


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    (document, *more) = documents(text, name)
    if more:
        raise more[0].error("a second document", "keep one")
    fields = document.fields()
    for key, value in fields.items():
        if key not in _FIELDS:
            raise value.error(f"unknown field `{key}`", f"there is {', '.join(_FIELDS[:2])}")
    if "blocks" not in fields:
        raise document.error("it has no blocks", "say which nodes hang on which switch")
    tree = _Tree(name)
    if "switches" in fields and not fields["switches"].is_nothing():
        for switch, value in fields["switches"].fields().items():
            tree.define(switch, value)
    tree.check()
    for block in fields["blocks"].entries():
        tree.add_block(block)
    if not tree.hosts:
        raise fields["blocks"].error("no block has a node", "say which nodes hang on which switch")
    return tree.topology()


class _Tree(msgspec.Struct):
    """What was read so far. `above`: a switch's parent; `told`: where that is said."""

    name: str
    above: dict[str, str] = {}
    told: dict[str, Value] = {}
    defined: dict[str, None] = {}
    zones: dict[str, str] = {}
    hosts: dict[str, Located] = {}
    spread: dict[str, dict[str, None]] = {}
    """The racks of each accelerator domain."""
    by_sub_domain: bool = False
    regions: bool = False

    def define(self, switch: str, value: Value) -> None:
        _named(switch, value)
        self.defined[switch] = None
        fields = {} if value.is_nothing() else value.fields()
        for under in fields["switches"].entries() if "switches" in fields else ():
            child = _named(under.text(), under)
            if child in self.above:
                what = f"switch `{child}` has two parents, `{self.above[child]}` and `{switch}`"
                raise under.error(what, "keep one")
            self.above[child] = switch
            self.told[child] = under
            self.defined.setdefault(child, None)
        labels = fields["labels"].fields() if "labels" in fields else {}
        for label, given in labels.items():
            if label == _ZONE:
                self.zones[switch] = _place_name(given.text(), given)
            else:
                self.regions = True

    def check(self) -> None:
        ring = cycle(self.above)
        if ring:
            what = f"a cycle: {' below '.join([*ring, ring[0]])}"
            raise self.told[ring[0]].error(what, "take one link away")

    def add_block(self, block: Value) -> None:
        fields = block.fields()
        if "nodes" not in fields:
            raise block.error("the block has no nodes", "say which nodes hang on its switch")
        switch = ""
        if "switch" in fields:
            switch = _named(fields["switch"].text(), fields["switch"])
            if switch not in self.defined:
                what = f"switch `{switch}` is not among the switches"
                raise fields["switch"].error(what, "name it below its parent, or correct it")
        place = self._place(switch, fields)
        for entry in fields["nodes"].entries():
            try:
                hosts = expanded(entry.text())
            except BadNames as error:
                raise entry.error(str(error), "correct the list") from error
            for host in hosts:
                if host in self.hosts:
                    raise entry.error(f"node `{host}` is named twice", "keep it in one block")
                self.hosts[host] = Located(host, place, switch=switch)

    def _place(self, switch: str, fields: dict[str, Value]) -> Place:
        place = place_in_tree(switch, self.above) if switch else Place()
        at = switch
        while at:
            if at in self.zones:
                place = msgspec.structs.replace(place, zone=self.zones[at])
                break
            at = self.above.get(at, "")
        nvlink = ""
        for kind in ("annotations", "labels"):
            for key, value in (fields[kind].fields() if kind in fields else {}).items():
                if key.endswith("/sub-domain"):
                    nvlink = _place_name(value.text(), value)
                    self.by_sub_domain = True
                elif key.endswith("/domain"):
                    outer = _place_name(value.text(), value)
                    self.spread.setdefault(outer, {})[place.rack] = None
                    nvlink = nvlink or outer
        return msgspec.structs.replace(place, nvlink=nvlink)

    def topology(self) -> Topology:
        notes = []
        wide = [domain for domain, racks in self.spread.items() if len(racks) > 1]
        if wide:
            how = "by its sub-domains" if self.by_sub_domain else "by rack"
            notes.append(
                f"accelerator domains wider than a rack are taken {how}: "
                f"{', '.join(wide[:5])}{' ...' if len(wide) > 5 else ''}"
            )
        if self.regions:
            notes.append("labels of switches other than the zone are not used")
        hosts = tuple(self.hosts[host] for host in sorted(self.hosts))
        switches = tuple(
            Switch(one, (Uplink(self.above[one]),) if one in self.above else ())
            for one in sorted(self.defined)
        )
        return Topology(FORMAT, hosts, switches, tuple(notes))


def _named(text: str, value: Value) -> str:
    try:
        return switch_name(text)
    except BadNames as error:
        raise value.error(str(error), "correct it") from error


def _place_name(text: str, value: Value) -> str:
    try:
        return host_name(text)
    except BadNames as error:
        raise value.error(str(error), "correct it") from error
