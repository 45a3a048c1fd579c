"""What a workload is, what it is given, and what is there to judge when it is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from coord.client import Client
from jepsen_lite.history.journal import History, HistoryWriter
from jepsen_lite.judge.agreement import Sighting
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.lives import Life
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.judge.watches import Watched

CALL_TIMEOUT_S = 5.0
"""What is not answered by then is in doubt, and its client goes on under another name."""


class JoiningServer(Protocol):
    """A server that runs and is, or may become, a member. Addresses are `host:port`."""

    @property
    def node(self) -> int: ...

    @property
    def peer_address(self) -> str: ...

    @property
    def api_address(self) -> str: ...


class ClusterPort(Protocol):
    """What workloads use of a cluster."""

    @property
    def urls(self) -> list[str]:
        """Of the servers, as clients reach them."""
        ...


class GrowingCluster(ClusterPort, Protocol):
    """One that can be given servers: what has "join" can."""

    async def join_server(self) -> JoiningServer:
        """Start one more server, empty, under a new number, that waits to be made a member."""
        ...

    async def end_server(self, node: int) -> None:
        """End a server that is a member no longer, or never became one; its data goes with it."""
        ...


class Context:
    """A run, as its workload sees it."""

    def __init__(
        self,
        cluster: ClusterPort,
        history: HistoryWriter,
        *,
        directory: Path,
        seed: int,
        rate: float = 50.0,
        run: str = "",
        guest: bool = False,
    ) -> None:
        """`directory` is for the files of workloads and must be reachable by all tasks under this
        path; `rate` is in operations a second of all clients together. `run` tells the names of
        this run from those of earlier runs on the same cluster. `guest`: the cluster is somebody
        else's, and its hosts are left alone."""
        self.cluster = cluster
        self.history = history
        self.directory = directory
        self.seed = seed
        self.rate = rate
        self.run = run
        self.guest = guest
        self.stopping = asyncio.Event()
        """Set when clients are to end. `settle` comes after that, and after healing."""
        self.truth = directory / "truth"
        """For the diaries of ranks."""
        self.never = asyncio.Event()
        """Is never set: what waits for it lets time pass."""

    def rng(self, name: str) -> random.Random:
        """The same for the same seed and name, independent of all others."""
        return random.Random(f"{self.seed}/{name}")

    def open_client(self, actor: str, first: int = 0, *, stale: bool = False) -> Client:
        """A client, to be entered, that asks the servers in turn, beginning with number `first`."""
        urls = self.cluster.urls
        at = first % len(urls)
        rotated = urls[at:] + urls[:at]
        # Clients draw their identity from it. One of an earlier run on the same cluster would be
        # taken for the same client, and be told again what that one was told.
        rng = self.rng(f"client {actor}{self.run}")
        return Client(rotated, actor=actor, timeout_s=CALL_TIMEOUT_S, stale=stale, rng=rng)


class Evidence(msgspec.Struct):
    """All that is left of a run. `judging.gather` collects it."""

    history: History
    log: ExportedLog
    sightings: Sequence[Sighting] = ()
    """What servers said of themselves, during the run and after healing."""
    nodes: Sequence[int] = ()
    """Members at the end."""
    quiet_index: int = 0
    """In the log when all was healed: every member has to come so far."""
    truth: str = ""
    """Directory of the diaries, as the commands of the jobs that keep one name it."""
    lives: Sequence[Life] = ()
    """Every process of a task that kept a diary."""
    alive: Sequence[Life] | None = None
    """Those that lived when all was quiet; None when nobody looked."""
    watched: Sequence[Watched] = ()
    frozen_hosts: frozenset[str] = frozenset()
    """Machines that were stopped whole for a while, agent, keeper and tasks."""
    true_clocks: bool = False
    """No server's clock was skewed, and all ran on one machine."""


class Workload(Protocol):
    """A kind of load. One object serves one run."""

    name: str
    line: str
    """What it does, in a sentence."""
    needs: frozenset[str]
    """Of "agents", "join"."""
    clients: int
    makes: frozenset[str]
    """Checks that have something to look at in every run of it, beside `judging.ALWAYS`: where such
    a one had nothing, its verdict is unknown."""

    async def prepare(self, ctx: Context) -> None:
        """Before the first fault; the cluster is ready."""
        ...

    async def client(self, ctx: Context, number: int) -> None:
        """Ask until `ctx.stopping` is set. `number` counts from 0 to `clients` - 1."""
        ...

    async def settle(self, ctx: Context) -> None:
        """After all clients have ended and everything is healed: wait until it is quiet, take the
        last looks. Returns after a bounded time even if it does not become quiet."""
        ...

    def judge(self, evidence: Evidence) -> list[Judgement]: ...
