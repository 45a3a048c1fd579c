"""Around each fault, every order of the few events that come next."""

from __future__ import annotations

from collections.abc import Iterator

from coord_sim.explore.schedule import AnyChange

from .base import Strategy
from .faults import SingleFaults
from .orders import every_order

WIDTH = 4
"""Events of a window."""


class Windows(Strategy):
    """Window by window; within one, fault by fault."""

    name = "windows around faults"
    share = 0.1
    _windows = 0

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        size = self.explored.recording.size
        faults = SingleFaults(self.explored, self.conflicts, self.rng)
        starts = list(range(max(size - WIDTH + 1, 1)))
        self.rng.shuffle(starts)
        for start in starts:
            orders = list(every_order(self.explored, range(start, min(start + WIDTH, size))))
            if not orders:
                continue
            for fault in faults.at(start):
                for order in orders:
                    yield (order, fault)
            self._windows += 1

    def bound(self, finished: bool) -> str:
        windows = f"{self._windows} windows of {WIDTH} events"
        if finished:
            return f"windows around faults: all {windows} tried"
        return f"windows around faults: {windows} tried"
