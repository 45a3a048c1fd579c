"""Real small jobs: submitted, cancelled, resized, submitted twice."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from coord.client import NotFound
from coord.model.entities import FINISHED_JOB
from coord.model.events import JobCancelRequested, JobResizeRequested, JobSubmitted
from coord.model.spec import JobSpec, RestartPolicy
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.workloads.asking import Asker, Pace
from jepsen_lite.workloads.judging import OF_JOBS, judge_common
from jepsen_lite.workloads.port import Context, Evidence
from jepsen_lite.workloads.quiet import end_jobs
from jepsen_lite.workloads.specs import small_job

REMEMBERED = 30
"""Jobs that may still be cancelled, resized, looked at or submitted again."""
UNENDED_LIMIT = 24
"""Jobs not known to have ended, at which none is added: however slow the machine, its agents have
not more to start than they can, long after the load is over."""
MOST = 3
SETTLE_S = 60.0


class Jobs:
    """See `port.Workload`."""

    name = "jobs"
    line = "Small real jobs that end, fail or wait, submitted, resized, cancelled and looked at."
    needs: frozenset[str] = frozenset({"agents"})
    clients = 6
    makes = OF_JOBS

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=REMEMBERED)
        self._unended: dict[str, None] = {}

    async def prepare(self, ctx: Context) -> None:
        """Nothing has to be there."""

    async def client(self, ctx: Context, number: int) -> None:
        rng = ctx.rng(f"{self.name}/{number}")
        pace = Pace(ctx, self.clients, rng)
        async with Asker(ctx, self.name, number) as asker:
            while await pace.turn():
                await self._ask(asker, rng)

    async def settle(self, ctx: Context) -> None:
        """Wait until all jobs of the run have ended; cancel what has not."""
        async with Asker(ctx, self.name, self.clients) as asker:
            await end_jobs(ctx, asker, f"{self.name}-", SETTLE_S)

    def judge(self, evidence: Evidence) -> list[Judgement]:
        return judge_common(evidence, ending=f"{self.name}-")

    async def _ask(self, asker: Asker, rng: random.Random) -> None:
        what = rng.random()
        if len(self._unended) >= UNENDED_LIMIT:
            await self._look(asker, rng.choice(list(self._unended)))
            return
        if what < 0.4 or not self._recent:
            await self._submit(asker, rng, asker.token())
            return
        job = rng.choice(self._recent)
        if what < 0.45:
            await self._submit(asker, rng, job)
        elif what < 0.6:
            await asker.write(
                job, "cancel", lambda token: JobCancelRequested(job, asker.name, token)
            )
        elif what < 0.8:
            value = rng.randint(1, MOST)
            await asker.write(
                job,
                "resize",
                lambda token: JobResizeRequested(job, "work", value, asker.name, token),
                value,
            )
        else:
            await self._look(asker, job)

    async def _submit(self, asker: Asker, rng: random.Random, name: str) -> None:
        """Under a name that was used already, the state must refuse it."""
        kind = rng.randrange(len(_KINDS))
        length_s = rng.uniform(0.1, 1.0)
        operation = await asker.write(
            name,
            "submit",
            lambda token: JobSubmitted(_KINDS[kind](name, token, length_s), asker.name),
        )
        if operation.outcome is not Outcome.FAIL and name not in self._recent:
            self._recent.append(name)
            self._unended[name] = None

    async def _look(self, asker: Asker, job: str) -> None:
        async def look() -> tuple[Any, int]:
            try:
                view = await asker.client.job(job)
            except NotFound:
                self._unended.pop(job, None)
                raise
            if view.status in FINISHED_JOB:
                self._unended.pop(job, None)
            return [view.status, *view.replicas], view.applied_index

        await asker.read(job, "read", look)


def _brief(name: str, token: str, length_s: float) -> JobSpec:
    return small_job(name, token, ("true",), replicas=2, most=MOST)


def _sleeping(name: str, token: str, length_s: float) -> JobSpec:
    return small_job(name, token, ("sleep", f"{length_s:.2f}"), most=MOST, devices=1)


def _single(name: str, token: str, length_s: float) -> JobSpec:
    command = ("sleep", f"{length_s:.2f}")
    return small_job(name, token, command, replicas=2, most=MOST, gang=False)


def _failing(name: str, token: str, length_s: float) -> JobSpec:
    policy = RestartPolicy(user_limit=1, backoff_ms=50)
    return small_job(name, token, ("false",), most=MOST, restart=policy)


_KINDS = (_brief, _sleeping, _single, _failing)
