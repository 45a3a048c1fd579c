"""Room that is kept for the first gang that lacks some, on hosts that are chosen for it.

Nobody says how long a job will run, so it is not known where there will be room first. It is taken
that who has run for long will run for long: of two hosts the one is sooner free where the oldest of
those who must leave began last, and of these the one that fewer must leave. In that order as many
hosts are taken as the gang needs, and on each of them what it could use of what is free goes to
nobody behind it. Everything else does.

The choice stays: a host of it is only exchanged for one that needs nobody to leave. So who runs on
these hosts when they are chosen must end, and nothing else: the gang starts by then at the latest,
whoever comes behind it, and earlier where other hosts allow it. That is less than to start as if
nobody had come, which would take every host that suits it away from all others.

A gang that would not fit a fleet without tasks reserves nothing: it waits for hosts, not for room.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.placement import Room, Rooms, place
from coord.core.state import State
from coord.model.entities import Gang, GangPhase, Hold, Host, TaskStatus
from coord.model.spec import Placing, Resources, RoleSpec

WHOLE = 1_000
"""Thousandths of a device."""
_ANYWHERE = Placing()


def reserved_hosts(
    state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int
) -> tuple[str, ...] | None:
    """The host of each replica of a gang that `rooms` refused; None when it would not fit if all
    else were gone. `rooms` stay as they are."""
    if gang.reserving and _stays(state, rooms, gang, role, smallest):
        return gang.reserved
    choice = _Choice(state, rooms, gang, role, smallest)
    found = choice.among(dict.fromkeys(gang.reserved)) if gang.reserving else None
    return found or choice.among(rooms)


def _stays(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> bool:
    """The hosts chosen before will still do, and no other has room for a replica now."""
    if len(gang.reserved) != smallest or gang.holds:
        return False
    need, free = role.resources, 0
    for name, count in counted(gang.reserved).items():
        room = rooms.get(name)
        if room is None or _stuck(state, room.host):
            return False
        free += min(room.kind.replicas(need), count)
    return free == rooms.replicas(need)


def keep_from_others(
    state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int
) -> Rooms | None:
    """What is left for those behind a gang that room is kept for; None when none is to be."""
    if gang.reserving:
        hosts: tuple[str, ...] | None = gang.reserved
    else:
        hosts = reserved_hosts(state, rooms, gang, role, smallest)
    if hosts is None:
        return None
    counts = counted(hosts)
    for hold in gang.holds:
        if not hold.spare and counts.get(hold.host):
            counts[hold.host] -= 1
    left = rooms.copy()
    for name, count in counts.items():
        room = rooms.get(name)
        if room is not None and count:
            left.put(_without(room, gang, role, count))
    return left


def counted(names: tuple[str, ...]) -> dict[str, int]:
    """How often each is named."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


class _Choice:
    """Of hosts for one gang, with what it holds itself counted as free."""

    def __init__(
        self, state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int
    ) -> None:
        self._state = state
        self._rooms = rooms.copy()
        self._rooms.free_holds(gang)
        self._gang = replace(gang, holds=(), desired=smallest)
        self._role = role
        self._smallest = smallest

    def among(self, names: dict[str, None] | Rooms) -> tuple[str, ...] | None:
        """With the fewest of these hosts left by all who must, those first that are sooner free."""
        gains = self._gains(names)
        count = self._rooms.replicas(self._role.resources)
        fewest = 0
        while count < self._smallest:
            if fewest == len(gains):
                return None
            count += gains[fewest][1]
            fewest += 1
        found = self._places(gains[:fewest])
        if found is not None or (self._role.placement == _ANYWHERE and not self._rooms.guarded):
            return found
        found = self._places(gains)
        most = len(gains)
        while found is not None and fewest < most - 1:
            middle = (fewest + most) // 2
            fewer = self._places(gains[:middle])
            if fewer is None:
                fewest = middle
            else:
                found, most = fewer, middle
        return found

    def _gains(self, names: dict[str, None] | Rooms) -> list[tuple[Room, int]]:
        """(what there is once all have left, how many replicas more that is), soonest first."""
        found = []
        for name in names:
            room = self._rooms.get(name)
            if room is None or not any(key != self._gang.key for key in room.takers):
                continue
            empty = _empty_room(self._state, room.host)
            most = empty.kind.replicas(self._role.resources)
            if most:
                gain = most - room.kind.replicas(self._role.resources)
                found.append((self._wait_for(room), room.order, empty, gain))
        found.sort(key=lambda one: one[:2])
        return [(empty, gain) for _, _, empty, gain in found]

    def _wait_for(self, room: Room) -> tuple[int, int]:
        """(how long the oldest of those who must leave has run, how many must)."""
        oldest_ms, count = 0, 0
        for key in room.takers:
            gang = self._state.gangs.get(key)
            if gang is None or key == self._gang.key or _is_leaving(gang):
                continue
            count += 1
            began_ms = min(
                (self._state.tasks[task].placed_ms for task in gang.live),
                default=self._state.meta.now_ms,
            )
            oldest_ms = max(oldest_ms, self._state.meta.now_ms - began_ms)
        return oldest_ms, count

    def _places(self, left: list[tuple[Room, int]]) -> tuple[str, ...] | None:
        """Where it would stand once these hosts have been left."""
        rooms = self._rooms.copy()
        for empty, _ in left:
            rooms.put(empty)
        plan = place(self._state, rooms, self._gang, self._role, self._smallest)
        return tuple(spot.host for spot in plan.places) if plan is not None else None


def _is_leaving(gang: Gang) -> bool:
    return gang.phase == GangPhase.STOPPING and bool(gang.stop_final or gang.yields_to)


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


def _stuck(state: State, host: Host) -> tuple[str, ...]:
    """What cannot be killed never leaves its place."""
    return tuple(key for key in host.tasks if state.tasks[key].status == TaskStatus.UNKILLABLE)


def _empty_room(state: State, host: Host) -> Room:
    room = Room(host)
    for key in _stuck(state, host):
        task = state.tasks[key]
        room = room.take(task, task.gang, _ANYWHERE)
    return room
