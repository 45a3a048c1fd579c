"""What a topology file says, whatever its format, and what is wrong with one that says nothing."""

from __future__ import annotations

import msgspec

from coord.model.place import Located, Switch


class Distance(msgspec.Struct, frozen=True):
    """How far a device of a host is from an adapter of it, in NVIDIA's words, nearest first: PIX
    (one PCIe bridge), PXB (several), PHB (a host bridge), NODE (one NUMA node), SYS."""

    device: int
    nic: str
    path: str


class Topology(msgspec.Struct, frozen=True):
    """`hosts` and `switches` are what an import sends, both by name; `notes` tell what of the file
    is not used, and why."""

    format: str
    hosts: tuple[Located, ...]
    switches: tuple[Switch, ...] = ()
    notes: tuple[str, ...] = ()
    links: int = 0
    """As switches tell them: a cable between two of them counts at both of its ends."""
    local: bool = False
    """Of one host, that the file does not name: the only one in `hosts`, called ""."""
    devices: int = 0
    """Of that host."""
    nics: tuple[str, ...] = ()
    distances: tuple[Distance, ...] = ()


class TopologyError(ValueError):
    """The file is refused as a whole. The message names it, the line or field, what is wrong there,
    and what to do."""

    def __init__(self, name: str, where: int | str, what: str, remedy: str) -> None:
        """`where` is a line from 1, a field's path, or 0 and "" for the file as a whole."""
        self.line = where if isinstance(where, int) else 0
        at = f"{name}:{where}" if isinstance(where, int) and where else name
        at += f": {where}" if isinstance(where, str) and where else ""
        super().__init__(f"{at}: {what}; {remedy}")
