"""What NVIDIA NetQ answers in JSON: the graph of a fabric's switches and hosts with every cable, or
the compute nodes of an NVLink domain."""

from __future__ import annotations

import msgspec

from coord.model.place import Located, Place
from coord.topology.documents import Value, documents
from coord.topology.fabric import Port, laid_out
from coord.topology.names import BadNames, host_name, switch_name
from coord.topology.topology import Topology

FORMAT = "netq"


class _Device(msgspec.Struct):
    name: str
    switch: bool


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    (document, *more) = documents(text, name)
    if more:
        raise more[0].error("a second document", "keep one")
    parts = document.entries() if document.is_list() else [document]
    if not parts:
        raise document.error("the list is empty", "give NetQ's answer")
    keys = parts[0].fields()
    if "links" in keys or "nodes" in keys:
        return _graph(parts)
    if "DomainUUID" in keys:
        return _domains(parts)
    what = "it has neither links and nodes nor DomainUUID"
    raise parts[0].error(what, "give NetQ's topology graph or its compute nodes")


def _field(value: Value, key: str) -> Value:
    fields = value.fields()
    if key not in fields:
        raise value.error(f"has no `{key}`", "give NetQ's answer as it came")
    return fields[key]


def _called(value: Value, switch: bool) -> str:
    try:
        return switch_name(value.text()) if switch else host_name(value.text())
    except BadNames as error:
        raise value.error(str(error), "correct the name") from error


def _domains(parts: list[Value]) -> Topology:
    hosts: dict[str, Located] = {}
    sick = 0
    for part in parts:
        host = _called(_field(part, "Name"), switch=False)
        if host in hosts:
            raise part.error(f"node `{host}` is named twice", "keep it in one domain")
        domain = _called(_field(part, "DomainUUID"), switch=False)
        hosts[host] = Located(host, Place(nvlink=domain))
        health = part.fields().get("Health")
        sick += health is not None and health.text() != "HEALTHY"
    notes = ["chassis, slot and GPU ids are not used"]
    if sick:
        notes.append(f"{sick} nodes are not HEALTHY to NetQ, which is not used")
    return Topology(FORMAT, tuple(hosts[host] for host in sorted(hosts)), (), tuple(notes))


def _graph(parts: list[Value]) -> Topology:
    devices: dict[str, _Device] = {}
    names: dict[str, None] = {}
    for part in parts:
        for tier in _field(part, "nodes").entries():
            for node in _field(tier, "compounded_nodes").entries():
                key = _field(node, "id").text()
                switch = _field(node, "device_type").text() == "switch"
                called = _called(_field(node, "name"), switch)
                if key in devices or called in names:
                    raise node.error(f"`{called}` is named twice", "name each device once")
                devices[key] = _Device(called, switch)
                names[called] = None
    reader = _Links(devices)
    for part in parts:
        for link in _field(part, "links").entries():
            reader.add(link)
    switches = [device.name for device in devices.values() if device.switch]
    hosts, laid, more = laid_out(reader.ports, switches, reader.cables, {})
    lonely = [
        Located(device.name)
        for device in devices.values()
        if not device.switch and not any(port.host == device.name for port in reader.ports)
    ]
    notes = list(more)
    if lonely:
        notes.append(f"{len(lonely)} hosts hang on no switch")
    if reader.short:
        notes.append(f"{reader.short} links list fewer cables than their size: as listed")
    if not hosts:
        raise parts[0].error("no host hangs on a switch", "give NetQ's topology graph")
    return Topology(FORMAT, hosts, laid, tuple(notes), reader.count)


class _Links(msgspec.Struct):
    """`cables` between switches by their names in order; `count` as switches tell them."""

    devices: dict[str, _Device]
    ports: list[Port] = []
    cables: dict[tuple[str, str], int] = {}
    count: int = 0
    short: int = 0
    seen: dict[tuple[str, str], None] = {}

    def add(self, link: Value) -> None:
        cables = _field(link, "compounded_links").entries()
        size = link.fields().get("size")
        self.short += size is not None and size.text() != str(len(cables))
        for cable in cables:
            ends = _field(cable, "interfaces").entries()
            if len(ends) != 2:
                raise cable.error(f"a cable with {len(ends)} ends", "give NetQ's answer as it came")
            self._cable(cable, ends[0], ends[1])

    def _cable(self, cable: Value, one: Value, other: Value) -> None:
        ends = []
        for end in (one, other):
            node = _field(end, "node")
            device = self.devices.get(node.text())
            if device is None:
                raise node.error(f"`{node.text()}` is not among the nodes", "add or correct it")
            interface = _called(_field(end, "interface"), switch=True)
            if (device.name, interface) in self.seen:
                what = f"`{interface}` of `{device.name}` has two cables"
                raise cable.error(what, "keep one")
            self.seen[device.name, interface] = None
            ends.append((device, interface))
        (first, port), (second, far) = ends
        self.count += first.switch + second.switch
        if first.switch and second.switch:
            if first.name != second.name:
                pair = (min(first.name, second.name), max(first.name, second.name))
                self.cables[pair] = self.cables.get(pair, 0) + 1
        elif first.switch:
            self.ports.append(Port(second.name, far, first.name))
        elif second.switch:
            self.ports.append(Port(first.name, port, second.name))
