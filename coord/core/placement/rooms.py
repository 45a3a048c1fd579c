"""What is free on all hosts.

Hosts on which the same is free are one kind: a wish is compared with kinds, of which there are few,
and not with hosts, of which there are many.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from coord.core.placement.fragmentation import Memory, Weighing
from coord.core.placement.room import Kind, Order, Room
from coord.model.entities import Gang, Job, Task
from coord.model.spec import Placing, Resources
from coord.model.typical import Shape

ANYWHERE = Placing()


class Rooms(dict[str, Room]):
    """Host -> what is free there, for every host that takes work. Change it through `put`.

    `kinds` lists the hosts of each kind along the topology. A copy shares nothing that changes.
    """

    def __init__(
        self,
        rooms: Iterable[Room] = (),
        memory: Memory | None = None,
        jobs: Mapping[str, Job] | None = None,
    ) -> None:
        super().__init__()
        self.kinds: dict[Kind, list[Order]] = {}
        self._by_devices: dict[int, dict[Kind, None]] = {}
        """Kinds by how many devices are free altogether."""
        self.known = -1
        """Hosts that are registered, whether they take work or not; -1: not counted yet."""
        self.guarded: dict[str, None] = {}
        """Hosts on which somebody keeps others away."""
        self.jobs: Mapping[str, Job] = jobs if jobs is not None else {}
        self.memory = memory if memory is not None else Memory()
        for room in rooms:
            self[room.host.host] = room
            self.kinds.setdefault(room.kind, []).append(room.order)
            self._guard(room)
        for kind, orders in self.kinds.items():
            orders.sort()
            self._by_devices.setdefault(kind.whole, {})[kind] = None

    def copy(self) -> Rooms:
        """Some to try something on."""
        copy = Rooms((), self.memory, self.jobs)
        copy.update(self)
        copy.kinds = {kind: list(orders) for kind, orders in self.kinds.items()}
        copy._by_devices = {free: dict(kinds) for free, kinds in self._by_devices.items()}
        copy.guarded = dict(self.guarded)
        return copy

    def put(self, room: Room) -> None:
        """This is free on that host from now on."""
        self.leave(room.host.host)
        self[room.host.host] = room
        kind = room.kind
        if kind in self.kinds:
            insort(self.kinds[kind], room.order)
        else:
            self.kinds[kind] = [room.order]
            self._by_devices.setdefault(kind.whole, {})[kind] = None
        self._guard(room)

    def leave(self, host: str) -> None:
        """The host takes no work."""
        room = self.pop(host, None)
        if room is None:
            return
        orders = self.kinds[room.kind]
        del orders[bisect_left(orders, room.order)]
        if not orders:
            del self.kinds[room.kind]
            del self._by_devices[room.kind.whole][room.kind]
        self.guarded.pop(host, None)

    def _guard(self, room: Room) -> None:
        takers = room.takers.values()
        if takers and any(taker.apart_from or taker.whole_hosts for taker in takers):
            self.guarded[room.host.host] = None

    @property
    def free_devices(self) -> int:
        """Of which nobody has anything."""
        return sum(kind.whole * len(orders) for kind, orders in self.kinds.items())

    def enough_for(self, need: Resources) -> Iterator[tuple[Kind, list[Order]]]:
        """The kinds that have devices enough, and perhaps all else: in a full fleet, few."""
        if not need.devices:
            yield from self.kinds.items()
            return
        for free in sorted(self._by_devices):
            if free >= need.devices:
                for kind in self._by_devices[free]:
                    yield kind, self.kinds[kind]

    def replicas(self, need: Resources) -> int:
        """How many fit on all hosts together, by what is free."""
        return sum(kind.replicas(need) * len(orders) for kind, orders in self.enough_for(need))

    def weighing(self, need: Resources, shapes: tuple[Shape, ...]) -> Weighing:
        return self.memory.of(need, shapes)

    def placing_of(self, job: str, role: str) -> Placing:
        """A task may outlive the row of its job."""
        known = self.jobs.get(job)
        found = known.spec.role(role) if known is not None else None
        return found.placement if found is not None else ANYWHERE

    def free_task(self, task: Task) -> None:
        """As if the task had gone."""
        if task.host in self:
            self.put(self[task.host].give_back(task, task.gang))

    def free_holds(self, gang: Gang) -> None:
        """What a gang keeps counts as free from now on."""
        for hold in gang.holds:
            if hold.host in self:
                self.put(self[hold.host].give_back(hold, gang.key))

    def take_holds(self, gang: Gang, placing: Placing | None = None) -> None:
        """Nobody else may have what a gang keeps. Without `placing`, that of its role."""
        placing = placing or self.placing_of(gang.job, gang.role)
        for hold in gang.holds:
            if hold.host in self:
                self.put(self[hold.host].take(hold, gang.key, placing))
