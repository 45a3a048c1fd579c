"""Partial-order sampling: every event gets a random priority, the highest that may come next does,
and whatever conflicts with it draws anew (Yuan, Yang, Gu: Partial Order Aware Concurrency Sampling,
CAV 2018)."""

from __future__ import annotations

from collections.abc import Iterator

from coord_sim.explore.schedule import AnyChange

from .base import Strategy
from .orders import reordered, stretch


class PartialOrderSampling(Strategy):
    """Orders that differ in what matters are drawn about equally often."""

    name = "partial-order sampling"
    share = 0.1

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        for _ in range(self.explored.recording.size * 1_000):
            positions = stretch(self.explored, self.rng)
            priorities = {position: self.rng.random() for position in positions}

            def take(enabled: list[int], priorities: dict[int, float] = priorities) -> int:
                taken = max(enabled, key=lambda position: priorities[position])
                for position in enabled:
                    if position != taken and self._conflict(taken, position):
                        priorities[position] = self.rng.random()
                return taken

            change = reordered(self.explored, positions, take)
            if change is not None:
                yield (change,)

    def _conflict(self, a: int, b: int) -> bool:
        one, other = self.conflicts.footprints[a], self.conflicts.footprints[b]
        return any(name in other.writes or name in other.reads for name in one.writes) or any(
            name in other.writes for name in one.reads
        )

    def bound(self, finished: bool) -> str:
        return f"partial-order sampling: {self.tried} orders"
