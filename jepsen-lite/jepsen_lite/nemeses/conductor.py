"""Lets nemeses loose on a cluster while it works, side by side, and takes back what they did."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable

from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.history.journal import HistoryWriter
from jepsen_lite.nemeses.port import Misfortune, Nemesis

TURN_S = 1.0
"""A beginning or an end that takes longer, or hangs, holds up no other's end."""


class Conductor:
    """Draws from the seed and a nemesis's name: one nemesis more shifts no other's draws."""

    def __init__(
        self, cluster: Cluster, history: HistoryWriter, nemeses: Iterable[Nemesis], seed: int
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._nemeses = tuple(nemeses)
        self._seed = seed
        self._acting = asyncio.Lock()
        """Two misfortunes overlap, but their beginnings and ends do not as a rule: each finds the
        processes as it expects them. An end waits TURN_S for its turn and no longer."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set; then every misfortune under way is ended."""
        async with asyncio.TaskGroup() as group:
            for nemesis in self._nemeses:
                group.create_task(self._repeat(nemesis, stopping))

    async def _repeat(self, nemesis: Nemesis, stopping: asyncio.Event) -> None:
        rng = random.Random(f"{self._seed}/nemesis/{nemesis.name}")
        while not await _passes(stopping, min(rng.expovariate(1 / nemesis.gap_s), 5.0)):
            misfortune = await nemesis.draw(self._cluster, rng)
            if misfortune is not None and not stopping.is_set():
                await self._befall(nemesis, misfortune, stopping)

    async def _befall(
        self, nemesis: Nemesis, misfortune: Misfortune, stopping: asyncio.Event
    ) -> None:
        fault = self._history.fault(nemesis.name, misfortune.what, misfortune.targets)
        try:
            async with self._acting:
                await misfortune.begin()
            await _passes(stopping, misfortune.lasts_s)
        finally:
            await self._end(misfortune)
            self._history.fault_ended(fault)

    async def _end(self, misfortune: Misfortune) -> None:
        its_turn = True
        try:
            async with asyncio.timeout(TURN_S):
                await self._acting.acquire()
        except TimeoutError:
            its_turn = False
        try:
            await misfortune.end()
        finally:
            if its_turn:
                self._acting.release()


async def _passes(stopping: asyncio.Event, seconds: float) -> bool:
    """Let time pass; true as soon as it is time to stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return stopping.is_set()
