"""The devices and adapters of one host: islands that NVLink makes, and how far adapters are."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from coord.model.place import Island
from coord.topology.topology import Distance


class Device(msgspec.Struct, frozen=True):
    """`path` names what encloses it, the processor first."""

    key: str
    path: tuple[str, ...]


class Adapter(msgspec.Struct, frozen=True):
    """A port of the host on the network, with what encloses it."""

    name: str
    path: tuple[str, ...]


def described(
    devices: list[Device], adapters: list[Adapter], links: Mapping[str, list[str]]
) -> tuple[tuple[Island, ...], tuple[Distance, ...], tuple[str, ...]]:
    """(islands, distances, notes) of a host. `links` names what a device is linked to: another
    device's key, or anything else that several may be linked to, such as a switch."""
    keys = [device.key for device in devices]
    islands = islands_of([(at, links.get(key, [])) for at, key in enumerate(keys)], keys)
    distances = tuple(
        Distance(at, adapter.name, _path(device.path, adapter.path))
        for at, device in enumerate(devices)
        for adapter in adapters
    )
    return islands, distances, notes_of(len(devices), islands, distances)


def islands_of(links: list[tuple[int, list[str]]], keys: list[str]) -> tuple[Island, ...]:
    """Devices that hang together over links, two and more each, ascending."""
    group = list(range(len(keys)))
    meeting: dict[str, int] = {key: at for at, key in enumerate(keys)}
    for at, targets in links:
        for target in targets:
            other = meeting.setdefault(target, at)
            one, two = group[at], group[other]
            if one != two:
                group = [min(one, two) if was in (one, two) else was for was in group]
    found: dict[int, list[int]] = {}
    for at, first in enumerate(group):
        found.setdefault(first, []).append(at)
    return tuple(Island(tuple(members)) for members in found.values() if len(members) > 1)


def notes_of(
    devices: int, islands: tuple[Island, ...], distances: tuple[Distance, ...]
) -> tuple[str, ...]:
    notes = []
    if devices and not islands:
        notes.append("it tells of no link between devices")
    if distances:
        notes.append("how far devices are from adapters is shown, and not used by placement")
    return tuple(notes)


def _path(one: tuple[str, ...], other: tuple[str, ...]) -> str:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    if shared == 0:
        return "SYS"
    if shared == 1:
        return "PHB"
    bridges = len(one) + len(other) - 2 * shared + 1
    return "PIX" if bridges == 1 else "PXB"
