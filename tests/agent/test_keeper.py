"""What happens on a host while its agent is dead or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from coord.agent import keeper
from coord.agent.proctable import read_entry
from coord.model.plans import TaskOrder
from coord.model.settings import Settings
from tests.agent.hosts import Host
from tests.agent.support import key, order, python

LEASE_MS = 4_000


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, LEASE_MS, keeper=True)
    yield made
    made.clean()
    # Without an agent and without tasks it has nothing to stay for.
    made.until(lambda: not keeper.is_there(made.data))


def gone(pid: int) -> bool:
    entry = read_entry(pid)
    return entry is None or entry.zombie


def exclusive(index: int = 0) -> TaskOrder:
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1)\ntime.sleep(999)"
    return order(python(code), index=index, exclusive=True)


def with_a_running_task(host: Host, *orders: TaskOrder) -> list[int]:
    host.start()
    host.want(*orders)
    pids = [host.pid_of(one.task) for one in orders]
    host.until(lambda: keeper.is_there(host.data))
    host.until((host.data / "lease.json").exists)
    return pids


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_exclusive_tasks_end_in_time_without_their_agent(host: Host, how: int) -> None:
    """The agent is killed, or hangs: its exclusive task is gone before it may start elsewhere,
    another one runs on. The next agent tells why it ended."""
    lost, other = with_a_running_task(host, exclusive(), order(("sleep", "1000"), index=1))
    assert host.agent is not None
    host.agent.send_signal(how)
    fenced_at = time.monotonic() + (LEASE_MS + Settings().fence_ms) / 1000
    host.until(lambda: gone(lost))
    assert time.monotonic() < fenced_at
    assert not gone(other)
    host.kill()
    host.start()
    host.until(lambda: host.of("TaskReaped", key()))
    exited = host.of("TaskExited", key())[-1]
    assert exited["signal"] == signal.SIGKILL
    assert "exclusive" in exited["error"]
    assert not host.of("TaskExited", key(1))


def test_an_agent_that_is_back_in_time_keeps_its_exclusive_task(host: Host) -> None:
    """Restarted within the lease, it registers and the deadline moves on."""
    (pid,) = with_a_running_task(host, exclusive())
    host.kill()
    killed = time.monotonic()
    host.start()
    host.until(lambda: len(host.of("Registered")) == 2)
    host.until(lambda: time.monotonic() > killed + LEASE_MS / 1000)
    assert not gone(pid)


def test_the_keeper_outlives_a_disk_that_takes_no_note(host: Host) -> None:
    """It goes on watching, and notes how the task ended as soon as it can."""
    (pid,) = with_a_running_task_of(host, "import time\ntime.sleep(999)")
    host.until(lambda: _watches(host, pid))
    host.kill()
    (host.data / "exits").write_text("in the way")
    os.kill(pid, signal.SIGKILL)
    host.until(lambda: read_entry(pid) is None)
    looks_until = time.monotonic() + 2 * keeper.LOOK_S
    host.until(lambda: time.monotonic() > looks_until)
    assert keeper.is_there(host.data)
    (host.data / "exits").unlink()
    host.until(lambda: list((host.data / "exits").glob("*.json")))


@pytest.mark.parametrize("code", [0, 4])
def test_how_a_task_ended_without_its_agent_is_known(host: Host, tmp_path: Path, code: int) -> None:
    """Success and failure are told apart though nobody of ours was the parent, and though it was
    reaped long before the next agent."""
    go = tmp_path / "go"
    program = (
        "import os, time\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.005)\n"
        f"os._exit({code})"
    )
    (pid,) = with_a_running_task_of(host, program)
    host.until(lambda: _watches(host, pid))
    host.kill()
    go.touch()
    host.until(lambda: list((host.data / "exits").glob("*.json")))
    host.until(lambda: read_entry(pid) is None)
    host.start()
    host.until(lambda: host.of("TaskReaped", key()))
    exited = host.of("TaskExited", key())
    assert len(exited) == 1
    assert exited[0].get("observed", True)
    assert exited[0].get("exit_code", 0) == code
    host.want()
    host.until(lambda: not list((host.data / "exits").glob("*.json")))


def with_a_running_task_of(host: Host, program: str) -> list[int]:
    host.start()
    host.want(order(python(program)))
    pids = [host.pid_of(key())]
    host.until(lambda: keeper.is_there(host.data))
    return pids


def _watches(host: Host, pid: int) -> bool:
    """Whether the keeper holds a pidfd of this process."""
    found = [
        process
        for process in psutil.process_iter()
        if "coord.agent.keeper" in " ".join(_command(process))
        and str(host.data) in _command(process)
    ]
    for process in found:
        directory = Path(f"/proc/{process.pid}/fdinfo")
        for name in os.listdir(directory):
            try:
                content = (directory / name).read_text()
            except FileNotFoundError:
                continue
            if f"Pid:\t{pid}\n" in content:
                return True
    return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def test_a_second_keeper_ends_at_once(host: Host) -> None:
    """One is enough."""
    with_a_running_task_of(host, "import time; time.sleep(999)")
    done = subprocess.run(
        [sys.executable, "-m", "coord.agent.keeper", host.data],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (host.data / "keeper.log").read_text() == ""


def test_a_keeper_stays_small() -> None:
    """It imports neither the network nor the client library."""
    code = (
        "import coord.agent.keeper, sys\n"
        "print([name for name in ('aiohttp', 'asyncio', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
