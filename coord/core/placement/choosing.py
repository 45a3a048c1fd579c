"""Which hosts a gang takes, of those that would do, and which rank goes where."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from coord.core.placement.candidates import Candidates, Group, Pool
from coord.core.placement.plan import Place
from coord.core.placement.room import Kind, Order, Room
from coord.model.entities import Hold
from coord.model.place import LEVELS

_HOST = len(LEVELS) - 1

Weight = tuple[int, int, tuple[int, int, int]]
"""How far from where it should be; how much more is wasted; what is left over: the least first."""


class Choice:
    """Places for one gang, taken one after the other from copies of the rooms."""

    def __init__(self, candidates: Candidates, size: int) -> None:
        self.candidates = candidates
        self.gang = candidates.gang
        self.need = candidates.need
        self.size = size
        self.changed: dict[str, Room] = {}
        self._used: dict[str, int] = {}
        self._staying: dict[int, Place] = {}
        self._others: list[tuple[Order, Place]] = []

    # Taking

    def fill(self, pool: Pool, count: int) -> None:
        """Take `count` places in the pool, which has them: where the gang ran before come first,
        each index back to its own host where that may be; then its spares; then the best."""
        for index, name in enumerate(self.gang.hosts[: self.size]):
            if count and index not in self._staying and self._left_in(pool, name):
                self._staying[index] = Place(name, self._take(name).devices)
                count -= 1
        before = sorted(dict.fromkeys(self.gang.hosts))
        spares = self._spares_by_nearness()
        for name, spare in (*((name, False) for name in before), *((s, True) for s in spares)):
            while count and self._left_in(pool, name):
                self._take_other(name, spare=spare)
                count -= 1
        for name in self._best(pool, count):
            self._take_other(name)

    def _spares_by_nearness(self) -> list[str]:
        """First those that share the narrowest domain with a host that the gang stays on."""
        rooms = self.candidates.rooms
        staying = {
            (level, name): None
            for host in self.changed
            for level, name in enumerate(rooms[host].order)
            if name
        }

        def apart(name: str) -> int:
            order = rooms[name].order
            shared = (level for level in range(_HOST, -1, -1) if (level, order[level]) in staying)
            return -next(shared, -1)

        hosts = {hold.host: None for hold in self.gang.holds if hold.spare and hold.host in rooms}
        return sorted(hosts, key=lambda name: (apart(name), name))

    def _room(self, name: str) -> Room:
        return self.changed.get(name) or self.candidates.rooms[name]

    def _left(self, name: str) -> int:
        """How many more the host could take."""
        fit = self.candidates.weighing.of(self._room(name).kind)[0]
        if fit and self.candidates.placing.per_host:
            room = self.candidates.rooms[name]
            fit = min(fit, self.candidates.limit(room) - self._used.get(name, 0))
        return fit

    def _left_in(self, pool: Pool, name: str) -> int:
        room = self.candidates.rooms.get(name)
        if room is None or not pool.has(room.order):
            return 0
        if name not in self.changed and not self.candidates.fit(room):
            return 0
        return self._left(name)

    def _take(self, name: str, *, spare: bool = False) -> Hold:
        room = self._room(name)
        hold = room.hold(self.need, spare=spare)
        self.changed[name] = room.take(hold, self.gang.key, self.candidates.placing)
        self._used[name] = self._used.get(name, 0) + 1
        return hold

    def _take_other(self, name: str, *, spare: bool = False) -> None:
        order = self.candidates.rooms[name].order
        self._others.append((order, Place(name, self._take(name).devices, spare)))

    # The best

    def _weight(self, distance: int, kind: Kind, fit: int, *, ours: bool) -> Weight:
        more = self.candidates.weighing.of(kind)[1]
        if self.candidates.placing.whole_hosts:
            # Nobody else gets what is left there: a host that is begun is filled up.
            taken = fit * (self.need.devices * 1_000 + self.need.device_millis)
            more = -1 if ours else kind.free_millis - taken
        return (distance, more, (kind.free_millis, kind.cpu_millis, kind.memory_mib))

    def _alone(self, order: Order) -> tuple[Weight, Order, int, int]:
        name = order[-1]
        kind = self._room(name).kind
        distance = self.candidates.distance(order)
        return (self._weight(distance, kind, self._left(name), ours=True), order, -1, 0)

    def _best(self, pool: Pool, count: int, avoid: dict[str, None] | None = None) -> Iterator[str]:
        """Hosts for `count` places one by one, each with room for one when it is yielded: the least
        weight first, then along the topology. The caller takes before it asks for the next.

        Of a group only the first host that nobody has touched stands in the heap.
        """
        if not count:
            return
        avoid = avoid or {}
        groups = list(pool.groups.items())
        touched = [self.candidates.rooms[name] for name in self.changed if name not in avoid]
        heap = [self._alone(room.order) for room in touched if self._left_in(pool, room.host.host)]
        touched_before = {**self.changed, **avoid}
        for number, (group, orders) in enumerate(groups):
            entry = self._of_group(group, orders, number, 0, touched_before)
            if entry is not None:
                heap.append(entry)
        heapq.heapify(heap)
        while count and heap:
            _, order, number, at = heapq.heappop(heap)
            yield order[-1]
            count -= 1
            if number >= 0:
                entry = self._of_group(*groups[number], number, at + 1, touched_before)
                if entry is not None:
                    heapq.heappush(heap, entry)
            if self._left(order[-1]):
                heapq.heappush(heap, self._alone(order))

    def _of_group(
        self,
        group: Group,
        orders: list[Order],
        number: int,
        at: int,
        touched: dict[str, Room | None],
    ) -> tuple[Weight, Order, int, int] | None:
        while at < len(orders) and orders[at][-1] in touched:
            at += 1
        if at == len(orders):
            return None
        weight = self._weight(group.distance, group.kind, group.fit, ours=False)
        return (weight, orders[at], number, at)

    # Spares

    def keep_spares(
        self, pool: Pool, count: int, running_on: dict[str, None] | None = None
    ) -> tuple[Hold, ...]:
        """Up to `count` places kept free: on hosts that the gang does not run on where there are
        such, in the narrowest domain that it shares with one of those it runs on. `running_on`:
        those of a gang that runs already; then on no others."""
        if not count:
            return ()
        kept: list[Hold] = []
        ours = dict.fromkeys(self.changed if running_on is None else running_on)
        rooms = self.candidates.rooms
        running = [rooms[name].order for name in ours if name in rooms]
        for level in range(_HOST - 1, -1, -1):
            near = Pool(pool.inside)
            domains = {order[: level + 1]: order for order in running if order[level]}
            for order in domains.values() if len(kept) < count else ():
                for group, one in pool.beside(order, level):
                    near.groups.setdefault(group, []).append(one)
            near.groups = {group: sorted(orders) for group, orders in near.groups.items()}
            kept += self._spares_in(near, count - len(kept), ours)
        kept += self._spares_in(pool, count - len(kept), ours)
        if running_on is None:
            kept += self._spares_in(pool, count - len(kept), {})
        return tuple(kept)

    def _spares_in(self, pool: Pool, count: int, avoid: dict[str, None]) -> list[Hold]:
        return [self._take(name, spare=True) for name in self._best(pool, count, avoid)]

    # Ranks

    def places(self) -> tuple[Place, ...]:
        """By index. Who stays on its host keeps its index: what it left on that host's disks is its
        own, and a promoted spare moves nobody. The others fill what is missing, in the order of the
        topology; so does everybody of a gang that was placed nowhere before."""
        arriving = iter(
            place
            for _, place in sorted(
                self._others, key=lambda other: (other[0], other[1].devices, other[1].spare)
            )
        )
        return tuple(
            self._staying[index] if index in self._staying else next(arriving)
            for index in range(self.size)
        )
