"""One to three messages that are late."""

from __future__ import annotations

from collections.abc import Iterator

from coord.model.events import ClusterConfigured, LeaderElected
from coord_sim.explore.schedule import AnyChange, Delay

from .base import Strategy

DISTANCES = (1, 2, 3, 5, 8, 13, 21, 34, 55)
"""Past how many events a message is held back."""
MOST = 3


class Delays(Strategy):
    """Every single one over a few distances, then two and three at random."""

    name = "delays"
    share = 0.2
    _singles = 0
    _all_singles = 0

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        singles = list(self._single())
        self._all_singles = len(singles)
        self.rng.shuffle(singles)
        for delay in singles:
            self._singles += 1
            yield (delay,)
        while singles:
            count = self.rng.randrange(2, MOST + 1)
            chosen = [self.rng.choice(singles) for _ in range(count)]
            near = [delay for delay in chosen if abs(delay.at - chosen[0].at) <= DISTANCES[-1]]
            near.sort(key=lambda delay: delay.at)
            yield tuple(near)

    def _single(self) -> Iterator[Delay]:
        recording = self.explored.recording
        for position, record in enumerate(recording.records):
            if isinstance(record.entry.event, LeaderElected | ClusterConfigured):
                continue
            for distance in DISTANCES:
                if position + distance < recording.size:
                    yield Delay(position, position + distance)

    def bound(self, finished: bool) -> str:
        if self._singles < self._all_singles:
            return f"delays: {self._singles} of {self._all_singles} single ones tried"
        more = self.tried - self._singles
        return f"delays: all {self._all_singles} single ones and {more} of two or three tried"
