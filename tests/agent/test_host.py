"""What an agent starts with: its directory, its ports, its socket, its configuration."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from coord.agent import AgentConfig, AgentFailed, run_agent
from coord.agent.host import (
    PORT_COUNT,
    NoPorts,
    PortBlock,
    capacity,
    is_free,
    socket_path,
)
from coord.agent.logs import LogLimits
from coord.agent.records import (
    ExitFacts,
    Phase,
    Process,
    Records,
    TaskRecord,
    WrongDirectory,
    without_secrets,
)
from tests.agent.support import FakeChannel, config_for, key, order, plan, running, until

FIRST = 20_000 + os.getpid() % 350 * PORT_COUNT
"""Of this run alone, as others may go on beside it."""
RANGE = (FIRST, FIRST + PORT_COUNT * 8)


def test_agents_on_one_machine_keep_apart() -> None:
    """Each gets ports of its own, below those that Linux gives out; a host gets the same again."""
    blocks = [PortBlock(f"h{n}", RANGE) for n in range(4)]
    ports = [port for block in blocks for port in block.ports]
    assert len(ports) == len(set(ports))
    assert all(RANGE[0] <= port < RANGE[1] for port in ports)
    first = blocks[0].ports
    for block in blocks:
        block.close()
    again = PortBlock("h0", RANGE)
    assert again.ports == first
    again.close()


def test_a_port_in_use_is_not_offered() -> None:
    """Somebody listens on one of the block: the others are offered."""
    block = PortBlock("h0", RANGE)
    block.close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", block.ports[3]))
        taken.listen(1)
        assert not is_free(block.ports[3])
        other = PortBlock("h0", RANGE)
        other.close()
    assert other.ports == tuple(port for port in block.ports if port != block.ports[3])


def test_a_range_that_is_too_small_is_refused() -> None:
    """The message names the range; so does the one for a range that is taken."""
    with pytest.raises(NoPorts, match="20000 to 20010"):
        PortBlock("h", (20_000, 20_010))
    only = PortBlock("h", (FIRST, FIRST + PORT_COUNT))
    with pytest.raises(NoPorts, match=f"{FIRST} to {FIRST + PORT_COUNT}"):
        PortBlock("h", (FIRST, FIRST + PORT_COUNT))
    only.close()


def test_the_socket_path_is_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the data directory where that fits, elsewhere by a fixed name where not."""
    assert socket_path(tmp_path / "d") == tmp_path / "d" / "worker.sock"
    long = tmp_path / ("x" * 120)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    found = socket_path(long)
    assert found.is_relative_to("/run/user/1000")
    assert found == socket_path(long) != socket_path(tmp_path / ("y" * 120))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/" + "z" * 100)
    assert len(os.fsencode(socket_path(long))) < 100


async def test_workers_reach_an_agent_with_a_long_data_directory(tmp_path: Path) -> None:
    """The socket lies elsewhere, in a directory that only we can enter."""
    channel = FakeChannel()
    data_dir = tmp_path / ("x" * 120)
    async with running(config_for(data_dir), channel) as daemon:
        path = daemon.socket_path
        assert not path.is_relative_to(data_dir)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.close()
        await writer.wait_closed()
    path.parent.rmdir()


def test_capacity_is_detected() -> None:
    """At least one CPU and some memory, in thousandths and mebibytes."""
    found = capacity()
    assert found.cpu_millis >= 1_000
    assert found.memory_mib > 64


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    """Everything but the command and the environment, which may be secret."""
    disk = Records.open(tmp_path, "h1", "a", "boot")
    secret = order(("train", "--password", "x"), env={"TOKEN": "y"}, devices=(1, 2), ports=(3,))
    record = TaskRecord(
        without_secrets(secret), Phase.EXITED, Process(1, 2, "boot"), ExitFacts(signal=9, oom=True),
        stopping=True, stop_grace_ms=5,
    )  # fmt: skip
    disk.write(record)
    disk.write(TaskRecord(without_secrets(order(index=1)), Phase.LAUNCHING))
    disk.delete(key(1))
    disk.note_seen(3, 44)
    assert [disk.next_registration(), disk.next_registration()] == [1, 2]
    disk.close()
    again = Records.open(tmp_path, "h1", "b", "boot")
    assert list(again.load()) == [record]
    assert (again.identity.agent, again.seen) == ("a", (3, 44))
    assert again.next_registration() == 3
    again.close()
    content = (tmp_path / "tasks").iterdir().__next__().read_text()
    assert "password" not in content
    assert "TOKEN" not in content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "other"}, "belongs to host 'other', not 'h1'"),
        ({"format": 99}, "format 99"),
        ({"agent": 7}, "cannot be read"),
    ],
)
def test_another_hosts_directory_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """Also one of a newer release, or a damaged one; by name, with what to do."""
    Records.open(tmp_path, "h1", "a", "boot").close()
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(WrongDirectory, match=words):
        Records.open(tmp_path, "h1", "a", "boot")


def test_a_servers_directory_is_refused(tmp_path: Path) -> None:
    """Nothing is written into it."""
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(WrongDirectory, match="data directory of a server"):
        Records.open(tmp_path, "h1", "a", "boot")
    assert [path.name for path in tmp_path.iterdir()] == ["data.mdb"]


def test_a_damaged_record_stops_the_agent(tmp_path: Path) -> None:
    """It may stand for a process that holds a device, so it is not passed over; after a boot of the
    machine it cannot, and is removed."""
    disk = Records.open(tmp_path, "h1", "a", "boot")
    disk.note_seen(1, 0)
    disk.close()
    disk = Records.open(tmp_path, "h1", "a", "boot")
    (tmp_path / "tasks" / "x.json").write_text("{")
    with pytest.raises(WrongDirectory, match=r"x\.json"):
        list(disk.load())
    disk.close()
    disk = Records.open(tmp_path, "h1", "a", "next boot")
    assert list(disk.load()) == []
    assert disk.seen == (0, 0)
    disk.close()
    assert list((tmp_path / "tasks").iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"servers": ()}, "no server"),
        ({"host": "a/b"}, "host id 'a/b'"),
        ({"devices": -1}, "devices is -1"),
        ({"log_limits": LogLimits(segment_bytes=5_000)}, "5000 bytes"),
        ({"port_range": (20_000, 20_010)}, "20000 to 20010"),
        ({"servers": ("ftp://x",)}, "ftp://x"),
    ],
)
async def test_a_bad_configuration_is_refused_with_its_reason(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    """Before anything is started."""
    config = AgentConfig(
        **{"servers": ("http://127.0.0.1:1",), "data_dir": tmp_path, "host": "h1", **fields}
    )
    with pytest.raises(AgentFailed, match=words):
        await run_agent(config, asyncio.Event())


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """The message says which pid has it."""
    disk = Records.open(tmp_path, "h1", "a", "boot")
    with pytest.raises(AgentFailed, match=f"pid {os.getpid()}"):
        await run_agent(config_for(tmp_path), asyncio.Event())
    disk.close()


async def test_an_agent_without_servers_waits_and_stops_when_told(tmp_path: Path) -> None:
    """Nobody listens at the address: it goes on trying, and ends cleanly."""
    stop = asyncio.Event()
    running_agent = asyncio.create_task(run_agent(config_for(tmp_path), stop))
    await until((tmp_path / "worker.sock").exists)
    stop.set()
    assert await running_agent == 0


async def test_tasks_end_with_the_agent_where_asked(tmp_path: Path) -> None:
    """`stop_tasks`: each gets its grace, all are reaped, the coordinator hears of it."""
    channel = FakeChannel()
    async with running(config_for(tmp_path, stop_tasks=True), channel):
        orders = [order(("sleep", "1000"), index=index) for index in range(3)]
        channel.deliver(plan(*orders, version=1))
        await until(lambda: [channel.of(key(index)) for index in range(3)] == [["TaskStarted"]] * 3)
    for index in range(3):
        assert channel.of(key(index)) == ["TaskStarted", "TaskExited", "TaskReaped"]
