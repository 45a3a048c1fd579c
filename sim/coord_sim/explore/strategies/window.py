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
    """All windows in turn, one more fault and order of each, so that a short budget sees every
    part of the log."""

    name = "windows around faults"
    share = 0.1
    _begun = 0
    _done = 0

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        size = self.explored.recording.size
        starts = list(range(max(size - WIDTH + 1, 1)))
        self.rng.shuffle(starts)
        left = [self._window(start) for start in starts]
        while left:
            going = []
            for window in left:
                changes = next(window, None)
                if changes is None:
                    self._done += 1
                    continue
                yield changes
                going.append(window)
            left = going

    def _window(self, start: int) -> Iterator[tuple[AnyChange, ...]]:
        """Every order of the events there with every fault before them, mixed."""
        end = min(start + WIDTH, self.explored.recording.size)
        orders = list(every_order(self.explored, range(start, end)))
        faults = SingleFaults(self.explored, self.conflicts, self.rng)
        both = [(order, fault) for fault in faults.at(start) for order in orders]
        self.rng.shuffle(both)
        self._begun += 1
        yield from both

    def bound(self, finished: bool) -> str:
        done = f"{self._done} windows of {WIDTH} events"
        if finished:
            return f"windows around faults: all {done} tried"
        return f"windows around faults: {done} tried, {self._begun - self._done} others in part"
