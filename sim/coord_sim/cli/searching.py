"""The search that `coordctl sim explore` runs: by time, or by a number of schedules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from coord_sim.explore.execute import Explored, execute
from coord_sim.explore.exploration import Asked, Search
from coord_sim.explore.found import Found, Progress, StrategyProgress
from coord_sim.explore.incident import Incident
from coord_sim.explore.order import PartialOrder
from coord_sim.explore.run import Run
from coord_sim.explore.schedule import Schedule
from coord_sim.explore.search import search
from coord_sim.explore.strategies import ALL, Strategy
from coord_sim.explore.strategies.orders import LONGEST
from coord_sim.explore.strategies.pct import Pct
from coord_sim.explore.strategies.pos import PartialOrderSampling
from coord_sim.explore.strategies.walk import RandomWalk

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name.replace(" ", "-"): strategy for strategy in ALL
}
"""By the name to be given on the command line, in the order in which they are tried."""


RANDOM_ORDERS = (PartialOrderSampling, Pct, RandomWalk)
"""They draw until they find another order, so there must be one."""


def searching(incident: Incident, asked: Asked, strategies: tuple[str, ...]) -> Search:
    """The search that was asked for; without strategies, with all of them."""
    chosen = [
        strategy for name, strategy in STRATEGIES.items() if not strategies or name in strategies
    ]
    note = ""
    if not another_order(incident):
        chosen = [strategy for strategy in chosen if strategy not in RANDOM_ORDERS]
        note = "No two neighbours could have come the other way round: no order is drawn at random."
    return _Searching(incident, asked, chosen, note)


def another_order(incident: Incident) -> bool:
    """Whether there is a stretch, as random orders are drawn of, that nothing orders wholly."""
    order = PartialOrder(incident)
    return any(order.concurrent_after(at, LONGEST - 1) for at in range(len(incident.records)))


class Executions:
    """Executes schedules of one incident after the other, each made ready once."""

    def __init__(self) -> None:
        self._explored: Explored | None = None

    def __call__(self, incident: Incident, schedule: Schedule) -> Run:
        if self._explored is None or self._explored.incident is not incident:
            self._explored = Explored(incident)
        return execute(self._explored, schedule)


class _Searching:
    def __init__(
        self, incident: Incident, asked: Asked, strategies: list[type[Strategy]], note: str
    ) -> None:
        self._incident = incident
        self._asked = asked
        self._strategies = strategies
        self._taken = 0
        self._progress = Progress(tuple(StrategyProgress(strategy.name) for strategy in strategies))
        self._note = note

    def run(self, tick: Callable[[], None]) -> Iterator[Found]:
        def told(progress: Progress) -> None:
            self._progress = progress
            tick()

        asked = self._asked
        if asked.schedules is not None:
            # Time is counted in schedules, so that the same seed tries the same everywhere.
            return search(
                self._incident,
                budget_s=float(asked.schedules),
                seed=asked.seed,
                strategies=[self._counted(strategy) for strategy in self._strategies],
                on_progress=told,
                clock=lambda: float(self._taken),
            )
        return search(
            self._incident,
            budget_s=asked.budget_s or 0.0,
            seed=asked.seed,
            strategies=self._strategies,
            on_progress=told,
            clock=time.monotonic,
        )

    def progress(self) -> Progress:
        told = self._progress
        return replace(told, note=self._note) if self._note and not told.note else told

    def _counted(self, strategy: type[Strategy]) -> type[Strategy]:
        """The same strategy; every schedule taken of it moves the clock by one."""
        taking = self

        class Counted(strategy):  # type: ignore[valid-type, misc]
            def schedules(self) -> Iterator[Schedule]:
                for schedule in super().schedules():
                    taking._taken += 1
                    yield schedule

        return Counted
