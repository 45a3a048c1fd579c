"""A run from its first process to its judgement. Everything it saw is kept in one folder."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from coord import __version__
from coord.client.errors import CoordError
from jepsen_lite.cluster.attached import Attached
from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.history.journal import History, HistoryWriter
from jepsen_lite.judge.agreement import Sighting
from jepsen_lite.judge.findings import said
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.nemeses.catalogue import chosen
from jepsen_lite.nemeses.conductor import Conductor
from jepsen_lite.report.wording import is_bad
from jepsen_lite.run.again import judge_evidence
from jepsen_lite.run.artefacts import HISTORY, VERDICT, keep
from jepsen_lite.run.attached import attached_to, heal_attached, leave_nothing, new_run
from jepsen_lite.run.figures import Figures, figures_of
from jepsen_lite.run.halts import HALTED, halts, server_logs
from jepsen_lite.run.healing import heal
from jepsen_lite.run.options import RunOptions, Stage
from jepsen_lite.workloads.catalogue import workloads_named
from jepsen_lite.workloads.judging import gather, sight
from jepsen_lite.workloads.port import Context

HEALED = "once everything is healed, every server and agent comes back"
LOAD = "every client works to the end"
READY_S = 60.0
CLIENTS_END_S = 60.0
LEADER_S = 10.0
AGAIN_S = 3.0
SIGHT_EVERY_S = 1.0
TELL_EVERY_S = 0.5
CLOCKS = "clock"
DAMAGE = "damage"
NOBODY_LEADS = "nobody leads"

log = structlog.get_logger()


class Report(msgspec.Struct):
    """How a run ended. Written as verdict.json into its folder."""

    options: RunOptions
    repeat: str
    version: str
    figures: Figures
    judgements: list[Judgement]
    directory: str
    seconds: float
    """From the first process to the judgement."""

    @property
    def broken(self) -> list[Judgement]:
        """What did not hold, or could not be decided."""
        return [one for one in self.judgements if is_bad(one)]


async def run(
    options: RunOptions, directory: Path, tell: Callable[[Stage], object] = lambda _: None
) -> Report:
    """Run and judge. `directory` is made, and must not hold a run. Cancelled, it ends everything it
    started and keeps what was recorded."""
    await asyncio.to_thread(directory.mkdir, parents=True)
    began = time.monotonic()
    facts = {"version": __version__, **msgspec.to_builtins(options)}
    if options.attached:
        facts["run"] = new_run()
    history = HistoryWriter(directory / HISTORY, facts)
    try:
        tell(Stage("starting"))
        async with _cluster_of(options, directory) as cluster:
            await cluster.start()
            await cluster.wait_ready(READY_S)
            course = _Course(options, cluster, directory, history, facts, tell)
            judgements = await course.follow()
    finally:
        history.close()
    recorded = _recorded(history, facts)
    report = Report(
        options=options,
        repeat=options.command(),
        version=__version__,
        figures=figures_of(recorded),
        judgements=judgements,
        directory=str(directory),
        seconds=time.monotonic() - began,
    )
    (directory / VERDICT).write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return report


def _cluster_of(options: RunOptions, directory: Path) -> Cluster | Attached:
    """Not yet entered: one of our own, or somebody else's."""
    if options.attached:
        return attached_to(options)
    needs = frozenset(
        need.partition(".")[2]
        for nemesis in chosen(options.nemesis)
        for need in nemesis.needs
        if need.startswith("network.")
    )
    return Cluster(
        directory,
        servers=options.servers,
        hosts=options.hosts,
        devices=options.devices,
        snapshot_entries=options.snapshot_entries,
        network=options.network,
        needs=needs,
        seed=options.seed,
        coordctl=options.coordctl,
    )


def _recorded(history: HistoryWriter, facts: dict[str, Any]) -> History:
    return History(facts, history.operations, history.faults, history.marks)


class _Course:
    """What happens while the cluster runs."""

    def __init__(
        self,
        options: RunOptions,
        cluster: Cluster | Attached,
        directory: Path,
        history: HistoryWriter,
        facts: dict[str, Any],
        tell: Callable[[Stage], object],
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.directory = directory
        self.history = history
        self.facts = facts
        self.workloads = workloads_named(options.workload)
        self.tell = tell
        self.ctx = Context(
            cluster,
            history,
            directory=directory,
            seed=options.seed,
            rate=options.rate,
            run=facts.get("run", ""),
            guest=isinstance(cluster, Attached),
        )
        self.sightings: list[Sighting] = []
        self.trouble: list[str] = []

    async def follow(self) -> list[Judgement]:
        """Load, misfortunes, healing, quiet, judgement."""
        if not isinstance(self.cluster, Attached):
            return await self._follow()
        try:
            return await self._follow()
        finally:
            # However it ended; a second interrupt ends this as well.
            if left := await leave_nothing(self.cluster, self.ctx.run):
                log.warning("jobs of this run are left: cancel them", jobs=left)

    async def _follow(self) -> list[Judgement]:
        for workload in self.workloads:
            await workload.prepare(self.ctx)
        self.history.mark("load")
        await self._load()
        self.history.mark("healing")
        self._stage("healing", 0.75)
        unhealed = await self._heal()
        if await self._nobody_leads(unhealed):
            return self._said([*unhealed, NOBODY_LEADS])
        self._stage("settling", 0.8)
        for workload in self.workloads:
            await workload.settle(self.ctx)
        if await self._nobody_leads(unhealed):
            return self._said([*unhealed, NOBODY_LEADS])
        self.history.mark("quiet")
        self._stage("judging", 0.9)
        skewed = CLOCKS in self.options.nemesis.split("+")
        evidence = await gather(
            self.ctx,
            _recorded(self.history, self.facts),
            sightings=self.sightings,
            true_clocks=not skewed and not self.ctx.guest,
        )
        if self.ctx.guest:
            evidence.alive = None  # Processes of other machines cannot be seen from here.
        said = self._said(unhealed)
        await asyncio.to_thread(keep, evidence, said, self.directory)
        return [
            *said,
            *await asyncio.to_thread(judge_evidence, self.options.workload, evidence),
        ]

    def _said(self, unhealed: list[str]) -> list[Judgement]:
        """What the run itself can tell."""
        clients = sum(workload.clients for workload in self.workloads)
        parties = len(self.cluster.servers) + len(self.cluster.hosts)
        told = [
            said(LOAD, self.trouble, clients, "clients"),
            said(HEALED, unhealed, parties, "servers and hosts"),
        ]
        if self.ctx.guest:
            return told
        logs = len(server_logs(self.directory / "logs"))
        return [*told, said(HALTED, self._halts(), logs, "logs of servers")]

    async def _nobody_leads(self, unhealed: list[str]) -> bool:
        """Then there is nobody to give the log, by which the rest is judged. Who has halted may
        come up and halt again."""
        if not unhealed and not self._halts():
            return False
        await asyncio.sleep(AGAIN_S)
        return await self.cluster.leader(LEADER_S) is None

    def _halts(self) -> list[str]:
        """Of others' servers nobody here has the logs."""
        damaged = {
            target
            for fault in self.history.faults
            if fault.nemesis == DAMAGE
            for target in fault.targets
        }
        return halts(self.directory / "logs", damaged)

    async def _heal(self) -> list[str]:
        if isinstance(self.cluster, Attached):
            return await heal_attached(self.cluster)
        return await heal(self.cluster)

    async def _load(self) -> None:
        stopping = self.ctx.stopping
        nemeses = chosen(self.options.nemesis)
        # Nemeses use of a cluster what both kinds have, where `abilities_there` lets them.
        cluster = cast(Cluster, self.cluster)
        conductor = Conductor(cluster, self.history, nemeses, self.options.seed)
        clients = [
            asyncio.create_task(workload.client(self.ctx, number), name=f"{workload.name}/{number}")
            for workload in self.workloads
            for number in range(workload.clients)
        ]
        others = [
            asyncio.create_task(conductor.run(stopping)),
            asyncio.create_task(self._watch_servers()),
        ]
        began = time.monotonic()
        try:
            while (passed := time.monotonic() - began) < self.options.seconds:
                self._stage("load", 0.05 + 0.7 * passed / self.options.seconds)
                done, _ = await asyncio.wait(
                    [*clients, *others], timeout=TELL_EVERY_S, return_when=asyncio.FIRST_EXCEPTION
                )
                if any(task.exception() for task in done):
                    break
            stopping.set()
            await asyncio.wait(clients, timeout=CLIENTS_END_S)
            for task in clients:
                if not task.done():
                    self.trouble.append(f"{task.get_name()} did not end in {CLIENTS_END_S:g} s")
                elif error := task.exception():
                    self.trouble.append(f"{task.get_name()}: {type(error).__name__}: {error}")
            await asyncio.gather(*others)
        finally:
            stopping.set()
            for task in (*clients, *others):
                task.cancel()
            await asyncio.gather(*clients, *others, return_exceptions=True)

    async def _watch_servers(self) -> None:
        """Ask every server now and then what it makes of itself: digest, term, role."""
        stopping = self.ctx.stopping
        while not stopping.is_set():
            urls = self._urls_past_the_network()
            with contextlib.suppress(CoordError):
                self.sightings += await sight(urls)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SIGHT_EVERY_S):
                    await stopping.wait()

    def _urls_past_the_network(self) -> list[str]:
        if isinstance(self.cluster, Attached):
            return self.cluster.urls
        return [one.direct_url for one in self.cluster.servers.values() if one.running]

    def _stage(self, what: str, share: float) -> None:
        self.tell(Stage(what, share, len(self.history.operations), len(self.history.faults)))
