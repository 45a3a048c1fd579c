"""A random walk: of all that may come next, anything."""

from __future__ import annotations

from collections.abc import Iterator

from coord_sim.explore.schedule import AnyChange

from .base import Strategy
from .orders import reordered, stretch


class RandomWalk(Strategy):
    """The baseline that the others are measured against."""

    name = "random walk"
    share = 0.05

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        for _ in range(self.explored.recording.size * 1_000):
            change = reordered(self.explored, stretch(self.explored, self.rng), self.rng.choice)
            if change is not None:
                yield (change,)

    def bound(self, finished: bool) -> str:
        return f"random walk: {self.tried} orders"
