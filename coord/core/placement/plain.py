"""Placement under the first rules (`logic_version` 1), for logs that were written by them.

Hosts where the gang ran before come first, each index back to its own where possible; then its
spares; then the best fit: the host on which least is left over. Ties go to the lesser host id.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from coord.core.placement.plan import Place, Plan
from coord.core.placement.rooms import Rooms
from coord.model.entities import Gang, Hold
from coord.model.spec import Resources, RoleSpec


def place_plainly(rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Plan | None:
    """As `place`, with what the gang holds given back already."""
    need = role.resources
    if rooms.replicas(need) < smallest:
        return None
    places = _place_tasks(rooms, gang, role)
    return Plan(tuple(places), _keep_spares(rooms, gang, places, role))


def _fits(rooms: Rooms, name: str, need: Resources) -> bool:
    return name in rooms and rooms[name].fits(need)


def _take(rooms: Rooms, name: str, gang: Gang, role: RoleSpec) -> tuple[int, ...]:
    hold = rooms[name].hold(role.resources, spare=False)
    rooms.put(rooms[name].take(hold, gang.key, role.placement))
    return hold.devices


def _place_tasks(rooms: Rooms, gang: Gang, role: RoleSpec) -> list[Place]:
    """By index, without holes."""
    wanted, need = gang.desired, role.resources
    found: dict[int, Place] = {}
    for index, name in enumerate(gang.hosts[:wanted]):
        if _fits(rooms, name, need):
            found[index] = Place(name, _take(rooms, name, gang, role))
    missing = [index for index in range(wanted) if index not in found]
    spare_hosts = sorted({hold.host: None for hold in gang.holds if hold.spare})
    before = [(name, False) for name in sorted(dict.fromkeys(gang.hosts))]
    for name, spare in [*before, *((name, True) for name in spare_hosts)]:
        while missing and _fits(rooms, name, need):
            found[missing.pop(0)] = Place(name, _take(rooms, name, gang, role), spare)
    if missing:
        for index, name in zip(missing, _best_fits(rooms, need, len(missing)), strict=False):
            found[index] = Place(name, _take(rooms, name, gang, role))
    return [found[index] for index in sorted(found)]


def _left_over(rooms: Rooms, name: str) -> tuple[int, int, int, str]:
    """Sort key of the best fit: fewest devices left, then CPUs, then memory, then the id."""
    room = rooms[name]
    return (len(room.devices), room.cpu_millis, room.memory_mib, name)


def _best_fits(rooms: Rooms, need: Resources, count: int) -> Iterable[str]:
    """Hosts for up to `count` replicas, each with room for one when it is yielded."""
    heap = [(_left_over(rooms, name), name) for name, room in rooms.items() if room.fits(need)]
    heapq.heapify(heap)
    for _ in range(count):
        if not heap:
            return
        _, name = heapq.heappop(heap)
        yield name
        # The caller has taken its part by now; the fullest host goes on being filled.
        if rooms[name].fits(need):
            heapq.heappush(heap, (_left_over(rooms, name), name))


def _keep_spares(rooms: Rooms, gang: Gang, places: list[Place], role: RoleSpec) -> tuple[Hold, ...]:
    """On hosts the gang does not run on where there are such."""
    need, count = role.resources, role.spares
    if not count:
        return ()
    ours = dict.fromkeys(place.host for place in places)
    kept: list[Hold] = []
    fitting = [name for name, room in rooms.items() if room.fits(need)]
    for name in sorted(fitting, key=lambda name: (name in ours, _left_over(rooms, name))):
        while len(kept) < count and rooms[name].fits(need):
            kept.append(rooms[name].hold(need, spare=True))
            _take(rooms, name, gang, role)
    return tuple(kept)
