"""A search that tries every single flip, without any simulation of what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coord_sim.explore.found import Found, Progress, StrategyProgress
from coord_sim.explore.incident import Incident
from coord_sim.explore.order import PartialOrder
from coord_sim.explore.schedule import Flip, Schedule

from .planted import execute_orders


class FlipSearch:
    """Every flip of two events that nothing orders, up to a number of schedules."""

    def __init__(self, incident: Incident, schedules: int = 1_000, stop_after: int = 0) -> None:
        self._incident = incident
        self._limit = schedules
        self._stop_after = stop_after
        self._tried = 0
        self._found = 0

    def run(self, tick: Callable[[], None]) -> Iterator[Found]:
        order = PartialOrder(self._incident)
        for first in range(len(self._incident.records)):
            for second in order.concurrent_after(first, 30):
                if self._tried >= self._limit:
                    return
                if self._stop_after and self._tried >= self._stop_after:
                    raise KeyboardInterrupt
                self._tried += 1
                schedule = Schedule((Flip(first, second),))
                run = execute_orders(self._incident, schedule)
                tick()
                if run.violation is not None:
                    self._found += 1
                    yield Found(schedule, run, "single flips", self._tried, 0.0)

    def progress(self) -> Progress:
        one = StrategyProgress(
            "single flips", self._tried, self._found, 0.0, consumed_median=500, consumed_min=100
        )
        note = "" if self._limit else "There is no budget: the log was replayed and no more."
        return Progress((one,), self._tried, note=note)
