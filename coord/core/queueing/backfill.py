"""Room that is kept for the first gang that lacks some, so that those behind it do not delay it.

Nobody says how long a job will run, so it is never known when a gang's room will be free, nor
where first. What is certain is what the gang could use at all: on each host that suits it, the
replicas that it would hold if everything else there were gone. Those behind it get what is beyond
that: other hosts, and on these the devices, CPUs and memory that are free now and that the gang
could never use. Whatever ends where and whenever, the gang then starts at the very moment at which
it would have started without those behind it; and since nothing new comes to the room that it waits
for, it starts when enough of what is there has ended.

A gang that would not fit a fleet without tasks reserves nothing: it waits for hosts, not for room.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.placement import Room, Rooms, place
from coord.core.state import State
from coord.model.entities import Gang, Hold, Host, TaskStatus
from coord.model.spec import Placing, Resources, RoleSpec

WHOLE = 1_000
"""Thousandths of a device."""
_ANYWHERE = Placing()


def keep_from_others(
    state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int
) -> Rooms | None:
    """What is left for those behind a gang that `rooms` refused; None when it would not fit if all
    else were gone. `rooms` stay as they are."""
    counts = _replicas_when_empty(state, rooms, role.resources)
    if sum(counts.values()) < smallest:
        return None
    if role.placement != _ANYWHERE and not _fits_when_empty(state, rooms, gang, role, smallest):
        return None
    missing = max(gang.desired - sum(not hold.spare for hold in gang.holds), 1)
    left = []
    for name, room in rooms.items():
        count = min(counts[name], missing)
        left.append(_without(room, gang, role, count) if count else room)
    return Rooms(left, rooms.memory, rooms.jobs)


def _without(room: Room, gang: Gang, role: RoleSpec, count: int) -> Room:
    for hold in _kept(room, role.resources, count):
        room = room.take(hold, gang.key, role.placement)
    return room


def _kept(room: Room, need: Resources, count: int) -> list[Hold]:
    """So much of what is free on a host as that many replicas could use."""
    whole = need.devices * count
    parts: tuple[tuple[int, int], ...] = ()
    if need.device_millis:
        whole = -(-count // (WHOLE // need.device_millis))
        parts = tuple(part for part in room.parts if part[1] >= need.device_millis)
    name = room.host.host
    hold = Hold(
        name,
        False,
        room.devices[len(room.devices) - whole :] if whole < len(room.devices) else room.devices,
        max(min(room.cpu_millis, need.cpu_millis * count), 0),
        max(min(room.memory_mib, need.memory_mib * count), 0),
    )
    return [hold, *(Hold(name, False, (device,), 0, 0, free) for device, free in parts)]


def _replicas_when_empty(state: State, rooms: Rooms, need: Resources) -> dict[str, int]:
    """By host. Hosts that offer the same are counted once."""
    known: dict[tuple[object, ...], int] = {}
    counts = {}
    for name in rooms:
        host = state.hosts[name]
        offer = (
            host.device_type,
            len(host.rails),
            host.devices,
            host.cpu_millis,
            host.memory_mib,
            host.probation,
            _stuck(state, host),
        )
        count = known.get(offer)
        if count is None:
            count = known[offer] = _empty_room(state, host).kind.replicas(need)
        counts[name] = count
    return counts


def _stuck(state: State, host: Host) -> tuple[str, ...]:
    """What cannot be killed never leaves its place."""
    return tuple(key for key in host.tasks if state.tasks[key].status == TaskStatus.UNKILLABLE)


def _empty_room(state: State, host: Host) -> Room:
    room = Room(host)
    for key in _stuck(state, host):
        task = state.tasks[key]
        room = room.take(task, task.gang, _ANYWHERE)
    return room


def _fits_when_empty(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> bool:
    found = [_empty_room(state, state.hosts[name]) for name in rooms]
    empty = Rooms(found, rooms.memory, rooms.jobs)
    return place(state, empty, replace(gang, holds=()), role, smallest) is not None
