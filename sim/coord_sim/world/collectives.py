"""What the ranks of a gang have among themselves: nobody ends a step before all have come to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class CollectiveTimeout(Exception):
    """Somebody did not come; which one, the others cannot tell."""


class Collective:
    """One generation of one gang. Ranks count from 0."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._here: dict[int, dict[int, _Arrival]] = {}

    async def meet(
        self, step: int, rank: int, is_reachable: Callable[[], bool], timeout_s: float
    ) -> None:
        """Return once every rank has come to this step over a network that carries. Raises
        CollectiveTimeout."""
        arrival = _Arrival(is_reachable, asyncio.get_running_loop().create_future())
        self._here.setdefault(step, {})[rank] = arrival
        self._look_at(step)
        try:
            async with asyncio.timeout(timeout_s):
                await arrival.together
        except TimeoutError:
            raise CollectiveTimeout(f"step {step}: collective time-out") from None
        finally:
            self._here.get(step, {}).pop(rank, None)

    def left(self, rank: int) -> None:
        """The rank is no more; what it had come to does not count."""
        for arrivals in self._here.values():
            arrivals.pop(rank, None)

    def look(self) -> None:
        """The network may carry again."""
        for step in list(self._here):
            self._look_at(step)

    def _look_at(self, step: int) -> None:
        arrivals = self._here[step]
        if len(arrivals) < self.size or not all(one.is_reachable() for one in arrivals.values()):
            return
        del self._here[step]
        for rank in sorted(arrivals):
            if not arrivals[rank].together.done():
                arrivals[rank].together.set_result(None)


class _Arrival:
    def __init__(self, is_reachable: Callable[[], bool], together: asyncio.Future[None]) -> None:
        self.is_reachable = is_reachable
        self.together = together
