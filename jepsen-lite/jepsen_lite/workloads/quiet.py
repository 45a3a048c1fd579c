"""Waiting for an end after everything is healed."""

from __future__ import annotations

import time
from contextlib import suppress

from coord.client import NotDone
from coord.model.events import JobCancelRequested
from jepsen_lite.workloads.asking import Asker, wait_for
from jepsen_lite.workloads.port import Context

POLL_S = 0.25
CANCEL_AFTER = 0.5
"""Of the time there is: what has not ended by then is asked to."""


async def end_jobs(ctx: Context, asker: Asker, prefix: str, patience_s: float) -> bool:
    """Wait until every job of the run whose name begins so has ended, cancelling those that go on
    for too long; whether all did in time."""
    began_s = time.monotonic()
    cancelled: set[str] = set()
    while (waited_s := time.monotonic() - began_s) < patience_s:
        going_on: list[str] | None = None
        with suppress(NotDone):
            jobs = await asker.client.jobs()
            going_on = [
                job.name
                for job in jobs
                if job.name.startswith(prefix) and job.name.endswith(ctx.run) and not job.finished
            ]
        if going_on is not None and not going_on:
            return True
        if waited_s > CANCEL_AFTER * patience_s:
            for name in going_on or ():
                if name not in cancelled:
                    await cancel(asker, name)
                    cancelled.add(name)
        await wait_for(ctx.never, POLL_S)
    return False


async def cancel(asker: Asker, job: str) -> None:
    """Ask for a job's end, on the record."""
    await asker.write(job, "cancel", lambda token: JobCancelRequested(job, asker.name, token))
