"""The tree of domains as rows: what stands in each, how it is and what is free. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from coord.client.views import PlacedHost
from coord.model.entities import DrainState, HostStatus
from coord.model.place import LEVELS, NOWHERE, Place

ROWS_WANTED = 40
"""As many fit on a screen: without `--level`, the tree is shown down to the last level that does
not make more."""

SICK = ("suspect", "lost", "draining", "drained", "quarantined")


class Domain(msgspec.Struct, omit_defaults=True):
    """A row. `path` joins the names from the widest level on; `free` counts devices on hosts that
    take work. `rails` of `rails_expected` are there: those of most hosts with such devices."""

    path: str
    level: str
    name: str
    depth: int
    hosts: int = 0
    up: int = 0
    suspect: int = 0
    lost: int = 0
    draining: int = 0
    drained: int = 0
    quarantined: int = 0
    devices: int = 0
    devices_used: int = 0
    devices_free: int = 0
    rails: int = 0
    rails_expected: int = 0


def health(host: PlacedHost) -> str:
    """One word for a host, the worst that is true of it."""
    if host.status == HostStatus.LOST:
        return "lost"
    if host.quarantine:
        return "quarantined"
    if host.drain != DrainState.NONE:
        return str(host.drain)
    return str(host.status)


def expected_rails(hosts: Iterable[PlacedHost]) -> dict[str, int]:
    """By type of device: how many rails most hosts have, of equally many the larger number."""
    counts: dict[str, Counter[int]] = {}
    for host in hosts:
        counts.setdefault(host.device_type, Counter())[len(host.rails)] += 1
    return {
        kind: max(counted, key=lambda rails: (counted[rails], rails))
        for kind, counted in counts.items()
    }


def chain(place: Place, host: str) -> list[tuple[str, str]]:
    """(level, name) from the widest to the host, of the levels that it has."""
    names = (place.zone, place.pod, place.rack, place.nvlink, host)
    return [(level, name) for level, name in zip(LEVELS, names, strict=True) if name]


def path_of(place: Place) -> str:
    """`z1/p1/r1`, for people: levels that are not known are left out. Empty for nowhere."""
    return "/".join(name for _, name in chain(place, ""))


def domain_rows(hosts: Iterable[PlacedHost], level: str = "") -> tuple[list[Domain], str]:
    """(rows of the tree, each domain before those in it; the level that it goes down to, as asked
    or as fits). A host without a place is in no row."""
    hosts = list(hosts)
    expected = expected_rails(hosts)
    found: dict[tuple[tuple[str, str], ...], Domain] = {}
    for host in hosts:
        if host.place == NOWHERE:
            continue
        steps = chain(host.place, host.host)
        for depth in range(1, len(steps) + 1):
            key = tuple(steps[:depth])
            if key not in found:
                path = "/".join(name for _, name in key)
                found[key] = Domain(path, *key[-1], depth - 1)
            _count(found[key], host, max(expected[host.device_type], len(host.rails)))
    level = level or _fitting(found.values())
    shown = LEVELS[: LEVELS.index(level) + 1]
    keys = sorted(
        (key for key in found if key[-1][0] in shown),
        key=lambda key: [(LEVELS.index(level), name) for level, name in key],
    )
    return [found[key] for key in keys], level


def _count(domain: Domain, host: PlacedHost, rails_expected: int) -> None:
    word = health(host)
    domain.hosts += 1
    if word in ("up", *SICK):
        setattr(domain, word, getattr(domain, word) + 1)
    domain.devices += host.devices
    domain.devices_used += host.devices_used
    if word == "up":
        domain.devices_free += host.devices - host.devices_used
    domain.rails += len(host.rails)
    domain.rails_expected += rails_expected


def _fitting(domains: Iterable[Domain]) -> str:
    counted = Counter(domain.level for domain in domains)
    present = [level for level in LEVELS if counted[level]]
    if not present:
        return LEVELS[-1]
    fitting, rows = present[0], 0
    for level in present:
        rows += counted[level]
        if rows > ROWS_WANTED:
            break
        fitting = level
    return fitting
