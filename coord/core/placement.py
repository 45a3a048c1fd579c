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

from coord.core.fleet import usable
from coord.core.state import State
from coord.model.entities import Gang, Hold, Host, QueueReason
from coord.model.spec import Resources


class Room:
    """What is free on a host: device numbers ascending, thousandths of CPUs, mebibytes."""

    __slots__ = ("cpu_millis", "devices", "host", "memory_mib")

    def __init__(self, host: Host) -> None:
        self.host = host.host
        self.devices = list(range(host.devices))
        self.cpu_millis = host.cpu_millis
        self.memory_mib = host.memory_mib

    def copy(self) -> Room:
        room = Room.__new__(Room)
        room.host, room.devices = self.host, self.devices
        room.cpu_millis, room.memory_mib = self.cpu_millis, self.memory_mib
        return room

    def fits(self, need: Resources) -> bool:
        return self.replicas(need, 1) == 1

    def replicas(self, need: Resources, enough: int) -> int:
        """How many fit, counted up to `enough`. What is not needed is not asked for."""
        count = enough
        if need.devices:
            count = min(count, len(self.devices) // need.devices)
        if need.cpu_millis:
            count = min(count, self.cpu_millis // need.cpu_millis)
        if need.memory_mib:
            count = min(count, self.memory_mib // need.memory_mib)
        return max(count, 0)

    def take(self, devices: Iterable[int], cpu_millis: int, memory_mib: int) -> None:
        taken = dict.fromkeys(devices)
        self.devices = [device for device in self.devices if device not in taken]
        self.cpu_millis -= cpu_millis
        self.memory_mib -= memory_mib

    def give_back(self, hold: Hold) -> None:
        self.devices = sorted([*self.devices, *hold.devices])
        self.cpu_millis += hold.cpu_millis
        self.memory_mib += hold.memory_mib

    def take_one(self, need: Resources) -> tuple[int, ...]:
        """Take what one replica needs; returns its devices, the lowest numbers."""
        devices = tuple(self.devices[: need.devices])
        self.take(devices, need.cpu_millis, need.memory_mib)
        return devices

    def left_over(self) -> tuple[int, int, int, str]:
        """Sort key of the best fit: fewest devices left, then CPUs, then memory, then the id."""
        return (len(self.devices), self.cpu_millis, self.memory_mib, self.host)


class Place(msgspec.Struct, frozen=True):
    host: str
    devices: tuple[int, ...]
    spare: bool = False
    """It was kept as a spare until now."""


class Plan(msgspec.Struct, frozen=True):
    """Places by index, and the spares to keep beside them."""

    places: tuple[Place, ...]
    spares: tuple[Hold, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no place now."""

    reason: QueueReason
    detail: str


def rooms_of(state: State) -> dict[str, Room]:
    """What is free on every usable host, holds counted as taken."""
    rooms = {
        name: _room_beside_tasks(state, host).copy()
        for name, host in state.hosts.items()
        if usable(host)
    }
    for gang in state.gangs.values():
        if gang.holds:
            _take_holds(rooms, gang)
    return rooms


def _room_beside_tasks(state: State, host: Host) -> Room:
    """Counted once for each row of the host: whatever a task takes or leaves, changes that row."""
    known: Room | None = state.rooms.get(host.host)
    if known is not None:
        return known
    room = Room(host)
    tasks = [state.tasks[key] for key in host.tasks]
    room.take(
        [device for task in tasks for device in task.devices],
        sum(task.cpu_millis for task in tasks),
        sum(task.memory_mib for task in tasks),
    )
    state.rooms[host.host] = room
    return room


def place(
    rooms: dict[str, Room], gang: Gang, need: Resources, smallest: int, spares: int
) -> Plan | None:
    """Take places for as many of `gang.desired` tasks as fit, at least `smallest`; else None.

    What the gang itself holds counts as free for it. On None, `rooms` are as before.
    """
    _give_back_holds(rooms, gang)
    if _replicas(rooms, need, smallest) < smallest:
        _take_holds(rooms, gang)
        return None
    places = _place_tasks(rooms, gang, need)
    return Plan(tuple(places), _keep_spares(rooms, places, need, spares))


def _give_back_holds(rooms: dict[str, Room], gang: Gang) -> None:
    for hold in gang.holds:
        if hold.host in rooms:
            rooms[hold.host].give_back(hold)


def _take_holds(rooms: dict[str, Room], gang: Gang) -> None:
    for hold in gang.holds:
        if hold.host in rooms:
            rooms[hold.host].take(hold.devices, hold.cpu_millis, hold.memory_mib)


def _place_tasks(rooms: dict[str, Room], gang: Gang, need: Resources) -> list[Place]:
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


def _best_fits(rooms: dict[str, Room], need: Resources, count: int) -> Iterable[str]:
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
    rooms: dict[str, Room], places: list[Place], need: Resources, count: int
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


def refusal(
    state: State, rooms: dict[str, Room], gang: Gang, need: Resources, smallest: int
) -> Refusal:
    """Why `place` found too little: the first of devices, CPUs, memory that is short."""
    known = [host for host in state.hosts.values() if host.status != "removed"]
    if not known:
        return Refusal(QueueReason.NO_HOSTS, "no host has registered")
    if not rooms:
        return Refusal(QueueReason.HOSTS_UNAVAILABLE, f"0 of {len(known)} hosts take new work")
    _give_back_holds(rooms, gang)
    found = _shortage(rooms, need, smallest, len(known))
    _take_holds(rooms, gang)
    return found


def _shortage(rooms: dict[str, Room], need: Resources, smallest: int, known: int) -> Refusal:
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


def _replicas(rooms: dict[str, Room], need: Resources, enough: int) -> int:
    count = 0
    for room in rooms.values():
        count += room.replicas(need, enough - count)
        if count == enough:
            break
    return count


def _shortage_of(
    rooms: dict[str, Room], reason: QueueReason, need: Resources, smallest: int, known: int
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
