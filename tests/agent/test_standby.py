"""A hot spare waits at its agent for a rank, in a real process, and takes it without another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from coord.agent.records import Phase
from coord.model.events import TaskExited, TaskStarted
from coord.model.plans import TaskOrder
from tests.agent.hosts import Host
from tests.agent.support import (
    FakeChannel,
    config_for,
    key,
    order,
    plan,
    python,
    running,
    stop_order,
    until,
    until_file,
)

WAITS = """
import os, sys
from coord import worker
print("waits", flush=True)
has_rank = worker.stand_by()
standby = os.environ.get("COORD_STANDBY", "none")
sys.stderr.write(f"{os.getpid()} {has_rank} {worker.rank()} {worker.generation()} {standby}\\n")
"""
KEY = key(2, 2)
OUTPUT = "logs/job/role/2/gen-2"


def standby(code: str = WAITS) -> TaskOrder:
    return order(python(code), index=2, generation=2, env={"COORD_STANDBY": "1", "KEPT": "yes"})


def promoted(code: str = WAITS) -> TaskOrder:
    """The same run as a rank of the third generation."""
    env = {"RANK": "1", "WORLD_SIZE": "2", "COORD_GENERATION": "3", "KEPT": "yes"}
    return replace(standby(code), index=1, generation=3, env=env, ports=(29_511,))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.clean()


async def test_a_standby_takes_a_rank_in_the_process_that_it_has(tmp_path: Path) -> None:
    """Nothing is launched; the record says which rank it is now."""
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel) as daemon:
        channel.deliver(plan(standby(), version=1))
        await until_file(tmp_path / OUTPUT / "stdout.log")
        pid = channel.one(TaskStarted, KEY).pid
        assert (tmp_path / OUTPUT / "stderr.log").read_text() == ""
        channel.deliver(plan(promoted(), version=2))
        said = await until_file(tmp_path / OUTPUT / "stderr.log")
        assert said.split() == [str(pid), "True", "1", "3", "none"]
        await until(lambda: channel.of(KEY) == ["TaskStarted", "TaskExited", "TaskReaped"])
        assert channel.one(TaskExited, KEY).exit_code == 0
        record = daemon.tasks.records[KEY]
        assert (record.order.index, record.order.generation) == (1, 3)
        assert record.order.ports == (29_511,)


async def test_a_standby_that_is_stopped_never_has_a_rank(tmp_path: Path) -> None:
    """It is told to end by the signal that every task gets, or by the answer if it keeps that
    back."""
    code = WAITS.replace("print(", "worker.install_sigterm_flag(); print(")
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel) as daemon:
        channel.deliver(plan(standby(code), version=1))
        await until_file(tmp_path / OUTPUT / "stdout.log")
        channel.deliver(plan(stop_order(index=2, generation=2, grace_ms=20_000), version=2))
        await until(lambda: daemon.tasks.records[KEY].phase is Phase.GONE)
        said = (tmp_path / OUTPUT / "stderr.log").read_text()
        assert said.split()[1:] == ["False", "0", "0", "1"]


def test_a_standby_outlives_its_agent_and_is_promoted_by_the_next(host: Host) -> None:
    """It asks until somebody answers; meanwhile it may have been given a rank."""
    host.start()
    host.want(standby())
    pid = host.pid_of(KEY)
    host.kill()
    host.want(promoted())
    host.start()
    host.until(lambda: host.of("TaskExited", KEY))
    assert host.of("TaskExited", KEY)[0].get("exit_code", 0) == 0
    assert host.of("Registered")[1]["tasks"] == {KEY: True}
    assert {started["pid"] for started in host.of("TaskStarted", KEY)} <= {pid}


def test_a_standby_that_dies_while_it_is_promoted_is_the_ranks_end(host: Host) -> None:
    """The order and the exit cross: its end is told under the key that both have."""
    host.start()
    host.want(standby("import time\nwhile True: time.sleep(60)"))
    pid = host.pid_of(KEY)
    host.want(promoted("import time\nwhile True: time.sleep(60)"))
    os.kill(pid, 9)
    host.until(lambda: host.of("TaskReaped", KEY))
    assert [exited["signal"] for exited in host.of("TaskExited", KEY)] == [9]
    assert len(host.of("TaskStarted", KEY)) == 1
