"""/v1/jobs/NAME/why, as curl, the client library and `coordctl job why` see it: what the queue of a
gang that waits has to do with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coord.cli.why_text import gang_why_lines
from coord.client import Client
from coord.model.queue import QueueSpec
from coord.model.recovery import RoleRecovery
from coord.model.spec import JobSpec, Placing, Resources, RoleSpec
from coord.model.why import GangWhy, Leaving, QueueWhy
from tests.api.servers import Served
from tests.node.cluster import FakeAgent


@asynccontextmanager
async def serving(*devices: int) -> AsyncIterator[tuple[Served, Client]]:
    """A server with hosts h1, h2, ... of so many devices."""
    async with Served() as served:
        for number, count in enumerate(devices, 1):
            await FakeAgent(served.leader, f"h{number}").register(devices=count)
        async with Client([served.url("")], actor="ann") as client:
            yield served, client


def job(name: str, devices: int, replicas: int = 1, queue: str = "", **spec: object) -> JobSpec:
    role = RoleSpec("t", ("x",), replicas=replicas, resources=Resources(devices=devices))
    return JobSpec(name, (role,), queue=queue, **spec)  # type: ignore[arg-type]


async def why(client: Client, name: str) -> tuple[GangWhy, QueueWhy]:
    (gang,) = (await client.why(name)).gangs
    assert gang.queue is not None
    return gang, gang.queue


async def test_over_its_quota_it_says_whose_and_how_much() -> None:
    async with serving(8) as (served, client):
        await client.set_queue(QueueSpec("team", quota=4, borrowing_limit=1))
        for name in ("a", "b"):
            await client.submit_job(job(name, 3, queue="team"))
        gang, queue = await why(client, "b")
        assert (gang.reason, queue.over) == ("quota", True)
        assert (queue.queue, queue.needs, queue.used, queue.left) == ("team", 3_000, 3_000, 2_000)
        assert (queue.quota, queue.may_borrow) == (4, 1)
        asked = await served.get("/v1/jobs/b/why")
        assert asked["gangs"][0]["queue"]["left"] == 2_000
        told = "  queue team may use 2 more devices, 3 are needed: it uses 3 of its quota of 4"
        assert f"{told} and may borrow 1" in gang_why_lines(gang)


async def test_what_is_said_of_a_quota_is_of_now_and_not_of_when_it_began() -> None:
    async with serving(8) as (_, client):
        await client.set_queue(QueueSpec("team", quota=4, borrowing_limit=0))
        for name, devices in (("a", 2), ("b", 1), ("c", 3)):
            await client.submit_job(job(name, devices, queue="team"))
        assert (await why(client, "c"))[1].used == 3_000
        await client.submit_job(job("d", 1, queue="team"))
        gang, queue = await why(client, "c")
        assert (queue.used, queue.left) == (4_000, 0)
        assert "uses 3 of 4" in gang.detail  # The reason in the log is that of its beginning.


async def test_devices_that_other_queues_do_not_lend_are_told() -> None:
    async with serving(4) as (_, client):
        await client.set_queue(QueueSpec("proud", quota=3, lendable_permille=0))
        await client.submit_job(job("a", 2))
        gang, queue = await why(client, "a")
        assert (queue.over, queue.kept_back, queue.left) == (True, 3_000, 1_000)
        assert any("other queues keep 3 to themselves" in line for line in gang_why_lines(gang))


async def test_its_turn_names_those_before_it() -> None:
    async with serving(2) as (_, client):
        for name, priority in (("a", 0), ("b", 0), ("c", 0), ("d", 5)):
            await client.submit_job(job(name, 2, priority=priority))
        gang, queue = await why(client, "c")
        assert (queue.turn, queue.before) == (3, ("d/t", "b/t"))
        assert gang_why_lines(gang)[-1] == "  turn 3, after d/t, b/t"
        assert (await why(client, "d"))[1].turn == 1


async def test_a_role_that_starts_after_another_has_no_turn_before_that() -> None:
    async with serving(2) as (_, client):
        await client.submit_job(job("a", 2))
        first = RoleSpec("first", ("x",), resources=Resources(devices=2))
        then = RoleSpec("then", ("x",), placement=Placing(after=("first",)))
        await client.submit_job(JobSpec("b", (first, then), priority=5))
        await client.submit_job(job("c", 2))
        assert (await why(client, "c"))[1].before == ("b/first",)


async def test_room_that_is_kept_for_another_one_is_told_to_both() -> None:
    async with serving(4, 4) as (_, client):
        await client.submit_job(job("runs", 3))
        await client.submit_job(job("long", 2))
        await client.submit_job(job("wide", 4))
        await client.submit_job(job("small", 2))
        gang, queue = await why(client, "small")
        assert (gang.reason, queue.first) == ("reserved", "wide/t")
        told = "  there is room, but it is kept for wide/t, which comes first"
        assert told in gang_why_lines(gang)
        wide, kept = await why(client, "wide")
        assert (kept.first, sum(kept.kept.values())) == ("", 1)
        (host,) = kept.kept
        assert f"  room is kept for it on {host} x1" in gang_why_lines(wide)


async def test_whom_it_waits_for_is_named_with_the_time_of_its_notice() -> None:
    async with serving(4) as (_, client):
        terms = QueueSpec("prod", quota=4, may_preempt=True, notice_ms=60_000)
        await client.set_queue(terms)
        await client.submit_job(job("borrower", 2, replicas=2))
        await client.submit_job(job("mine", 4, queue="prod"))
        gang, queue = await why(client, "mine")
        assert gang.reason == "preempting"
        (leaving,) = queue.leaving
        assert (leaving.gang, leaving.tasks) == ("borrower/t", 2)
        assert 0 < leaving.within_ms <= 60_000
        told = next(line for line in gang_why_lines(gang) if "borrower/t to leave" in line)
        assert "2 tasks left, notice ends in " in told
        over = GangWhy("g", "waiting", queue=QueueWhy("", leaving=(Leaving("v/t", 1, 0),)))
        assert "  waits for v/t to leave its place: 1 task left, notice is over" in gang_why_lines(
            over
        )


async def test_a_gang_that_waits_for_all_of_its_room_says_for_how_long() -> None:
    async with serving(2) as (_, client):
        role = RoleSpec("t", ("x",), replicas=3, min_replicas=2, resources=Resources(devices=1))
        recovery = (RoleRecovery("t", shrink_after_ms=3_600_000),)
        await client.submit_job(JobSpec("elastic", (role,), recovery=recovery))
        gang, queue = await why(client, "elastic")
        assert (gang.reason, queue.whole, queue.needs) == ("full_size", 3, 3_000)
        assert 0 < queue.whole_for_ms <= 3_600_000
        assert any(line.startswith("  waits for all 3 replicas") for line in gang_why_lines(gang))


async def test_who_runs_has_no_turn() -> None:
    async with serving(2) as (_, client):
        await client.submit_job(job("runs", 2))
        (gang,) = (await client.why("runs")).gangs
        assert gang.queue is None
