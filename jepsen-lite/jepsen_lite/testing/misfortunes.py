"""Misfortunes by name, begun and ended by a test, or let loose for the length of a block."""

from __future__ import annotations

import abc
import asyncio
import functools
import random
import time
from concurrent.futures import Future
from types import TracebackType
from typing import Self, cast

import pytest

from jepsen_lite.cluster.attached import Attached
from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.history.operation import Fault
from jepsen_lite.nemeses.catalogue import chosen
from jepsen_lite.nemeses.conductor import Conductor
from jepsen_lite.nemeses.port import Misfortune, Nemesis
from jepsen_lite.run.abilities import Abilities, abilities_here
from jepsen_lite.run.attached import lacking_for
from jepsen_lite.testing.background import Background
from jepsen_lite.testing.clusters import ClusterFactory, RunningCluster
from jepsen_lite.testing.recording import SharedHistory

DRAW_S = 20.0
POLL_S = 0.1
END_S = 90.0


@functools.cache
def _abilities(network: str, hosts: bool) -> Abilities:
    """Found by trying, which takes a while."""
    return abilities_here(network, int(hosts))


class NobodyToBefall(AssertionError):
    """There was no leader, no running job or whoever else it takes, for as long as it was tried."""


class Block(abc.ABC):
    """Something that goes on in the background for a while: `with` or `async with`, or by hand."""

    def __init__(self, background: Background) -> None:
        self._background = background

    def begin(self) -> Self:
        """Returns once it has begun."""
        self._background.run(self._begin())
        return self

    def end(self) -> None:
        """Take it back. Idempotent."""
        self._background.run(self._end())

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        await self._background.wait(self._begin())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._background.wait(self._end())

    @abc.abstractmethod
    async def _begin(self) -> None: ...

    @abc.abstractmethod
    async def _end(self) -> None: ...


class ByHand(Block):
    """One draw of one nemesis. It lasts until it is ended, whatever the nemesis would draw."""

    def __init__(
        self,
        background: Background,
        cluster: Cluster,
        history: SharedHistory,
        nemesis: Nemesis,
        rng: random.Random,
    ) -> None:
        super().__init__(background)
        self._cluster = cluster
        self._history = history
        self._nemesis = nemesis
        self._rng = rng
        self._misfortune: Misfortune | None = None
        self._fault: Fault | None = None

    @property
    def what(self) -> str:
        """What happened, in words; empty before it began."""
        return self._misfortune.what if self._misfortune else ""

    @property
    def targets(self) -> tuple[str, ...]:
        """To whom."""
        return self._misfortune.targets if self._misfortune else ()

    async def _begin(self) -> None:
        if self._fault is not None:
            raise RuntimeError(f"{self._nemesis.name} was begun before; ask for another one")
        deadline = time.monotonic() + DRAW_S
        while (misfortune := await self._nemesis.draw(self._cluster, self._rng)) is None:
            if time.monotonic() > deadline:
                raise NobodyToBefall(
                    f"{self._nemesis.name} found nobody within {DRAW_S:g} s: {self._nemesis.line}"
                )
            await asyncio.sleep(POLL_S)
        self._misfortune = misfortune
        self._fault = self._history.fault(self._nemesis.name, misfortune.what, misfortune.targets)
        await misfortune.begin()

    async def _end(self) -> None:
        if self._misfortune is None or self._fault is None or self._fault.ended_ns:
            return
        await self._misfortune.end()
        self._history.fault_ended(self._fault)


class Loose(Block):
    """Nemeses that draw one misfortune after the other from the seed, side by side."""

    def __init__(
        self, background: Background, conductor: Conductor, history: SharedHistory
    ) -> None:
        super().__init__(background)
        self._conductor = conductor
        self._history = history
        self._stopping: asyncio.Event | None = None
        self._running: Future[None] | None = None
        self._first = 0
        self._last: int | None = None

    @property
    def faults(self) -> list[Fault]:
        """What happened within the block, so far."""
        return self._history.faults[self._first : self._last]

    async def _begin(self) -> None:
        self._first = len(self._history.faults)
        self._stopping = asyncio.Event()
        self._running = self._background.start(self._conductor.run(self._stopping))

    async def _end(self) -> None:
        if self._stopping is None or self._running is None:
            return
        self._stopping.set()
        try:
            async with asyncio.timeout(END_S):
                await asyncio.wrap_future(self._running)
        finally:
            self._running = None
            self._last = len(self._history.faults)


class Nemeses:
    """The fixture `nemesis`."""

    def __init__(
        self, background: Background, factory: ClusterFactory, history: SharedHistory, seed: int
    ) -> None:
        self._background = background
        self._factory = factory
        self._history = history
        self._rng = random.Random(f"{seed}/test")
        self._blocks: list[Block] = []

    def __call__(self, nemesis: str | Nemesis, cluster: RunningCluster | None = None) -> ByHand:
        """One misfortune of a nemesis of `coordctl faults list`, or one of your own:
        `with nemesis("isolate-leader"):`, `async with`, or `begin()` and `end()`. The cluster is
        the newest of the test. What the machine cannot do skips the test, with the reason."""
        several = self._possible(nemesis, cluster)
        if len(several) != 1:
            raise ValueError(
                f"{nemesis!r} is not one nemesis; let several loose with nemesis.loose"
            )
        one = several[0]
        rng = random.Random(self._rng.getrandbits(64))
        block = ByHand(self._background, self._cluster(cluster), self._history, one, rng)
        self._blocks.append(block)
        return block

    def loose(self, nemeses: str, cluster: RunningCluster | None = None) -> Loose:
        """All that `kill-leader+slow` names, for the length of the block, from the seed."""
        several = self._possible(nemeses, cluster)
        target = self._cluster(cluster)
        conductor = Conductor(target, self._history, several, self._rng.getrandbits(63))
        block = Loose(self._background, conductor, self._history)
        self._blocks.append(block)
        return block

    def end_all(self) -> None:
        """What the test did not end itself, newest first."""
        while self._blocks:
            self._blocks.pop().end()

    def _cluster(self, cluster: RunningCluster | None) -> Cluster:
        if cluster is None:
            if not self._factory.made:
                raise RuntimeError(
                    "there is no cluster to befall: let the test use coord_cluster, or make one "
                    "with coord_cluster_factory"
                )
            cluster = self._factory.made[-1]
        # Nemeses use of a cluster what both kinds have.
        return cast(Cluster, cluster.cluster)

    def _possible(
        self, nemesis: str | Nemesis, cluster: RunningCluster | None
    ) -> tuple[Nemesis, ...]:
        several = chosen(nemesis) if isinstance(nemesis, str) else (nemesis,)
        target = self._cluster(cluster)
        for one in several:
            if isinstance(target, Attached):
                reasons = lacking_for(target, one.name)
            else:
                reasons = _abilities(target.network.name, bool(target.hosts)).against(one.needs)
            if reasons:
                pytest.skip(f"{one.name} is not possible here: {'; '.join(reasons)}")
        return several
