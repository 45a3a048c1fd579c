"""Hosts that are drained, given back and removed while jobs want them."""

from __future__ import annotations

import random
import time
from typing import Any

from coord.client import CoordError
from coord.model.events import (
    DrainRequested,
    HostRemovalRequested,
    JobSubmitted,
    UndrainRequested,
)
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.drains import DRAINED
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.workloads.asking import Asker, Pace, wait_for
from jepsen_lite.workloads.judging import OF_RANKS, judge_common
from jepsen_lite.workloads.port import Context, Evidence
from jepsen_lite.workloads.quiet import POLL_S, end_jobs
from jepsen_lite.workloads.specs import training_job

JOB_CLIENTS = 2
HOST_CLIENTS = 4
HOST_PERIOD_S = 0.5
"""Between two requests of one client about hosts, on average, lest no gang ever gets anywhere."""
RETURN_S = 30.0
"""For hosts to be back once everything is healed: an agent that was removed registers again."""
SETTLE_S = 60.0


class Churn:
    """See `port.Workload`. An agent whose host was removed registers again by itself."""

    name = "churn"
    line = "Hosts drained, undrained and removed at random, coming back, while gangs run on them."
    needs: frozenset[str] = frozenset({"agents"})
    clients = JOB_CLIENTS + HOST_CLIENTS
    makes = OF_RANKS | {DRAINED}

    def __init__(self) -> None:
        self._hosts: list[str] = []
        self._drains = 0
        """That took."""

    async def prepare(self, ctx: Context) -> None:
        ctx.truth.mkdir(parents=True, exist_ok=True)
        async with Asker(ctx, self.name, self.clients) as asker:
            self._hosts = [host.host for host in await asker.client.hosts()]
        if not self._hosts:
            raise RuntimeError("churn needs hosts, and no agent has registered; start some first")

    async def client(self, ctx: Context, number: int) -> None:
        rng = ctx.rng(f"{self.name}/{number}")
        pace = Pace(ctx, self.clients, rng)
        job = ""
        async with Asker(ctx, self.name, number) as asker:
            while await pace.turn():
                if number < JOB_CLIENTS:
                    if not job or await self._has_ended(asker, job):
                        job = await self._submit(ctx, asker, rng)
                elif not await wait_for(ctx.stopping, HOST_PERIOD_S * rng.uniform(0.5, 1.5)):
                    await self._ask(asker, rng)

    async def settle(self, ctx: Context) -> None:
        """Give every host back, wait until all are up again, let the jobs end. If chance drained
        none, all are drained first: a run without any drain would say nothing of them."""
        deadline_s = time.monotonic() + RETURN_S
        async with Asker(ctx, self.name, self.clients) as asker:
            while not self._drains and time.monotonic() < deadline_s:
                for host in self._hosts:
                    await self._drain(asker, host)
                await wait_for(ctx.never, POLL_S)
            while time.monotonic() < deadline_s and not await self._are_back(asker):
                await wait_for(ctx.never, POLL_S)
            await end_jobs(ctx, asker, f"{self.name}-", SETTLE_S)

    def judge(self, evidence: Evidence) -> list[Judgement]:
        return judge_common(evidence, ending=f"{self.name}-")

    async def _are_back(self, asker: Asker) -> bool:
        try:
            hosts = {host.host: host for host in await asker.client.hosts()}
        except CoordError:
            return False
        for name in self._hosts:
            if hosts[name].drain or hosts[name].quarantine:
                await asker.write(name, "undrain", _undrain(name, asker.name))
        return all(
            hosts[name].status == "up" and not hosts[name].drain and not hosts[name].quarantine
            for name in self._hosts
        )

    async def _ask(self, asker: Asker, rng: random.Random) -> None:
        host = rng.choice(self._hosts)
        what = rng.choices(("drain", "undrain", "remove", "read"), (3, 4, 3, 2))[0]
        if what == "drain":
            await self._drain(asker, host)
        elif what == "undrain":
            await asker.write(host, what, _undrain(host, asker.name))
        elif what == "remove":
            await asker.write(
                host, what, lambda token: HostRemovalRequested(host, asker.name, token)
            )
        else:
            await self._look(asker, host)

    async def _drain(self, asker: Asker, host: str) -> None:
        operation = await asker.write(
            host, "drain", lambda token: DrainRequested(host, asker.name, token)
        )
        if operation.outcome is Outcome.OK and operation.result is None:
            self._drains += 1

    async def _look(self, asker: Asker, host: str) -> None:
        async def look() -> tuple[Any, int]:
            view = await asker.client.host(host)
            return [view.status, view.drain, view.incarnation], view.applied_index

        await asker.read(host, "read", look)

    async def _submit(self, ctx: Context, asker: Asker, rng: random.Random) -> str:
        name = asker.token()
        ranks, steps = rng.randint(1, 2), rng.randint(30, 120)

        def event(token: str) -> JobSubmitted:
            spec = training_job(
                name,
                token,
                ctx.directory,
                ranks=ranks,
                most=ranks,
                steps=steps,
                step_ms=20,
                save_every=10,
            )
            return JobSubmitted(spec, asker.name)

        operation = await asker.write(name, "submit", event, [ranks, steps])
        return "" if operation.outcome is Outcome.FAIL else name

    async def _has_ended(self, asker: Asker, job: str) -> bool:
        async def look() -> tuple[Any, int]:
            view = await asker.client.job(job)
            return view.finished, view.applied_index

        operation = await asker.read(job, "read", look)
        return operation.outcome is Outcome.OK and operation.result is not False


def _undrain(host: str, actor: str) -> Any:
    return lambda token: UndrainRequested(host, actor, token)
