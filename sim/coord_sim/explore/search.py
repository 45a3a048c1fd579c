"""The search for an execution that breaks a property, within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

from .conflicts import Conflicts
from .execute import Explored, execute
from .found import Found, Progress, StrategyProgress
from .incident import Incident
from .run import Run
from .schedule import Schedule
from .strategies import ALL, Strategy

__all__ = ["ALL", "AS_RECORDED", "Found", "Progress", "StrategyProgress", "search"]

AS_RECORDED = "as recorded"
"""The strategy of a finding that needs no change."""
PROGRESS_EVERY = 50
"""Executions between two reports of progress."""

Clock = Callable[[], float]


def search(
    incident: Incident | Explored,
    *,
    budget_s: float,
    seed: int,
    strategies: Sequence[type[Strategy]] = ALL,
    on_progress: Callable[[Progress], None] | None = None,
    clock: Clock = time.process_time,
) -> Iterator[Found]:
    """Execute one schedule after the other for `budget_s` CPU seconds, and yield those that break
    a property which the log as it is does not break.

    Each strategy has its share; what it leaves over goes to the next. With a budget of 0 only the
    log itself is replayed, and `Progress.note` says so. The same seed tries the same schedules in
    the same order; how many of them depends on the machine.
    """
    explored = Explored(incident) if isinstance(incident, Incident) else incident
    return _Search(explored, budget_s, seed, strategies, on_progress, clock).run()


class _Tally:
    """How one strategy does."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.found = 0
        self.cpu_s = 0.0
        self.share_s = 0.0
        self.finished = False
        self.shares = [0] * 1_001
        """How many executions used so many thousandths of the log."""

    def count(self, run: Run, size: int) -> None:
        self.shares[min(run.consumed * 1_000 // size, 1_000)] += 1

    def progress(self) -> StrategyProgress:
        tried = sum(self.shares)
        return StrategyProgress(
            self.strategy.name,
            tried,
            self.found,
            self.cpu_s,
            self.share_s,
            self._at(tried // 2) if tried else 0,
            self._at(0) if tried else 0,
            self.strategy.bound(self.finished) if self.share_s else "",
            self.finished,
        )

    def _at(self, rank: int) -> int:
        """The share of the execution with this rank, ascending."""
        for share, count in enumerate(self.shares):
            rank -= count
            if rank < 0:
                return share
        return 1_000


class _Search:
    def __init__(
        self,
        explored: Explored,
        budget_s: float,
        seed: int,
        strategies: Sequence[type[Strategy]],
        on_progress: Callable[[Progress], None] | None,
        clock: Clock,
    ) -> None:
        self.explored = explored
        self.budget_s = max(budget_s, 0.0)
        self.on_progress = on_progress
        self.clock = clock
        self.begun_s = clock()
        conflicts = Conflicts(explored)
        self.tallies = [
            _Tally(strategy(explored, conflicts, Random(f"{seed}/{strategy.name}")))
            for strategy in strategies
        ]
        self.schedules = 0
        self.known = ""
        """The property that the log as it is breaks."""

    def run(self) -> Iterator[Found]:
        as_recorded = execute(self.explored, Schedule())
        self.schedules += 1
        if as_recorded.violation is not None:
            self.known = as_recorded.violation.sentence
            yield self._found(Schedule(), as_recorded, AS_RECORDED)
        if not self.budget_s:
            self._tell("no budget: the log was replayed as it is, and nothing else was tried")
            return
        shares = [tally.strategy.share for tally in self.tallies]
        for at, tally in enumerate(self.tallies):
            left_s = max(self.budget_s - self._spent_s(), 0.0)
            tally.share_s = left_s * shares[at] / sum(shares[at:])
            yield from self._try(tally)
            self._tell()

    def _spent_s(self) -> float:
        return self.clock() - self.begun_s

    def _try(self, tally: _Tally) -> Iterator[Found]:
        begun_s = self.clock()
        size = self.explored.recording.size
        for schedule in tally.strategy.schedules():
            run = execute(self.explored, schedule)
            self.schedules += 1
            tally.count(run, size)
            tally.cpu_s = self.clock() - begun_s
            if run.violation is not None and run.violation.sentence != self.known:
                tally.found += 1
                yield self._found(schedule, run, tally.strategy.name)
            if self.schedules % PROGRESS_EVERY == 0:
                self._tell()
            if tally.cpu_s >= tally.share_s:
                return
        tally.finished = True

    def _found(self, schedule: Schedule, run: Run, strategy: str) -> Found:
        return Found(schedule, run, strategy, self.schedules, self._spent_s())

    def _tell(self, note: str = "") -> None:
        if self.on_progress is not None:
            told = tuple(tally.progress() for tally in self.tallies)
            spent_s = self._spent_s()
            self.on_progress(Progress(told, self.schedules, spent_s, self.budget_s, note))
