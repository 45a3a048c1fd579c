"""How the stories about agents are told: one agent, one cluster in memory, virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count

import pytest

from coord.client.agent import Agent
from coord.client.errors import Rejected
from coord.client.inbox import Superseded
from coord.model.entry import Origin
from coord.model.events import JobSubmitted, LaunchFailed, ProgressReported, TaskStarted
from coord.model.plans import HostPlan
from coord.model.rejections import Rejection
from coord.model.spec import JobSpec, RoleSpec

from .fake import FakeCluster, FakeDialer
from .virtual import run

Test = Callable[[FakeCluster, Agent], Awaitable[None]]
TASK = "digits/trainer/0#1"


def new_agent(
    cluster: FakeCluster, seed: int = 1, cluster_id: str = "", **changes: object
) -> Agent:
    numbers = count(1 + seed * 1_000)
    values: dict[str, object] = {
        "cluster": cluster_id,
        "host": "h1",
        "agent_id": "a1",
        "boot": "b1",
        "address": "10.0.0.1",
        "devices": 4,
        "cpu_millis": 4_000,
        "memory_mib": 4_096,
        "ports": (4001, 4002, 4003),
        "next_seq": lambda: next(numbers),
        "dialer": FakeDialer(cluster),
        "rng": random.Random(seed),
    }
    return Agent(cluster.urls, **{**values, **changes})  # type: ignore[arg-type]


def with_agent(
    test: Test, cluster: FakeCluster | None = None, *, expects: str = "", **changes: object
) -> FakeCluster:
    """Run `test` in virtual time with an open agent; returns the cluster as it was left."""

    async def story() -> FakeCluster:
        fake = cluster or FakeCluster()
        async with new_agent(fake, cluster_id=expects, **changes) as agent:
            await test(fake, agent)
        return fake

    return run(story())


def submit_job(cluster: FakeCluster, name: str = "digits", command: str = "true") -> None:
    spec = JobSpec(name, (RoleSpec("trainer", (command,)),))
    cluster.record(Origin("client:t", 0, 1 + len(cluster.records)), JobSubmitted(spec))
    cluster.offer_plans()


def started(agent: Agent, task: str = TASK) -> TaskStarted:
    return TaskStarted(agent.host, agent.incarnation, task, 77)


def progress(agent: Agent, step: int, task: str = TASK) -> ProgressReported:
    return ProgressReported(agent.host, agent.incarnation, task, step)


def failed(agent: Agent, number: int) -> LaunchFailed:
    """A report that the log refuses on its merits: decided all the same, and told apart by text."""
    return LaunchFailed(agent.host, agent.incarnation, "no/such/0#1", str(number))


def reported_errors(cluster: FakeCluster) -> list[str]:
    """The texts of decided `failed` reports, in the order of the log."""
    return [
        recorded.entry.event.error
        for recorded in cluster.records
        if isinstance(recorded.entry.event, LaunchFailed)
        and recorded.rejection == Rejection.UNKNOWN_TASK
    ]


@contextlib.contextmanager
def rejected_with(rejection: Rejection) -> Iterator[None]:
    with pytest.raises(Rejected) as caught:
        yield
    assert caught.value.rejection == rejection


async def first(plans: AsyncIterator[HostPlan | Superseded]) -> HostPlan | Superseded:
    async with asyncio.timeout(60):
        return await anext(plans)
