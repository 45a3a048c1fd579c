"""The client library in one page: submit a job, follow what becomes of it, leave a note, end it.

coordctl up                         # in one terminal
python examples/client_example.py   # in another; or with the addresses of other servers
"""

from __future__ import annotations

import asyncio
import sys
import time

from coord.client import Client, OutcomeUnknown, Rejected
from coord.model.decisions import JobQueued, TasksPlaced
from coord.model.entities import JobStatus
from coord.model.spec import JobSpec, Resources, RoleSpec

SERVERS = ["http://127.0.0.1:7101"]


async def main(servers: list[str]) -> int:
    spec = JobSpec(
        name=f"hello-{time.time_ns()}",
        roles=(
            RoleSpec(
                name="greeter",
                command=("sh", "-c", "echo hello from rank $RANK; sleep 600"),
                replicas=2,
                resources=Resources(cpu_millis=100, memory_mib=16),
            ),
        ),
    )
    async with Client(servers, actor="example") as client:
        try:
            job = await client.submit_job(spec)
        except Rejected as refused:
            print(f"certainly not submitted: {refused}")
            return 1
        except OutcomeUnknown as doubt:
            print(f"look with `coordctl job list` before submitting again: {doubt}")
            return 1
        print(f"{job.name} was submitted at index {job.submitted} and is {job.status}")

        # Every event with what was decided on it, each once, whichever server fails meanwhile.
        async for recorded in client.watch(job.submitted):
            for decision in recorded.decisions:
                if isinstance(decision, JobQueued) and decision.job == job.name:
                    print(f"  {recorded.entry.index}: waits: {decision.reason} {decision.detail}")
                if isinstance(decision, TasksPlaced) and decision.job == job.name:
                    places = ", ".join(f"{one.task} on {one.host}" for one in decision.placements)
                    print(f"  {recorded.entry.index}: placed: {places}")
            if any(getattr(decision, "job", "") == job.name for decision in recorded.decisions):
                break

        await client.note(job.name, "seen by the example")
        job = await client.cancel_job(job.name, reason="the example is over")
        while not job.finished:
            # Its tasks are being stopped: look again when something has happened.
            await client.events(job.applied_index + 1, 1, wait_ms=5_000)
            job = await client.job(job.name)
        print(f"{job.name} ended as {job.status} at index {job.ended}")
        return 0 if job.status == JobStatus.CANCELLED else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or SERVERS)))
