"""Whose turn it is: the order in which waiting gangs are looked at.

1. Whoever was interrupted, or has others stopping for it: what is kept for it lies idle meanwhile.
2. Gangs whose queue has them within its quota, before those that would borrow.
3. Queues of higher priority; among equals, the one that uses the least of its quota, or has
   borrowed the least for its weight.
4. Within a queue: jobs of higher priority; among equals, the owner who uses the least of the queue;
   of one owner, who was submitted first, then roles in their order, then indexes.

Each start changes who comes next, so turns are asked for one by one.
"""

from __future__ import annotations

import heapq

from coord.core.claims import DEVICE, each_of, owner_of
from coord.core.shares import Shares
from coord.core.state import State
from coord.model.entities import Gang

Rank = tuple[int, int, int, str]
Standing = tuple[int, int, int]
PARTS = 1_000_000
"""How finely shares of a quota are told apart."""


def rank_of(state: State, gang: Gang) -> Rank:
    """Order of submission, roles and indexes."""
    roles = state.jobs[gang.job].spec.roles
    order = next(at for at, role in enumerate(roles) if role.name == gang.role)
    return (gang.submitted, order, gang.index, gang.key)


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
        used = shares.use.get(queue, 0)
        if used + smallest * each_of(role.resources) <= spec.quota * DEVICE:
            return (0, -spec.priority, used * PARTS // max(spec.quota * DEVICE, 1))
        if not each_of(role.resources):
            return (0, -spec.priority, 0)
        return (1, -spec.priority, shares.borrowed(queue) * PARTS // spec.weight)


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
                gangs.reverse()
                heap.append((self._use(owner), gangs[-1][0], owner))
            heapq.heapify(heap)
            self._levels.append((priority, heap))

    def head(self) -> tuple[Rank, Gang]:
        priority, heap = self._levels[-1]
        while heap[0][0] != self._use(heap[0][2]):
            _, rank, owner = heap[0]
            heapq.heapreplace(heap, (self._use(owner), rank, owner))
        return self._by_priority[priority][heap[0][2]][-1]

    def pop(self) -> None:
        """The head has its turn. (Call after `head`.)"""
        priority, heap = self._levels[-1]
        _, _, owner = heapq.heappop(heap)
        gangs = self._by_priority[priority][owner]
        gangs.pop()
        if gangs:
            heapq.heappush(heap, (self._use(owner), gangs[-1][0], owner))
        elif not heap:
            self._levels.pop()

    def _use(self, owner: str) -> int:
        return self._shares.owners.get((self.queue, owner), 0)


def _is_interrupted(gang: Gang) -> bool:
    return bool(gang.claim or gang.holds)
