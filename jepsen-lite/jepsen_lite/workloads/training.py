"""Gangs that save checkpoints and are restarted from them, with ranks that tell the truth."""

from __future__ import annotations

import random
from typing import Any

from coord.model.entities import FINISHED_JOB
from coord.model.events import JobResizeRequested, JobSubmitted
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.truth import EXCLUSIVE, SUCCEEDED
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.workloads.asking import Asker, Pace
from jepsen_lite.workloads.judging import OF_RANKS, judge_common
from jepsen_lite.workloads.port import Context, Evidence
from jepsen_lite.workloads.quiet import cancel, end_jobs
from jepsen_lite.workloads.specs import training_job

STEP_MS = 20
SAVE_EVERY = 15
"""Steps from one checkpoint to the next."""
STEPS = (150, 500)
"""The length of a gang's life is drawn from this range."""
MOST_RANKS = 3
CANCEL_SHARE = 0.01
RESIZE_SHARE = 0.03
"""Of the looks at a job, so many are followed by this."""
SETTLE_S = 60.0


class Training:
    """See `port.Workload`. Every second gang is exclusive. The ranks of those, and of every second
    other, heed only SIGKILL: they go on saving when their generation was given up.

    What every check needs is not left to chance: the first client begins with an exclusive gang,
    and cancels none, so that the last one succeeds."""

    name = "training"
    line = "Gangs of ranks that step, save checkpoints, are resized, and write down what they did."
    needs: frozenset[str] = frozenset({"agents"})
    clients = 3
    makes: frozenset[str] = OF_RANKS | {EXCLUSIVE, SUCCEEDED}

    def __init__(self, steps: tuple[int, int] = STEPS) -> None:
        self._steps = steps

    async def prepare(self, ctx: Context) -> None:
        ctx.truth.mkdir(parents=True, exist_ok=True)

    async def client(self, ctx: Context, number: int) -> None:
        """One gang after the other."""
        rng = ctx.rng(f"{self.name}/{number}")
        pace = Pace(ctx, self.clients, rng)
        job = ""
        surely = not number
        async with Asker(ctx, self.name, number) as asker:
            while await pace.turn():
                if not job:
                    job = await self._submit(ctx, asker, rng, exclusive=surely)
                    surely = surely and not job
                elif await self._has_ended(asker, job):
                    job = ""
                elif number and rng.random() < CANCEL_SHARE:
                    await cancel(asker, job)
                elif rng.random() < RESIZE_SHARE:
                    await self._resize(asker, job, rng.randint(1, MOST_RANKS))

    async def settle(self, ctx: Context) -> None:
        """Let gangs come to their end; whatever has not by then is cancelled."""
        async with Asker(ctx, self.name, self.clients) as asker:
            await end_jobs(ctx, asker, f"{self.name}-", SETTLE_S)

    def judge(self, evidence: Evidence) -> list[Judgement]:
        return judge_common(evidence, ending=f"{self.name}-")

    async def _submit(
        self, ctx: Context, asker: Asker, rng: random.Random, *, exclusive: bool
    ) -> str:
        """The job's name; empty when it is certain that there is none. `exclusive` or by chance."""
        name = asker.token()
        ranks = rng.randint(1, MOST_RANKS)
        steps = rng.randint(*self._steps)
        exclusive = rng.random() < 0.5 or exclusive

        def event(token: str) -> JobSubmitted:
            spec = training_job(
                name,
                token,
                ctx.directory,
                ranks=ranks,
                most=MOST_RANKS,
                steps=steps,
                step_ms=STEP_MS,
                save_every=SAVE_EVERY,
                exclusive=exclusive,
                stubborn=steps % 2 == 0,
            )
            return JobSubmitted(spec, asker.name)

        operation = await asker.write(name, "submit", event, [ranks, steps, exclusive])
        return "" if operation.outcome is Outcome.FAIL else name

    async def _has_ended(self, asker: Asker, job: str) -> bool:
        """Whether there is nothing more to expect of it."""

        async def look() -> tuple[Any, int]:
            view = await asker.client.job(job)
            gang = view.gangs[0] if view.gangs else None
            told = [gang.generation, gang.phase, gang.step] if gang is not None else []
            return [view.status, *told], view.applied_index

        operation = await asker.read(job, "read", look)
        if operation.outcome is not Outcome.OK:
            return False
        missing = not isinstance(operation.result, list)
        return missing or operation.result[0] in FINISHED_JOB

    async def _resize(self, asker: Asker, job: str, ranks: int) -> None:
        await asker.write(
            job,
            "resize",
            lambda token: JobResizeRequested(job, "trainer", ranks, asker.name, token),
            ranks,
        )
