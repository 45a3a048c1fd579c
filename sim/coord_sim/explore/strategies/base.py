"""What a strategy is: a name, a share of the budget, and schedules one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from random import Random
from typing import ClassVar

from coord_sim.explore.conflicts import Conflicts
from coord_sim.explore.execute import Explored
from coord_sim.explore.schedule import AnyChange, Schedule


class Strategy(ABC):
    """Yields schedules until it has no more. Everything random comes from `rng`."""

    name: ClassVar[str]
    share: ClassVar[float]
    """Of the whole budget, before what others leave over."""

    def __init__(self, explored: Explored, conflicts: Conflicts, rng: Random) -> None:
        self.explored = explored
        self.conflicts = conflicts
        self.rng = rng
        self.tried = 0

    def schedules(self) -> Iterator[Schedule]:
        """Each is counted in `tried` as it is taken."""
        for changes in self.choose():
            self.tried += 1
            yield Schedule(changes)

    @abstractmethod
    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        """The changes of one schedule after the other."""

    @abstractmethod
    def bound(self, finished: bool) -> str:
        """What was tried completely, or how far it came, in words."""
