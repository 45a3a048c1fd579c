"""From switches, adapters and cables to what an import sends: the same for InfiniBand and NetQ."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from coord.model.place import Located, Rail, Switch, Uplink
from coord.topology.graph import places_in_fabric, tiers


class Port(msgspec.Struct, frozen=True):
    """An adapter's port on a host, and the switch at the other end of its cable ("": another host,
    or one that is not known)."""

    host: str
    rail: str
    switch: str


def laid_out(
    ports: list[Port],
    switches: list[str],
    cables: Mapping[tuple[str, str], int],
    unnamed: Mapping[str, int],
) -> tuple[tuple[Located, ...], tuple[Switch, ...], tuple[str, ...]]:
    """(hosts, switches, notes). `cables` counts those between two switches, named in order.
    `unnamed` counts adapters on a switch whose host is not known: they make it a leaf as well."""
    rails: dict[str, list[Rail]] = {}
    for port in ports:
        rails.setdefault(port.host, []).append(Rail(port.rail, port.switch))
    leaves = {
        host: tuple(dict.fromkeys(rail.switch for rail in rails[host] if rail.switch))
        for host in sorted(rails)
    }
    neighbours: dict[str, dict[str, int]] = {switch: {} for switch in switches}
    for (one, other), count in cables.items():
        neighbours[one][other] = count
        neighbours[other][one] = count
    attached = dict(unnamed)
    for port in ports:
        if port.switch:
            attached[port.switch] = attached.get(port.switch, 0) + 1
    tier = tiers(attached, neighbours)
    places = places_in_fabric(leaves, neighbours, tier)
    hosts = tuple(
        Located(
            host,
            places[host] if host in places else Located(host).place,
            tuple(sorted(rails[host], key=lambda rail: _natural(rail.rail))),
        )
        for host in sorted(rails)
    )
    return hosts, _upwards(neighbours, tier), _notes(neighbours, tier)


def _upwards(
    neighbours: Mapping[str, Mapping[str, int]], tier: Mapping[str, int]
) -> tuple[Switch, ...]:
    found = []
    for switch in sorted(neighbours):
        uplinks = tuple(
            Uplink(other, neighbours[switch][other])
            for other in sorted(neighbours[switch])
            if switch in tier and tier.get(other, -1) > tier[switch]
        )
        found.append(Switch(switch, uplinks))
    return tuple(found)


def _notes(neighbours: Mapping[str, Mapping[str, int]], tier: Mapping[str, int]) -> tuple[str, ...]:
    notes = []
    level = sum(
        count
        for switch, others in neighbours.items()
        for other, count in others.items()
        if switch < other and tier.get(switch) == tier.get(other)
    )
    if level:
        notes.append(f"{level} cables between switches of one tier are no uplinks: not used")
    lonely = [switch for switch in sorted(neighbours) if switch not in tier]
    if lonely:
        notes.append(f"{len(lonely)} switches reach no host: {', '.join(lonely[:5])}")
    return tuple(notes)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """So that mlx5_10 comes after mlx5_9."""
    parts: list[tuple[int, str]] = []
    for character in name:
        if character.isascii() and character.isdigit() and parts and parts[-1][1] == "":
            parts[-1] = (parts[-1][0] * 10 + int(character), "")
        elif character.isascii() and character.isdigit():
            parts.append((int(character), ""))
        else:
            parts.append((-1, character))
    return tuple(parts)
