"""What is free on hosts, and how it is taken and given back."""

from __future__ import annotations

from collections.abc import Iterable

from coord.core.fleet import usable
from coord.core.state import State
from coord.model.entities import Gang, Hold, Host, Task
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

    def give_back(self, taker: Hold | Task) -> None:
        self.devices = sorted([*self.devices, *taker.devices])
        self.cpu_millis += taker.cpu_millis
        self.memory_mib += taker.memory_mib

    def take_one(self, need: Resources) -> tuple[int, ...]:
        """Take what one replica needs; returns its devices, the lowest numbers."""
        devices = tuple(self.devices[: need.devices])
        self.take(devices, need.cpu_millis, need.memory_mib)
        return devices

    def left_over(self) -> tuple[int, int, int, str]:
        """Sort key of the best fit: fewest devices left, then CPUs, then memory, then the id."""
        return (len(self.devices), self.cpu_millis, self.memory_mib, self.host)


class Rooms(dict[str, Room]):
    """Host -> what is free there, for every host that takes work."""

    def copy(self) -> Rooms:
        """One to try something on."""
        return Rooms({name: room.copy() for name, room in self.items()})

    def free_task(self, task: Task) -> None:
        """As if the task had gone."""
        if task.host in self:
            self[task.host].give_back(task)

    def free_holds(self, gang: Gang) -> None:
        """What a gang keeps counts as free from now on."""
        for hold in gang.holds:
            if hold.host in self:
                self[hold.host].give_back(hold)

    def take_holds(self, gang: Gang) -> None:
        for hold in gang.holds:
            if hold.host in self:
                self[hold.host].take(hold.devices, hold.cpu_millis, hold.memory_mib)


def rooms_of(state: State) -> Rooms:
    """What is free on every usable host, holds counted as taken."""
    rooms = Rooms(
        {
            name: _room_beside_tasks(state, host).copy()
            for name, host in state.hosts.items()
            if usable(host)
        }
    )
    for gang in state.gangs.values():
        if gang.holds:
            rooms.take_holds(gang)
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
