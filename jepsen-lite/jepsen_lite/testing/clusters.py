"""A cluster of real processes for a test, or somebody else's, which blocks or can be awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coord.client import Client, SyncClient
from coord.model.settings import Settings
from jepsen_lite.cluster.attached import Attached
from jepsen_lite.cluster.cluster import CLUSTER_ID, QUICK, Cluster
from jepsen_lite.cluster.processes import Host, Role
from jepsen_lite.judge.findings import said
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.network.port import Network
from jepsen_lite.run.artefacts import keep
from jepsen_lite.run.attached import heal_attached
from jepsen_lite.run.healing import heal
from jepsen_lite.testing.background import Background
from jepsen_lite.testing.recording import SharedHistory
from jepsen_lite.testing.verdicts import assert_holds
from jepsen_lite.workloads.judging import gather, judge_common
from jepsen_lite.workloads.port import Context

HEALED = "once everything is healed, every server and agent comes back"
READY_S = 120.0
"""Of a machine with more to do than it can."""


class RunningCluster:
    """Started and ready. Its methods block, and may be called from any thread; a test that must not
    block awaits them through `asyncio.to_thread`, or uses `cluster`, which is async."""

    def __init__(
        self,
        background: Background,
        cluster: Cluster | Attached,
        directory: Path,
        history: SharedHistory,
        seed: int,
    ) -> None:
        self.cluster = cluster
        self.directory = directory
        """Of `logs`, a file for each server and agent, and once it was judged of incident.log and
        evidence.json, with which `coordctl faults judge` judges it again."""
        self.seed = seed
        self.judge_at_end = False
        self._background = background
        self._history = history

    @property
    def urls(self) -> list[str]:
        """Of the servers, as clients reach them."""
        return self.cluster.urls

    @property
    def servers(self) -> Mapping[str, Any]:
        """By name: `s1`, `s2`, ...; each can `kill`, `start`, `pause`, `resume`."""
        return self.cluster.servers

    @property
    def hosts(self) -> Mapping[str, Any]:
        """By name: `h1`, `h2`, ...; likewise, and `kill_all`."""
        return self.cluster.hosts

    @property
    def network(self) -> Network:
        return self.cluster.network

    def client(
        self, actor: str = "test", *, timeout_s: float = 10.0, stale: bool = False
    ) -> Client:
        """An async client, not yet opened."""
        return self.cluster.client(actor, timeout_s=timeout_s, stale=stale)

    def sync_client(
        self, actor: str = "test", *, timeout_s: float = 10.0, stale: bool = False
    ) -> SyncClient:
        """A blocking client, not yet opened."""
        cluster = "" if isinstance(self.cluster, Attached) else CLUSTER_ID
        return SyncClient(self.urls, actor=actor, cluster=cluster, timeout_s=timeout_s, stale=stale)

    def leader(self, timeout_s: float = 10.0) -> str | None:
        """The name of the server that leads; None when nobody does within the time."""
        return self._background.run(self.cluster.leader(timeout_s))

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Until every server that runs answers and every host whose agent runs is up."""
        self._background.run(self.cluster.wait_ready(timeout_s))

    def heal(self) -> None:
        """End every misfortune, start what does not run, wait until all is well. Raises Violated
        when something does not come back."""
        assert_holds([self._healed(self._background.run(self._heal()))])

    def judge(self) -> list[Judgement]:
        """Heal, wait until it is quiet, and judge: the exported log, the state machine's
        invariants, the digests of all servers, the order of whatever the history holds with an
        index. Raises Violated."""
        return assert_holds(self._background.run(self._judge()))

    async def _heal(self) -> list[str]:
        if isinstance(self.cluster, Attached):
            return await heal_attached(self.cluster)
        return await heal(self.cluster)

    def _healed(self, trouble: Sequence[str]) -> Judgement:
        return said(HEALED, trouble, len(self.servers) + len(self.hosts), "servers and hosts")

    async def _judge(self) -> list[Judgement]:
        trouble = await self._heal()
        self._history.mark("quiet")
        context = Context(
            self.cluster,
            self._history,
            directory=self.directory,
            seed=self.seed,
            guest=isinstance(self.cluster, Attached),
        )
        evidence = await gather(context, self._history.recorded())
        told = [self._healed(trouble)]
        await asyncio.to_thread(keep, evidence, told, self.directory)
        return [*told, *await asyncio.to_thread(judge_common, evidence)]


class ClusterFactory:
    """Makes clusters that end with the test."""

    def __init__(
        self,
        background: Background,
        directory: Path,
        history: SharedHistory,
        seed: int,
        tell: Callable[[str], object],
    ) -> None:
        self.made: list[RunningCluster] = []
        self._background = background
        self._directory = directory
        self._history = history
        self._seed = seed
        self._tell = tell

    def __call__(
        self,
        *,
        servers: int = 3,
        hosts: int = 1,
        devices: int = 1,
        settings: Settings | Mapping[str, int] = QUICK,
        network: str = "proxied",
        agent: Sequence[str] = (),
        attach: Sequence[str] = (),
        hooks: str | Path = "",
        judge: bool = False,
        **options: Any,
    ) -> RunningCluster:
        """A cluster that is started and ready.

        `settings` are the cluster's, or those that differ from the suite's short times. `network`
        is `proxied`, which can be broken in every way and needs no rights, `namespaces` or `auto`.
        `agent` is the command of an agent of your own for every host, in place of `coordctl agent`,
        with {host}, {data}, {address}, {servers} (URLs with commas) and {cluster} in its words; it
        has to bring its host up. `attach` and `hooks` use a cluster that runs already instead.
        `judge` judges it in the end, as `RunningCluster.judge` does. `options` are more of
        `jepsen_lite.Cluster`.
        """
        directory = self._directory
        if self.made:
            directory = directory / f"cluster-{len(self.made) + 1}"
            directory.mkdir()
        cluster: Cluster | Attached
        if attach or hooks:
            cluster = Attached(attach, hooks=Path(hooks) if hooks else None)
        else:
            cluster = Cluster(
                directory,
                servers=servers,
                hosts=0 if agent else hosts,
                devices=devices,
                settings=_settings(settings),
                network=network,
                seed=self._seed,
                tell=self._tell,
                **options,
            )
        self._background.run(_begin(cluster, agent, hosts))
        running = RunningCluster(self._background, cluster, directory, self._history, self._seed)
        running.judge_at_end = judge
        self.made.append(running)
        return running

    def judge_what_was_asked_for(self) -> None:
        """Once."""
        for running in self.made:
            if running.judge_at_end:
                running.judge_at_end = False
                running.judge()

    def close(self) -> None:
        """End them all. Raises what would not end."""
        problems: list[Exception] = []
        while self.made:
            try:
                self._background.run(self.made.pop().cluster.stop())
            except Exception as error:
                problems.append(error)
        if problems:
            raise ExceptionGroup("not all clusters of the test ended well", problems)


def _settings(given: Settings | Mapping[str, int]) -> Settings:
    if isinstance(given, Settings):
        return given
    unknown = sorted(set(given) - set(Settings.__struct_fields__))
    if unknown:
        known = ", ".join(Settings.__struct_fields__)
        raise ValueError(f"there is no setting {unknown[0]!r}; there are {known}")
    return msgspec.structs.replace(QUICK, **given)


async def _begin(cluster: Cluster | Attached, agent: Sequence[str], hosts: int) -> None:
    await cluster.__aenter__()
    try:
        if agent and isinstance(cluster, Cluster):
            for number in range(1, hosts + 1):
                await asyncio.to_thread(_settle_host, cluster, f"h{number}", agent)
        await cluster.start()
        await cluster.wait_ready(READY_S)
    except BaseException:
        await cluster.stop()
        raise


def _settle_host(cluster: Cluster, name: str, agent: Sequence[str]) -> None:
    """A machine of the cluster whose agent is somebody else's program."""
    place = cluster.network.add(name)
    assert cluster.disks is not None
    disk = cluster.disks.open(name)

    def command() -> list[str]:
        places = {
            "host": name,
            "data": os.fspath(disk.directory),
            "address": place.listens,
            "servers": ",".join(cluster.urls),
            "cluster": CLUSTER_ID,
        }
        return [word.format(**places) for word in agent]

    log = cluster.directory / "logs" / f"{name}.log"
    cluster.hosts[name] = Host(place, disk, Role(command, dict, log, cluster.mark))
