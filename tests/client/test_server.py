"""The client library against a real server: one node, on disk, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from coord.client import (
    Agent,
    Client,
    NotFound,
    Rejected,
    Superseded,
    SyncClient,
)
from coord.model.channel import LogChunk, LogRead
from coord.model.entities import HostStatus, JobStatus
from coord.model.events import (
    JobSubmitted,
    NoteAdded,
    ProgressReported,
    TaskExited,
    TaskReaped,
    TaskStarted,
)
from coord.model.plans import HostPlan
from coord.model.settings import Settings
from coord.model.spec import JobSpec, RoleSpec
from coord.node.server import ServerConfig, run_server
from tests.free_ports import free_ports

from .virtual import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "client_example.py"
SPEC = JobSpec("digits", (RoleSpec("trainer", ("true",)),))


@contextlib.asynccontextmanager
async def running(data_dir: Path, port: int = 0, **changes: object) -> AsyncIterator[str]:
    """A server, until the block ends; yields its URL."""
    config = ServerConfig(
        node=1,
        data_dir=str(data_dir),
        api_listen=f"127.0.0.1:{port or free_ports(1)[0]}",
        **changes,  # type: ignore[arg-type]
    )
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    server = asyncio.create_task(run_server(config, ready.set_result, stop, handle_signals=False))
    server.add_done_callback(lambda _: ready.cancel())
    try:
        yield await asyncio.wait_for(ready, 20)
    finally:
        stop.set()
        assert await server == 0


def new_agent(url: str, host: str = "h1", first_seq: int = 1, **changes: object) -> Agent:
    """`first_seq` goes on where an earlier agent of the same data directory left off."""
    numbers = count(first_seq)
    return Agent(
        [url],
        host=host,
        agent_id=f"agent-of-{host}",
        boot="b1",
        address="127.0.0.1",
        devices=2,
        cpu_millis=4_000,
        memory_mib=4_096,
        ports=(4001, 4002),
        next_seq=lambda: next(numbers),
        **changes,  # type: ignore[arg-type]
    )


async def first_with_tasks(agent: Agent) -> HostPlan:
    async for item in agent.plans():
        if isinstance(item, HostPlan) and item.tasks:
            return item
    raise AssertionError("the agent was closed")


async def test_every_read_decodes_what_a_server_says(tmp_path: Path) -> None:
    async with running(tmp_path) as url, Client([url], actor="alice") as client:
        job = await client.submit_job(SPEC)
        assert (job.name, job.status, job.actor) == ("digits", JobStatus.QUEUED, "alice")
        assert job.spec == SPEC
        assert job.gangs[0].queue_reason == "no_hosts"
        assert await client.jobs() == [await client.job("digits")]
        assert await client.hosts() == []
        assert await client.incidents() == []
        cluster = await client.cluster(stale=True)
        assert (cluster.node, cluster.leader, cluster.role) == (1, 1, "leader")
        assert cluster.leader_api == url.removeprefix("http://")
        assert cluster.members[0].node == 1
        assert cluster.settings == Settings()
        note = await client.note("digits", "looks fine")
        page = await client.events(note.index, 1)
        assert page.events[0].entry.event == NoteAdded("alice", "digits", "looks fine")
        assert page.applied_index >= note.index
        cancelled = await client.cancel_job("digits", reason="enough")
        assert cancelled.status == JobStatus.CANCELLED
        await client.snapshot()


async def test_refusals_of_a_server_are_typed(tmp_path: Path) -> None:
    async with running(tmp_path) as url, Client([url]) as client:
        with pytest.raises(NotFound, match="no job 'absent'"):
            await client.job("absent")
        await client.submit_job(SPEC)
        with pytest.raises(Rejected, match="submitting job 'digits': duplicate_job: a job of"):
            await client.submit_job(SPEC)
        with pytest.raises(Rejected, match="unknown_host"):
            await client.remove_host("absent")


async def test_a_watch_follows_a_server_through_its_restart(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    seen: list[int] = []

    async def follow(client: Client) -> None:
        async for recorded in client.watch(1):
            seen.append(recorded.entry.index)
            if isinstance(recorded.entry.event, NoteAdded) and recorded.entry.event.text == "end":
                return

    async with contextlib.AsyncExitStack() as stack:
        async with running(tmp_path, port) as url:
            client = await stack.enter_async_context(Client([url]))
            following = asyncio.create_task(follow(client))
            for number in range(20):
                await client.note("s", str(number))
        async with running(tmp_path, port):
            await client.note("s", "end")
            await following
            await client.close()
    assert seen == list(range(1, seen[-1] + 1))


async def test_an_agent_runs_a_task_to_its_end(tmp_path: Path) -> None:
    async def read(read: LogRead) -> LogChunk:
        return LogChunk(read.request, b"hello from " + read.task.encode(), read.offset, ended=True)

    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(running(tmp_path))
        client = await stack.enter_async_context(Client([url], actor="al"))
        agent = await stack.enter_async_context(new_agent(url, on_log_read=read))
        assert await agent.register() == 1
        await client.submit_job(SPEC)
        plan = await first_with_tasks(agent)
        task = plan.tasks[0].task
        assert plan.tasks[0].env["WORLD_SIZE"] == "1"
        about = (agent.host, agent.incarnation, task)
        await agent.report(TaskStarted(*about, 77))
        await agent.report(ProgressReported(*about, 3))
        job = await client.job("digits")
        assert (job.status, job.gangs[0].step) == (JobStatus.RUNNING, 3)
        assert job.gangs[0].tasks[0].pid == 77
        page = await client.read_log("digits")
        assert (page.data, page.ended) == (b"hello from " + task.encode(), True)
        agent.report(TaskExited(*about))
        agent.report(TaskReaped(*about))
        assert await agent.flush(5)
        assert (await client.job("digits")).status == JobStatus.COMPLETED
        host = await client.host("h1")
        assert (host.status, host.free.devices) == (HostStatus.UP, 2)
        drained = await client.drain("h1", reason="repair")
        assert drained.drain == "drained"


async def test_beats_keep_a_host_alive_and_their_end_loses_it(tmp_path: Path) -> None:
    quick = Settings(heartbeat_ms=100, suspect_ms=1_000, lease_ms=2_000, breaker_min_hosts=9)
    async with running(tmp_path, settings=quick) as url, Client([url]) as client:
        async with new_agent(url) as agent:
            await agent.register()
            deadlines: dict[float | None, None] = {}

            def renewed() -> bool:
                deadlines[agent.lease_deadline] = None
                return len(deadlines) > 5

            await eventually(renewed)
            assert (await client.host("h1")).status == HostStatus.UP
        watch = client.watch((await client.cluster()).applied_index)
        async for recorded in watch:
            if any(type(one).__name__ == "HostLost" for one in recorded.decisions):
                break
        await watch.aclose()
        async with new_agent(url, first_seq=2) as late:
            assert await late.register() == 2
            assert (await client.host("h1")).status == HostStatus.UP


async def test_a_lost_host_is_told_to_stop(tmp_path: Path) -> None:
    async with running(tmp_path) as url, new_agent(url) as agent, new_agent(url) as other:
        await agent.register()
        plans = agent.plans()
        await anext(plans)
        other._next_seq = count(100).__next__
        await other.register()
        superseded = await anext(plans)
        assert superseded == Superseded(1, "stale_incarnation")


async def test_the_blocking_client_talks_to_a_server(tmp_path: Path) -> None:
    async with running(tmp_path) as url:

        def blocking() -> tuple[int, int]:
            with SyncClient([url], actor="bob") as client:
                decided = client.submit(JobSubmitted(SPEC, "bob"))
                file = io.BytesIO()
                size_bytes = client.export_incident(file)
                assert size_bytes == len(file.getvalue())
                return decided.index, client.job("digits").submitted

        index, submitted = await asyncio.to_thread(blocking)
        assert index == submitted


async def test_many_writers_at_once_are_all_decided(tmp_path: Path) -> None:
    async with running(tmp_path) as url, Client([url]) as client:

        async def write(name: int) -> None:
            for number in range(20):
                await client.note("s", f"{name}-{number}")

        await asyncio.gather(*(write(name) for name in range(64)))
        texts = []
        at = 1
        while page := (await client.events(at, 1_000)).events:
            at = page[-1].entry.index + 1
            texts += [one.entry.event.text for one in page if type(one.entry.event) is NoteAdded]
        expected = [f"{name}-{number}" for name in range(64) for number in range(20)]
        assert sorted(texts) == sorted(expected)


async def test_the_example_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLE),
            url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, complaints = await process.communicate()
        said = printed.decode()
        assert (process.returncode, complaints.decode()) == (0, ""), said
        lines = said.splitlines()
        assert "was submitted at index" in lines[0]
        assert "waits: no_hosts" in lines[1]
        assert "ended as cancelled" in lines[-1]
