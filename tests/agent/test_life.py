"""The life of a task as real processes lead it and as the coordinator hears of it."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from coord.agent.records import Phase
from coord.model.events import LaunchFailed, TaskExited, TaskReaped, TaskStarted
from tests.agent.support import (
    FakeChannel,
    config_for,
    key,
    order,
    plan,
    python,
    read_all,
    running,
    stop_order,
    until,
    until_file,
)

WHOLE_LIFE = ["TaskStarted", "TaskExited", "TaskReaped"]


async def test_a_task_is_launched_exits_and_is_reaped(tmp_path: Path) -> None:
    """Each fact is reported once, in order, and the record stays while the plan has the task."""
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel) as daemon:
        channel.deliver(plan(order(("sh", "-c", "echo out; echo err >&2; exit 3")), version=1))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        exited = channel.one(TaskExited, key())
        assert (exited.exit_code, exited.signal, exited.observed, exited.expected) == (
            3, 0, True, False,
        )  # fmt: skip
        assert exited.stderr_tail == "err"
        assert await read_all(channel, key(), "stdout") == b"out\n"
        assert key() in daemon.tasks.records
        channel.deliver(plan(version=2))
        await until(lambda: not daemon.tasks.records)
        assert list((tmp_path / "tasks").iterdir()) == []
        assert await read_all(channel, key(), "stderr") == b"err\n"


async def test_a_signal_is_told_apart_from_a_code(tmp_path: Path) -> None:
    """A process that dies of SIGSEGV reports the signal and no code."""
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(("sh", "-c", "kill -SEGV $$")), version=1))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        exited = channel.one(TaskExited, key())
        assert (exited.exit_code, exited.signal, exited.oom) == (0, signal.SIGSEGV, False)


async def test_the_error_file_is_told(tmp_path: Path) -> None:
    """What a torchelastic error handler writes becomes the exit's error."""
    channel = FakeChannel()
    code = (
        "import os, json\n"
        "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
        "    json.dump({'message': {'message': 'RuntimeError: boom', 'extraInfo': {}}}, file)\n"
        "raise SystemExit(1)"
    )
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(python(code)), version=1))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        assert channel.one(TaskExited, key()).error == "RuntimeError: boom"


async def test_the_worker_contract_is_in_the_environment(tmp_path: Path) -> None:
    """What the order says is set, what only the agent knows is added, and what would make a task
    take the agent's launcher for its own is not inherited."""
    channel = FakeChannel()
    config = config_for(
        tmp_path, environment={"PATH": os.environ["PATH"], "RANK": "77", "COORD_JOB": "other"}
    )
    async with running(config, channel):
        channel.deliver(
            plan(order(("env",), env={"COORD_JOB": "job", "PATH": "/usr/bin:/bin"}), version=1)
        )
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        lines = (await read_all(channel, key(), "stdout")).decode().splitlines()
        env = dict(line.split("=", 1) for line in lines)
        assert "RANK" not in env
        assert env["COORD_JOB"] == "job"
        assert env["COORD_TASK"] == key()
        assert env["COORD_HOST"] == "h1"
        assert env["COORD_SOCKET"] == str(tmp_path / "worker.sock")
        assert env["TORCHELASTIC_ERROR_FILE"].startswith(str(tmp_path / "logs/job/role/0/gen-1/"))


@pytest.mark.parametrize(
    ("command", "fields", "words"),
    [
        (("/no/such/program",), {}, "/no/such/program"),
        (("true",), {"workdir": "/no/such/directory"}, "/no/such/directory"),
        (("/etc/passwd",), {}, "Permission denied"),
    ],
)
async def test_what_cannot_be_started_is_the_users_error(
    tmp_path: Path, command: tuple[str, ...], fields: dict[str, str], words: str
) -> None:
    """The report names what is missing, and the run is over."""
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(command, **fields), version=1))
        await until(lambda: channel.of(key()) == ["LaunchFailed", "TaskReaped"])
        failed = channel.one(LaunchFailed, key())
        assert failed.user_error
        assert words in failed.error


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """A rendezvous port that somebody else listens on fails the launch, as nobody's fault."""
    channel = FakeChannel()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        async with running(config_for(tmp_path), channel):
            channel.deliver(plan(order(ports=(port,)), version=1))
            await until(lambda: channel.of(key()) == ["LaunchFailed", "TaskReaped"])
            failed = channel.one(LaunchFailed, key())
            assert not failed.user_error
            assert str(port) in failed.error


async def test_a_task_name_leads_nowhere_else(tmp_path: Path) -> None:
    """A key that would leave the log directory is refused."""
    from msgspec.structs import replace

    channel = FakeChannel()
    bad = replace(order(), task="../role/0#1", job="..")
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(bad, version=1))
        await until(lambda: channel.of("../role/0#1") == ["LaunchFailed", "TaskReaped"])
        assert not (tmp_path.parent / "role").exists()


async def test_a_stop_order_gives_grace(tmp_path: Path) -> None:
    """SIGTERM comes first; a process that ends by itself within its grace is not killed."""
    channel = FakeChannel()
    ready = tmp_path / "ready"
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saving'), sys.exit(0)))\n"
        f"open({str(ready)!r}, 'w').write('up\\n')\n"
        "while True: time.sleep(60)"
    )
    async with running(config_for(tmp_path / "data"), channel):
        channel.deliver(plan(order(python(code)), version=1))
        await until_file(ready)
        channel.deliver(plan(stop_order(), version=2))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        exited = channel.one(TaskExited, key())
        assert (exited.exit_code, exited.signal, exited.expected) == (0, 0, True)
        assert await read_all(channel, key(), "stdout") == b"saving\n"


async def test_who_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """SIGKILL ends what SIGTERM did not; a later order with a shorter grace hastens it."""
    channel = FakeChannel()
    ready = tmp_path / "ready"
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(ready)!r}, 'w').write('up\\n')\n"
        "while True: time.sleep(60)"
    )
    async with running(config_for(tmp_path / "data"), channel) as daemon:
        channel.deliver(plan(order(python(code)), version=1))
        await until_file(ready)
        channel.deliver(plan(stop_order(grace_ms=3_600_000), version=2))
        await until(lambda: daemon.tasks.records[key()].stopping)
        channel.deliver(plan(stop_order(grace_ms=100), version=3))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        exited = channel.one(TaskExited, key())
        assert (exited.signal, exited.expected, exited.oom) == (signal.SIGKILL, True, False)


async def test_a_task_in_no_plan_is_stopped_and_reaped(tmp_path: Path) -> None:
    """What the newest plan does not name is not to be here."""
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel) as daemon:
        channel.deliver(plan(order(("sleep", "1000")), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted"])
        channel.deliver(plan(version=2))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        await until(lambda: not daemon.tasks.records)


DOUBLE_FORK = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + '.new', 'w') as file:
            file.write(f'{os.getpid()}\\n')
        os.rename(sys.argv[1] + '.new', sys.argv[1])
        while True: time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
if sys.argv[2] == 'exit': sys.exit(0)
while True: time.sleep(60)
"""


@pytest.mark.parametrize("how", ["exit", "stop", "killed"])
async def test_grandchildren_that_slipped_away_are_reaped(tmp_path: Path, how: str) -> None:
    """A double-forked process in a session of its own, which ignores SIGTERM, is found and killed
    before the task counts as reaped: after its main process ended by itself, was stopped, or was
    killed by somebody."""
    channel = FakeChannel()
    pid_file = tmp_path / "pid"
    async with running(config_for(tmp_path / "data"), channel):
        task = order((*python(DOUBLE_FORK), str(pid_file), how), grace_ms=300)
        channel.deliver(plan(task, version=1))
        grandchild = psutil.Process(int(await until_file(pid_file)))
        await until(lambda: channel.of(key())[:1] == ["TaskStarted"])
        main = channel.one(TaskStarted, key()).pid
        assert os.getsid(grandchild.pid) != main
        if how == "stop":
            channel.deliver(plan(stop_order(grace_ms=300), version=2))
        elif how == "killed":
            os.kill(main, signal.SIGKILL)
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
        assert channel.one(TaskReaped, key())


async def test_devices_pass_on_only_when_reaped(tmp_path: Path) -> None:
    """The next generation starts after the last process of the one before is gone, although both
    orders came in one plan."""
    channel = FakeChannel()
    ready = tmp_path / "ready"
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(ready)!r}, 'w').write('up\\n')\n"
        "while True: time.sleep(60)"
    )
    first, second = key(generation=1), key(generation=2)
    async with running(config_for(tmp_path / "data"), channel) as daemon:
        channel.deliver(plan(order(python(code), devices=(0, 1)), version=1))
        await until_file(ready)
        channel.deliver(
            plan(
                stop_order(grace_ms=100, devices=(0, 1)),
                order(("sleep", "1000"), generation=2, devices=(1,)),
                version=2,
            )
        )
        await until(lambda: channel.of(second) == ["TaskStarted"])
        assert channel.of(first) == WHOLE_LIFE
        names = [(type(event).__name__, event.task) for event in channel.events]
        assert names.index(("TaskReaped", first)) < names.index(("TaskStarted", second))
        assert daemon.tasks.records[first].phase is Phase.GONE
        channel.deliver(plan(version=3))
        await until(lambda: channel.of(second) == WHOLE_LIFE)


async def test_output_of_a_failed_task_is_bounded_and_lenient(tmp_path: Path) -> None:
    """The tail of stderr is short, whole lines at its end, and decodes whatever is there."""
    channel = FakeChannel()
    code = (
        "import os\nos.write(2, b'x\\n' * 100_000 + b'\\xff\\xfe bad\\nlast')\nraise SystemExit(1)"
    )
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(python(code)), version=1))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
        tail = channel.one(TaskExited, key()).stderr_tail
        assert tail.splitlines()[-2:] == ["\ufffd\ufffd bad", "last"]
        assert len(tail.encode()) <= 5_000
        assert len(tail.splitlines()) == 20


async def test_the_agents_own_files_are_plain(tmp_path: Path) -> None:
    """Who it is and the newest plan it obeyed are on disk."""
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(), version=41))
        await until(lambda: channel.of(key()) == WHOLE_LIFE)
    assert json.loads((tmp_path / "agent.json").read_text())["host"] == "h1"
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["incarnation"], seen["version"]) == (1, 41)
