"""Whose turn it is: the order in which waiting gangs are looked at.

1. Whoever was interrupted, or has others stopping for it: what is kept for it lies idle meanwhile.
2. Gangs whose queue has them within its quota, and within that of a device type that they name,
   before those that would borrow.
3. Queues of higher priority; among equals, the one that uses the least of its quota, or has
   borrowed the least for its weight.
4. Within a queue: jobs of higher priority; among equals, the owner who uses the least of the queue;
   of one owner, who was submitted first, then roles in their order, then indexes.

For whom room is kept keeps its turn among those of the same right and priorities: otherwise what
ends meanwhile would change the shares, and with them who comes first, again and again.

Each start changes who comes next, so turns are asked for one by one.
"""

from __future__ import annotations

import heapq

from coord.core.queueing.claims import DEVICE, each_of, owner_of
from coord.core.queueing.shares import Shares
from coord.core.state import State
from coord.model.entities import Gang

Rank = tuple[int, int, int, str]
Standing = tuple[int, int, int]
PARTS = 1_000_000
"""How finely shares of a quota are told apart."""
KEEPS_ITS_TURN = -1
"""Less than any share."""


def rank_of(state: State, gang: Gang) -> Rank:
    """Order of submission, roles and indexes."""
    roles = state.jobs[gang.job].spec.roles
    order = next(at for at, role in enumerate(roles) if role.name == gang.role)
    return (gang.submitted, order, gang.index, gang.key)


def turns_now(state: State) -> list[Gang]:
    """Who waits, in the order of turns as shares are now."""
    turns = Turns(state, Shares(state), [state.gangs[key] for key in state.waiting])
    found = []
    while (gang := turns.next()) is not None:
        found.append(gang)
    return found


class Turns:
    """Hands out waiting gangs, each once, by who uses how much at that moment."""

    def __init__(self, state: State, shares: Shares, waiting: list[Gang]) -> None:
        self._state = state
        self._shares = shares
        ranked = sorted((rank_of(state, gang), gang) for gang in waiting)
        self._interrupted = [gang for _, gang in ranked if _is_interrupted(gang)]
        self._interrupted.reverse()
        lines: dict[str, _Line] = {}
        for rank, gang in ranked:
            if not _is_interrupted(gang):
                job = state.jobs[gang.job]
                queue = job.spec.queue
                if queue not in lines:
                    lines[queue] = _Line(queue, shares)
                lines[queue].add(job.spec.priority, owner_of(job), rank, gang)
        self._lines = lines
        self._heap: list[tuple[Standing, Rank, str]] = []
        for line in lines.values():
            line.begin()
            self._push(line)

    def next(self) -> Gang | None:
        """Whose turn it is; None when all have had theirs."""
        if self._interrupted:
            return self._interrupted.pop()
        while self._heap:
            standing, rank, queue = heapq.heappop(self._heap)
            line = self._lines[queue]
            ahead, head = line.head()
            if (self._standing(queue, head), ahead) != (standing, rank):
                self._push(line)  # It has started something since.
                continue
            line.pop()
            self._push(line)
            return head
        return None

    def _push(self, line: _Line) -> None:
        if line:
            rank, head = line.head()
            heapq.heappush(self._heap, (self._standing(line.queue, head), rank, line.queue))

    def _standing(self, queue: str, head: Gang) -> Standing:
        """What a queue's turn goes by, the least first."""
        shares = self._shares
        spec = shares.spec(queue)
        role = self._state.jobs[head.job].spec.role(head.role)
        assert role is not None
        smallest = min(role.smallest if head.index < 0 else 1, head.desired)
        each = each_of(role.resources)
        used, quota = shares.use.get(queue, 0), spec.quota * DEVICE
        entitled = not each or (
            used + smallest * each <= quota and shares.has_type_left(head, smallest)
        )
        if head.reserving:
            share = KEEPS_ITS_TURN
        elif not each:
            share = 0
        elif entitled:
            share = used * PARTS // quota
        else:
            share = shares.borrowed(queue) * PARTS // spec.weight
        return (0 if entitled else 1, -spec.priority, share)


class _Line:
    """Those who wait in one queue."""

    def __init__(self, queue: str, shares: Shares) -> None:
        self.queue = queue
        self._shares = shares
        self._by_priority: dict[int, dict[str, list[tuple[Rank, Gang]]]] = {}
        self._levels: list[tuple[int, list[tuple[int, Rank, str]]]] = []

    def __bool__(self) -> bool:
        return bool(self._levels)

    def add(self, priority: int, owner: str, rank: Rank, gang: Gang) -> None:
        """In the order of their ranks."""
        self._by_priority.setdefault(priority, {}).setdefault(owner, []).append((rank, gang))

    def begin(self) -> None:
        for priority in sorted(self._by_priority):
            owners = self._by_priority[priority]
            heap = []
            for owner, gangs in owners.items():
                gangs.sort(key=_first_last)
                heap.append((self._use(owner, gangs[-1][1]), gangs[-1][0], owner))
            heapq.heapify(heap)
            self._levels.append((priority, heap))

    def head(self) -> tuple[Rank, Gang]:
        priority, heap = self._levels[-1]
        owners = self._by_priority[priority]
        while True:
            use, rank, owner = heap[0]
            found = owners[owner][-1]
            now = self._use(owner, found[1])
            if use == now:
                return found
            heapq.heapreplace(heap, (now, rank, owner))

    def pop(self) -> None:
        """The head has its turn. (Call after `head`.)"""
        priority, heap = self._levels[-1]
        _, _, owner = heapq.heappop(heap)
        gangs = self._by_priority[priority][owner]
        gangs.pop()
        if gangs:
            heapq.heappush(heap, (self._use(owner, gangs[-1][1]), gangs[-1][0], owner))
        elif not heap:
            self._levels.pop()

    def _use(self, owner: str, head: Gang) -> int:
        if head.reserving:
            return KEEPS_ITS_TURN
        return self._shares.owners.get((self.queue, owner), 0)


def _first_last(one: tuple[Rank, Gang]) -> tuple[bool, tuple[int, int, int]]:
    (submitted, order, index, _), gang = one
    return (gang.reserving, (-submitted, -order, -index))


def _is_interrupted(gang: Gang) -> bool:
    return bool(gang.claim or gang.holds)
