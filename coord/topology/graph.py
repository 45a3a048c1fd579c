"""Switches that hang together, and the domains that follow from it.

In a tree, a host's rack is its leaf switch, its pod the switch above, its zone the one above that;
what is above still is kept among the switches alone. In a fabric with several rails a host hangs on
several leaves: hosts and leaves that hang together make the innermost domain, called after its
first leaf, those that hang together over the next tier of switches the next one, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from coord.model.place import Place
from coord.topology.names import domain_name


def cycle(above: Mapping[str, str]) -> list[str]:
    """Switches that are each below the next, the last below the first; [] for a tree."""
    known: dict[str, None] = {}
    for start in above:
        path: dict[str, None] = {}
        at = start
        while at in above and at not in known:
            if at in path:
                names = list(path)
                return names[names.index(at) :]
            path[at] = None
            at = above[at]
        known.update(path)
    return []


def place_in_tree(leaf: str, above: Mapping[str, str]) -> Place:
    """Of a host below this leaf switch. The tree has no cycles."""
    chain = [domain_name(leaf)]
    while leaf in above and len(chain) < 3:
        leaf = above[leaf]
        chain.append(domain_name(leaf))
    rack, pod, zone = (*chain, "", "")[:3]
    return Place(zone, pod, rack)


def tiers(
    attached: Mapping[str, int], neighbours: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """How many switches stand between a switch and the nearest host: 0 for a leaf. One that no
    host reaches is missing.

    `attached` counts a switch's adapters, `neighbours` its cables to other switches. One with a few
    adapters among switches with many is not a leaf: a fabric's manager often hangs on a spine.
    """
    found: dict[str, int] = {}
    for switch in sorted(attached):
        busier = [
            other
            for other in neighbours.get(switch, {})
            if attached.get(other, 0) >= BUSIER * attached[switch]
        ]
        if len(busier) < 2:
            found[switch] = 0
    ready = deque(found)
    while ready:
        switch = ready.popleft()
        for other in sorted(neighbours.get(switch, {})):
            if other not in found:
                found[other] = found[switch] + 1
                ready.append(other)
    return found


BUSIER = 4
"""So many times the adapters of a switch make another one its leaf."""


def places_in_fabric(
    hosts: Mapping[str, tuple[str, ...]],
    neighbours: Mapping[str, Mapping[str, int]],
    tier: Mapping[str, int],
) -> dict[str, Place]:
    """Of every host that hangs on a switch: its rack is its leaf, unless hosts hang on several
    leaves each: then what hangs together so is a pod. Wider domains follow from the tiers above."""
    joined = _Joined()
    domains: dict[str, list[str]] = {host: [] for host, leaves in hosts.items() if leaves}
    single = True
    for level in range(max(tier.values(), default=-1) + 1):
        for host, leaves in hosts.items():
            for leaf in leaves:
                if tier.get(leaf) == level:
                    joined.join(("host", host), ("switch", leaf))
        members = sorted(switch for switch, at in tier.items() if at == level)
        for switch in members if level else ():
            for other in neighbours.get(switch, {}):
                if tier.get(other, level + 1) <= level:
                    joined.join(("switch", switch), ("switch", other))
        first: dict[tuple[str, str], str] = {}
        for switch in members:
            root = joined.root(("switch", switch))
            single = single and (level > 0 or root not in first)
            first.setdefault(root, switch)
        for host, chain in domains.items():
            chain.append(domain_name(first.get(joined.root(("host", host)), "")))
    return {host: _as_place(chain, single) for host, chain in domains.items()}


def _as_place(chain: list[str], single_leaves: bool) -> Place:
    names = chain if single_leaves else ["", *chain]
    rack, pod, zone = (*names, "", "", "")[:3]
    return Place(zone, pod, rack)


class _Joined:
    """Which things hang together (union-find)."""

    def __init__(self) -> None:
        self._above: dict[tuple[str, str], tuple[str, str]] = {}

    def root(self, one: tuple[str, str]) -> tuple[str, str]:
        while one in self._above:
            parent = self._above[one]
            if parent in self._above:
                self._above[one] = self._above[parent]
            one = parent
        return one

    def join(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._above[max(one, other)] = min(one, other)
