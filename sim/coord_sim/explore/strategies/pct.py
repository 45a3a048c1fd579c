"""Probabilistic concurrency testing: each sender has a random priority, the highest goes first, and
at d - 1 random places the sender whose turn it is falls behind all others (Burckhardt et al.: A
Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS 2010)."""

from __future__ import annotations

from collections.abc import Iterator

from coord_sim.explore.schedule import AnyChange

from .base import Strategy
from .orders import reordered, stretch

DEPTHS = (2, 3, 4)
"""How many events must be in a certain order for the bug to show."""


class Pct(Strategy):
    """The depths in turn."""

    name = "pct"
    share = 0.1

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        for number in range(self.explored.recording.size * 1_000):
            change = self._one(DEPTHS[number % len(DEPTHS)])
            if change is not None:
                yield (change,)

    def _one(self, depth: int) -> AnyChange | None:
        order, rng = self.explored.order, self.rng
        positions = stretch(self.explored, rng)
        senders = list(dict.fromkeys(order.chain(position) for position in positions))
        drawn = list(range(depth, depth + len(senders)))
        rng.shuffle(drawn)
        priorities = dict(zip(senders, drawn, strict=True))
        turns = {rng.randrange(len(positions)): lowest for lowest in range(1, depth)}
        count = 0

        def take(enabled: list[int]) -> int:
            nonlocal count
            taken = max(enabled, key=lambda position: (priorities[order.chain(position)], position))
            if count in turns:
                priorities[order.chain(taken)] = turns[count]
                taken = max(
                    enabled, key=lambda position: (priorities[order.chain(position)], position)
                )
            count += 1
            return taken

        return reordered(self.explored, positions, take)

    def bound(self, finished: bool) -> str:
        return f"pct: {self.tried} orders of depth {DEPTHS[0]} to {DEPTHS[-1]}"
