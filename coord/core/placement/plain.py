"""Where a gang goes: all of it or nothing.

Integer arithmetic and total order throughout, so that the same fleet and the same wish always give
the same places, whatever order they arrived in. Hosts where the gang ran before come first, each
index back to its own where possible; then its spares; then the best fit: the host on which least is
left over. Ties go to the lesser host id.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec

from coord.core.placement.plan import Place, Plan, Refusal
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.entities import Gang, Hold, QueueReason
from coord.model.spec import Resources, RoleSpec


def place(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Plan | None:
    """Take places for as many of `gang.desired` tasks as fit, at least `smallest`; else None.

    What the gang itself holds counts as free for it. On None, `rooms` are as before.
    """
    need = role.resources
    rooms.free_holds(gang)
    if _replicas(rooms, need, smallest) < smallest:
        rooms.take_holds(gang)
        return None
    places = _place_tasks(rooms, gang, need)
    return Plan(tuple(places), _keep_spares(rooms, places, need, role.spares))


def _place_tasks(rooms: Rooms, gang: Gang, need: Resources) -> list[Place]:
    """By index, without holes."""
    wanted = gang.desired
    found: dict[int, Place] = {}
    for index, name in enumerate(gang.hosts[:wanted]):
        if name in rooms and rooms[name].fits(need):
            found[index] = Place(name, rooms[name].take_one(need))
    missing = [index for index in range(wanted) if index not in found]
    spare_hosts = sorted({hold.host: None for hold in gang.holds if hold.spare})
    before = [(name, False) for name in sorted(dict.fromkeys(gang.hosts))]
    for name, spare in [*before, *((name, True) for name in spare_hosts)]:
        while missing and name in rooms and rooms[name].fits(need):
            found[missing.pop(0)] = Place(name, rooms[name].take_one(need), spare)
    if missing:
        for index, name in zip(missing, _best_fits(rooms, need, len(missing)), strict=False):
            found[index] = Place(name, rooms[name].take_one(need))
    return [found[index] for index in sorted(found)]


def _best_fits(rooms: Rooms, need: Resources, count: int) -> Iterable[str]:
    """Hosts for up to `count` replicas, each with room for one when it is yielded."""
    heap = [(room.left_over(), name) for name, room in rooms.items() if room.fits(need)]
    heapq.heapify(heap)
    for _ in range(count):
        if not heap:
            return
        _, name = heapq.heappop(heap)
        yield name
        # The caller has taken its part by now; the fullest host goes on being filled.
        if rooms[name].fits(need):
            heapq.heappush(heap, (rooms[name].left_over(), name))


def _keep_spares(
    rooms: Rooms, places: list[Place], need: Resources, count: int
) -> tuple[Hold, ...]:
    """Up to `count` places, on hosts the gang does not run on where there are such."""
    if not count:
        return ()
    ours = dict.fromkeys(place.host for place in places)
    kept: list[Hold] = []
    fitting = [name for name, room in rooms.items() if room.fits(need)]
    for name in sorted(fitting, key=lambda name: (name in ours, rooms[name].left_over())):
        while len(kept) < count and rooms[name].fits(need):
            devices = rooms[name].take_one(need)
            kept.append(Hold(name, True, devices, need.cpu_millis, need.memory_mib))
    return tuple(kept)


def refusal(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Refusal:
    """Why `place` found too little: the first of devices, CPUs, memory that is short."""
    known = [host for host in state.hosts.values() if host.status != "removed"]
    if not known:
        return Refusal(QueueReason.NO_HOSTS, "no host has registered")
    if not rooms:
        return Refusal(QueueReason.HOSTS_UNAVAILABLE, f"0 of {len(known)} hosts take new work")
    rooms.free_holds(gang)
    found = _shortage(rooms, role.resources, smallest, len(known))
    rooms.take_holds(gang)
    return found


def _shortage(rooms: Rooms, need: Resources, smallest: int, known: int) -> Refusal:
    wishes = (
        (QueueReason.DEVICES, Resources(devices=need.devices)),
        (QueueReason.CPUS, Resources(cpu_millis=need.cpu_millis)),
        (QueueReason.MEMORY, Resources(memory_mib=need.memory_mib)),
    )
    for reason, wish in wishes:
        if _replicas(rooms, wish, smallest) < smallest:
            return Refusal(reason, _shortage_of(rooms, reason, need, smallest, known))
    together = _replicas(rooms, need, smallest)
    detail = f"{together} of {smallest} replicas fit when all they need is counted together"
    return Refusal(QueueReason.DEVICES if need.devices else QueueReason.CPUS, detail)


def _replicas(rooms: Rooms, need: Resources, enough: int) -> int:
    count = 0
    for room in rooms.values():
        count += room.replicas(need, enough - count)
        if count == enough:
            break
    return count


def _shortage_of(
    rooms: Rooms, reason: QueueReason, need: Resources, smallest: int, known: int
) -> str:
    if reason == QueueReason.DEVICES:
        each, most, unit = (
            need.devices,
            max(len(room.devices) for room in rooms.values()),
            "devices",
        )
    elif reason == QueueReason.CPUS:
        each, most = need.cpu_millis, max(room.cpu_millis for room in rooms.values())
        unit = "thousandths of a CPU"
    else:
        each, most = need.memory_mib, max(room.memory_mib for room in rooms.values())
        unit = "MiB"
    wish = msgspec.structs.replace(Resources(), **{_FIELD[reason]: each})
    fit = _replicas(rooms, wish, smallest)
    return (
        f"{fit} of {smallest} replicas fit: each needs {each} {unit}, the most free on one host is "
        f"{most}; {len(rooms)} of {known} hosts take new work"
    )


_FIELD = {
    QueueReason.DEVICES: "devices",
    QueueReason.CPUS: "cpu_millis",
    QueueReason.MEMORY: "memory_mib",
}
