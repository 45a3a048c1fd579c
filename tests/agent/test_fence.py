"""Exclusive tasks end by themselves before their host's lease does; others never."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from coord.agent.fence import Fence, Step, fence_before
from coord.agent.proctable import boot_id
from coord.agent.records import Phase
from coord.model.events import TaskExited
from coord.model.settings import Settings
from tests.agent.support import (
    FakeChannel,
    config_for,
    key,
    order,
    plan,
    python,
    running,
    until,
)

IGNORES_SIGTERM = python(
    "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1)\ntime.sleep(999)"
)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_both_signals_come_before_the_deadline() -> None:
    """SIGTERM first, SIGKILL with time to spare; a short lease is not eaten up by the margins."""
    assert fence_before(100.0, lease_s=60.0) == Fence(98.5, 99.5)
    short = fence_before(100.0, lease_s=0.6)
    assert 99.8 < short.term_at < short.kill_at < 100.0
    fence = Fence(98.5, 99.5)
    assert [fence.due(at) for at in (98.4, 98.5, 99.4, 99.5, 200.0)] == [
        Step.NONE, Step.TERM, Step.TERM, Step.KILL, Step.KILL,
    ]  # fmt: skip
    assert [fence.next_time(at) for at in (0.0, 98.5, 99.5)] == [98.5, 99.5, None]


async def test_exclusive_tasks_end_before_the_deadline_and_others_go_on(tmp_path: Path) -> None:
    """No heartbeat is acknowledged any more: the exclusive task is gone in time, although
    it ignores SIGTERM and the coordinator is away; the other one runs on."""
    channel = FakeChannel()
    channel.lease_deadline = now() + 60
    async with running(config_for(tmp_path, stop_tasks=True), channel) as daemon:
        channel.deliver(
            plan(
                order(IGNORES_SIGTERM, exclusive=True),
                order(("sleep", "1000"), index=1, grace_ms=0),
                version=1,
            )
        )
        output = tmp_path / "logs/job/role/0/gen-1/stdout.log"
        await until(lambda: output.exists() and output.read_text())
        channel.reachable.clear()
        deadline = channel.lease_deadline = now() + 2.0
        await until(lambda: daemon.tasks.records[key()].phase is Phase.GONE)
        assert now() < deadline + channel.settings.fence_ms / 1000
        assert daemon.tasks.records[key(1)].phase is Phase.RUNNING
        channel.reachable.set()
        channel.decide_all()
        exited = channel.one(TaskExited, key())
        assert (exited.signal, exited.expected) == (signal.SIGKILL, False)
        assert "exclusive" in exited.error


async def test_an_orderly_exit_at_the_fence_is_no_success(tmp_path: Path) -> None:
    """A task that heeds SIGTERM and exits 0 has not finished its work."""
    channel = FakeChannel()
    channel.lease_deadline = now() + 60
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: sys.exit(0))\nprint(1)\ntime.sleep(999)"
    )
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(python(code), exclusive=True), version=1))
        output = tmp_path / "logs/job/role/0/gen-1/stdout.log"
        await until(lambda: output.exists() and output.read_text())
        channel.lease_deadline = now() + 1.6
        await until(lambda: "TaskReaped" in channel.of(key()))
        exited = channel.one(TaskExited, key())
        assert (exited.exit_code, exited.signal) == (0, signal.SIGTERM)
        assert exited.error.startswith("exited with code 0")


async def test_the_next_agent_knows_what_was_ended_unasked(tmp_path: Path) -> None:
    """The agent asked it to end and was gone itself before it did: its orderly exit, seen by the
    next agent of a good lease, is no success either."""
    channel = FakeChannel()
    channel.lease_deadline = now() + 60
    asked, go = tmp_path / "asked", tmp_path / "go"
    code = (
        "import os, signal, sys, time\n"
        f"signal.signal(15, lambda *_: open({str(asked)!r}, 'w').close())\n"
        f"print(1)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nsys.exit(0)"
    )
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(python(code), exclusive=True, grace_ms=60_000), version=1))
        output = tmp_path / "logs/job/role/0/gen-1/stdout.log"
        await until(lambda: output.exists() and output.read_text())
        channel.lease_deadline = now() + 1.6
        await until(asked.exists)
        channel.lease_deadline = now() + 60
    later = FakeChannel()
    later.lease_deadline = now() + 60
    async with running(config_for(tmp_path), later):
        go.touch()
        await until(lambda: "TaskReaped" in later.of(key()))
        exited = later.one(TaskExited, key())
        assert (exited.exit_code, exited.signal, exited.expected) == (0, signal.SIGTERM, False)
        assert "exclusive" in exited.error


async def test_acknowledged_heartbeats_move_the_fence(tmp_path: Path) -> None:
    """While the deadline moves on, nothing happens at the old one."""
    channel = FakeChannel()
    channel.settings = Settings(lease_ms=400, heartbeat_ms=50, suspect_ms=100)
    channel.lease_deadline = now() + 0.4
    async with running(config_for(tmp_path, stop_tasks=True), channel) as daemon:
        task = order(("sleep", "1000"), exclusive=True, grace_ms=0)
        channel.deliver(plan(task, version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted"])
        first = channel.lease_deadline
        while now() < first + 0.2:
            channel.lease_deadline = now() + 0.4
            await asyncio.sleep(0.05)
        assert daemon.tasks.records[key()].phase is Phase.RUNNING


@pytest.mark.parametrize("exclusive", [True, False])
async def test_nothing_exclusive_starts_without_a_lease(tmp_path: Path, exclusive: bool) -> None:
    """A plan that arrives when the fence is due starts what is not exclusive."""
    channel = FakeChannel()
    channel.lease_deadline = now() - 1
    async with running(config_for(tmp_path), channel) as daemon:
        channel.deliver(plan(order(exclusive=exclusive), order(index=1), version=1))
        await until(lambda: "TaskReaped" in channel.of(key(1)))
        assert (key() in daemon.tasks.records) is not exclusive
        channel.lease_deadline = now() + 60
        await until(lambda: "TaskReaped" in channel.of(key()))


async def test_the_deadline_outlives_the_agent(tmp_path: Path) -> None:
    """A new agent that cannot reach the coordinator knows from the disk when its predecessor's
    exclusive task must be gone, and keeps to it."""
    config = config_for(tmp_path)
    channel = FakeChannel()
    channel.lease_deadline = now() + 60
    async with running(config, channel) as daemon:
        channel.deliver(plan(order(("sleep", "1000"), exclusive=True), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted"])
        channel.lease_deadline = deadline = now() + 4.0
        daemon.tasks.act()
    lease = json.loads((tmp_path / "lease.json").read_text())
    assert lease == {"boot": boot_id(), "deadline": deadline, "kill_at": deadline - 0.5}
    channel = FakeChannel()
    channel.reachable.clear()
    async with running(config, channel) as daemon:
        assert daemon.tasks.records[key()].phase is Phase.RUNNING
        await until(lambda: daemon.tasks.records[key()].phase is Phase.GONE)
        assert deadline - 2.0 < now() < deadline + channel.settings.fence_ms / 1000
