"""NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`), RCCL's too: the devices and
adapters of one host, as a tree of processors and PCI bridges. It does not name the host."""

from __future__ import annotations

from xml.parsers import expat

import msgspec

from coord.model.place import Located, Rail
from coord.topology.local import Adapter, Device, described
from coord.topology.names import BadNames, short, switch_name
from coord.topology.topology import Topology, TopologyError

FORMAT = "nccl"

DEPTH_LIMIT = 64
_GPU_CLASSES = ("0x0302", "0x0300", "0x1200", "0x0380")
_NIC_CLASSES = ("0x0200", "0x0207", "0x0280")
_LINKS = ("nvlink", "xgmi", "c2c")


class _Element(msgspec.Struct):
    tag: str
    given: dict[str, str]
    line: int
    children: list[_Element] = []


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    root = _read(text, name)
    if root.tag == "graphs":
        raise TopologyError(
            name,
            root.line,
            "this is NCCL's graph of channels, not its topology",
            "dump the other one with NCCL_TOPO_DUMP_FILE",
        )
    if root.tag != "system":
        what = f"the outermost element is <{short(root.tag)}>, not <system>"
        raise TopologyError(name, root.line, what, "give the file of NCCL_TOPO_DUMP_FILE")
    reader = _Reader(name)
    for child in root.children:
        reader.below(child, ())
    return reader.topology()


def _read(text: str, name: str) -> _Element:
    parser = expat.ParserCreate()
    stack: list[_Element] = []
    roots: list[_Element] = []

    def begin(tag: str, given: dict[str, str]) -> None:
        if len(stack) >= DEPTH_LIMIT:
            what = f"elements are nested more than {DEPTH_LIMIT} deep"
            raise TopologyError(name, parser.CurrentLineNumber, what, "give NCCL's own file")
        element = _Element(tag, given, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def doctype(*_: object) -> None:
        what = "it declares a document type"
        raise TopologyError(name, parser.CurrentLineNumber, what, "remove the declaration")

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        what = f"no XML: {expat.errors.messages[error.code]}"
        raise TopologyError(name, error.lineno, what, "give the whole file") from error
    return roots[0]


class _Reader:
    """Walks the tree; `path` holds (tag, its own key) of what encloses an element."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices: list[Device] = []
        self.adapters: list[Adapter] = []
        self.lines: dict[str, int] = {}
        self.unknown = 0
        self.own: dict[str, str] = {}
        """Bus ids of devices, in the order of the file, with what they are linked to."""
        self.links: dict[str, list[str]] = {}
        self.numbers: dict[str, int] = {}

    def below(self, element: _Element, path: tuple[str, ...]) -> None:
        if element.tag == "cpu":
            numa = self._given(element, "numaid")
            if len(path):
                what = "<cpu> inside of another element"
                raise TopologyError(self.name, element.line, what, "give NCCL's own file")
            path = (f"cpu {numa}",)
        elif element.tag == "pci":
            path = self._pci(element, path)
        elif element.tag == "net":
            self._net(element, path)
        elif element.tag == "gpu":
            self._gpu(element, path)
        for child in element.children:
            self.below(child, path)

    def _given(self, element: _Element, key: str) -> str:
        if not element.given.get(key):
            what = f"<{element.tag}> has no {key}"
            raise TopologyError(self.name, element.line, what, "give NCCL's own file")
        return element.given[key]

    def _pci(self, element: _Element, path: tuple[str, ...]) -> tuple[str, ...]:
        bus = self._given(element, "busid").lower()
        if bus in self.lines:
            what = f"`{short(bus)}` a second time (first in line {self.lines[bus]})"
            raise TopologyError(self.name, element.line, what, "name each device once")
        self.lines[bus] = element.line
        kind = element.given.get("class", "")[:6].lower()
        inside = [child.tag for child in element.children]
        if "gpu" in inside or kind in _GPU_CLASSES:
            self.devices.append(Device(bus, path))
            self.links[bus] = []
        elif kind in _NIC_CLASSES and "nic" not in inside:
            self.adapters.append(Adapter(bus, path))
        elif not element.children and not kind:
            self.unknown += 1
        return (*path, bus)

    def _net(self, element: _Element, path: tuple[str, ...]) -> None:
        called = self._given(element, "name")
        try:
            switch_name(called)
        except BadNames as error:
            raise TopologyError(self.name, element.line, str(error), "correct it") from error
        if any(adapter.name == called for adapter in self.adapters):
            what = f"adapter `{short(called)}` a second time"
            raise TopologyError(self.name, element.line, what, "name each once")
        self.adapters.append(Adapter(called, path[:-1] if len(path) > 1 else path))

    def _gpu(self, element: _Element, path: tuple[str, ...]) -> None:
        number = self._given(element, "dev")
        if not (number.isascii() and number.isdigit()) or len(number) > 4:
            what = f'dev="{short(number)}" is no number of a device'
            raise TopologyError(self.name, element.line, what, "give NCCL's own file")
        if len(path) < 2:
            what = "<gpu> outside of <pci>"
            raise TopologyError(self.name, element.line, what, "give NCCL's own file")
        bus = path[-1]
        if int(number) in self.numbers.values() or bus in self.numbers:
            what = f"device {int(number)} or its <pci> a second time"
            raise TopologyError(self.name, element.line, what, "name each device once")
        self.numbers[bus] = int(number)
        for child in element.children:
            if child.tag in _LINKS:
                self.links.setdefault(bus, []).append(self._target(child))

    def _target(self, link: _Element) -> str:
        target = link.given.get("target", "").lower()
        bridge = link.given.get("tclass", "")[:6].lower() not in ("", *_GPU_CLASSES)
        # Devices on NVSwitches reach all others there, whichever of them a link goes to.
        return "nvswitch" if bridge else target

    def topology(self) -> Topology:
        # Without numbers as the driver counts them: along the bus.
        devices = sorted(
            self.devices, key=lambda device: (self.numbers.get(device.key, 1 << 20), device.key)
        )
        numbers = [self.numbers.get(device.key, -1) for device in devices]
        if self.numbers and numbers != list(range(len(devices))):
            what = f"devices are numbered {numbers[:16]}"
            raise TopologyError(self.name, 0, what, "number them from 0 on, without gaps")
        links = {device.key: self.links.get(device.key, []) for device in devices}
        notes = []
        stray = [key for key, targets in links.items() for one in targets if one == key]
        if stray:
            notes.append(f"{len(stray)} links from a device to itself are not used")
        if self.unknown:
            notes.append(f"{self.unknown} PCI devices do not tell what they are: not used")
        islands, distances, more = described(devices, self.adapters, links)
        rails = tuple(Rail(adapter.name) for adapter in self.adapters)
        return Topology(
            FORMAT,
            (Located("", rails=rails, islands=islands),),
            (),
            (*notes, *more),
            local=True,
            devices=len(devices),
            nics=tuple(adapter.name for adapter in self.adapters),
            distances=distances,
        )
