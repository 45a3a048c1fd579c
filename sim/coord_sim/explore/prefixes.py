"""Beginnings that schedules share. Whoever begins as another one did goes on from where the two
part, and whoever is the same as another one from beginning to end is not executed at all.

What happens up to some place of a script's sequence depends on where the script begins, on the
elections in it, and on the steps until then; nothing that comes later reaches back.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from .changes import Script

STEPS_LIMIT = 150_000
"""Steps that are remembered of one incident."""
KEPT_LIMIT = 1_000
"""Executions that are kept to go on from; of a larger fleet, as many fewer as it is larger."""
HOSTS = 16
"""Of a fleet of which so many are kept."""

Kept = TypeVar("Kept")


class Trail:
    """The steps of one script, and how far others took them."""

    __slots__ = ("consumed", "depth", "size", "steps")

    def __init__(self, steps: list[int], size: int, depth: int, consumed: int) -> None:
        self.steps = steps
        """Their numbers, after one that stands for where the script begins. Not all of them where
        too many were noted already."""
        self.size = size
        """How many steps it has."""
        self.depth = depth
        """How many of them, from the first on, somebody else took as well."""
        self.consumed = consumed
        """How many of the log's entries were used as they were by whoever took all of them and
        came to a good end; -1 where nobody did."""

    def parting(self, begun: int) -> int:
        """The step after which it leaves the way of others, when it begins after so many steps; 0
        where it leaves none."""
        return self.depth if begun < self.depth < self.size else 0


class Prefixes(Generic[Kept]):
    """Of one incident."""

    def __init__(self, hosts: int) -> None:
        self._steps: dict[tuple[int, Hashable], int] = {}
        """(number of the step before, step) -> number."""
        self._kept: dict[int, Kept] = {}
        """By the number of the step just taken; what was not used for longest comes first."""
        self._limit = max(KEPT_LIMIT * HOSTS // max(hosts, HOSTS), 1)
        self._ends: dict[int, int] = {}
        """Number of a script's last step -> what whoever ended well after it consumed."""

    def trail(self, script: Script) -> Trail:
        """The way of a script, which is noted for those that come after it."""
        known = self._steps
        at = known.setdefault((-1, (script.first, *script.elections)), len(known))
        steps = [at]
        depth = 0
        for step in _steps(script):
            found = known.get((at, step))
            if found is not None:
                depth += 1
            elif len(known) < STEPS_LIMIT:
                found = known[at, step] = len(known)
            else:
                break
            steps.append(found)
            at = found
        size = len(script.sequence)
        return Trail(steps, size, depth, self._ends.get(at, -1) if depth == size else -1)

    def ended(self, trail: Trail, consumed: int) -> None:
        """Whoever took these steps came to a good end."""
        if len(trail.steps) > trail.size:
            self._ends[trail.steps[-1]] = consumed

    def nearest(self, trail: Trail) -> tuple[int, Kept | None]:
        """(how many steps it took, the execution that is kept farthest on the way), if any."""
        kept = self._kept
        for depth in range(trail.depth, 0, -1):
            found = kept.pop(trail.steps[depth], None)
            if found is not None:
                kept[trail.steps[depth]] = found
                return depth, found
        return 0, None

    def keep(self, step: int, execution: Kept) -> None:
        """Keep an execution that just took this step; it must never change from here on."""
        kept = self._kept
        if len(kept) >= self._limit:
            del kept[next(iter(kept))]
        kept[step] = execution


def _steps(script: Script) -> list[Hashable]:
    """What happens at each place of the sequence: mostly, an event arrives."""
    steps: list[Hashable] = [*script.sequence]
    if not (script.before or script.dropped or script.after or script.copies):
        return steps
    for at, position in enumerate(script.sequence):
        strikes = (
            tuple(script.before.get(position, ())),
            position in script.dropped,
            tuple(script.after.get(position, ())),
            tuple(script.copies.get(position, ())),
        )
        if strikes != _NOTHING:
            steps[at] = (position, *strikes)
    return steps


_NOTHING = ((), False, (), ())
