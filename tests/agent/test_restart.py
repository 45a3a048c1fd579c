"""The agent is killed and started again; its tasks do not notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from coord.agent.proctable import read_entry
from coord.model.plans import TaskOrder
from tests.agent.hosts import Host
from tests.agent.support import key, order, python, stop_order


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.clean()


def sleeper() -> TaskOrder:
    return order(("sleep", "1000"))


def test_training_goes_on_and_the_exit_is_seen_by_the_next_agent(host: Host) -> None:
    """kill -9 of the agent alone: the same process is found again, and how it ends is told as if
    its own agent had seen it: by signal here, though it is nobody's child any more."""
    host.start()
    host.want(sleeper())
    pid = host.pid_of(key())
    started = read_entry(pid)
    host.kill()
    host.start()
    host.until(lambda: len(host.of("Registered")) == 2)
    assert host.of("Registered")[1]["tasks"] == {key(): True}
    assert read_entry(pid) is not None
    assert read_entry(pid).start_ticks == started.start_ticks  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSEGV)
    host.until(lambda: host.of("TaskReaped", key()))
    exited = host.of("TaskExited", key())
    assert len(exited) == 1
    assert exited[0]["signal"] == signal.SIGSEGV
    assert exited[0].get("observed", True)


def test_an_adopted_process_is_stopped_by_plan(host: Host) -> None:
    """Grace, kill and reaping work on what an earlier agent started."""
    host.start()
    host.want(order(python("import time\nwhile True: time.sleep(60)")))
    pid = host.pid_of(key())
    host.kill()
    host.want(stop_order(grace_ms=2_000))
    host.start()
    host.until(lambda: host.of("TaskReaped", key()))
    assert host.of("TaskExited", key())[0]["signal"] == signal.SIGTERM
    assert host.of("TaskExited", key())[0]["expected"]
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_who_ends_without_an_agent_is_told_as_gone(host: Host, tmp_path: Path) -> None:
    """A process that ended while there was no agent is reported, with its status where the kernel
    still knows it, else as not observed; its output and error are there either way."""
    ready = tmp_path / "go"
    code = (
        "import os, sys, time\n"
        f"while not os.path.exists({str(ready)!r}): time.sleep(0.005)\n"
        "print('last words', file=sys.stderr)\n"
        "sys.exit(4)"
    )
    host.start()
    host.want(order(python(code)))
    pid = host.pid_of(key())
    host.kill()
    ready.touch()
    host.until(lambda: (entry := read_entry(pid)) is None or entry.zombie)
    host.start()
    host.until(lambda: host.of("TaskReaped", key()))
    assert host.of("Registered")[1]["tasks"] in ({key(): True}, {key(): False})
    exited = host.of("TaskExited", key())
    assert len(exited) == 1
    assert exited[0]["stderr_tail"] == "last words"
    assert exited[0].get("exit_code", 0) == (4 if exited[0].get("observed", True) else 0)


def test_a_pid_given_to_somebody_else_is_left_alone(host: Host) -> None:
    """The record's pid stands for a younger process: that one is not ours, and not touched."""
    host.start()
    host.want(sleeper())
    pid = host.pid_of(key())
    entry = read_entry(pid)
    assert entry is not None
    host.kill()
    os.kill(pid, signal.SIGKILL)
    # A pid is not given out again within one tick of the kernel's clock.
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    host.until(
        lambda: time.clock_gettime(time.CLOCK_BOOTTIME) * ticks_per_s > entry.start_ticks + 1
    )
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        path = next((host.data / "tasks").glob("*.json"))
        record = json.loads(path.read_text())
        record["process"]["pid"] = stranger.pid
        path.write_text(json.dumps(record))
        host.want(stop_order())
        host.start()
        host.until(lambda: host.of("TaskReaped", key()))
        exited = host.of("TaskExited", key())[0]
        # Unless the keeper saw how the real one ended and said so in time.
        assert exited.get("observed", True) is False or exited["signal"] == signal.SIGKILL
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_launch_cut_short_is_resolved_by_its_mark(host: Host) -> None:
    """The agent died between starting a process and writing down its pid: the process is found by
    the mark in its environment. Where there is none, the launch failed."""
    host.start()
    host.want(sleeper(), order(("sleep", "1000"), index=1))
    pid = host.pid_of(key())
    other = host.pid_of(key(1))
    host.kill()
    os.kill(other, signal.SIGKILL)
    for path in (host.data / "tasks").glob("*.json"):
        record = json.loads(path.read_text())
        del record["process"]
        record["phase"] = "launching"
        path.write_text(json.dumps(record))
    host.start()
    host.until(lambda: host.of("LaunchFailed", key(1)) and host.of("TaskReaped", key(1)))
    assert [event["pid"] for event in host.of("TaskStarted", key())] == [pid]
    assert host.of("Registered")[1]["tasks"] == {key(): True, key(1): False}


def test_a_stopping_agent_leaves_its_tasks(host: Host) -> None:
    """SIGTERM to the agent, as in an upgrade, disturbs no task; a second agent goes on."""
    host.start()
    host.want(sleeper())
    pid = host.pid_of(key())
    host.kill(signal.SIGTERM)
    assert "its tasks go on" in (host.data / "agent.log").read_text()
    assert read_entry(pid) is not None
    host.start()
    host.until(lambda: len(host.of("Registered")) == 2)
    host.want()
    host.until(lambda: host.of("TaskReaped", key()))


def test_an_outage_of_the_coordinator_disturbs_nothing(host: Host) -> None:
    """An agent started while the coordinator is away adopts its tasks, and tells of what ended
    meanwhile once it can."""
    host.start()
    host.want(sleeper(), order(("sleep", "1000"), index=1))
    pid, other = host.pid_of(key()), host.pid_of(key(1))
    host.kill()
    (host.coordinator / "away").touch()
    host.start()
    host.until(lambda: "task found again" in (host.data / "agent.log").read_text())
    os.kill(other, signal.SIGKILL)
    host.until(lambda: "task reaped" in (host.data / "agent.log").read_text())
    assert len(host.of("Registered")) == 1
    assert read_entry(pid) is not None
    (host.coordinator / "away").unlink()
    host.until(lambda: host.of("TaskReaped", key(1)))
    assert list(host.of("Registered")[1]["tasks"]) == [key(), key(1)]
    assert host.of("TaskExited", key(1))[0]["signal"] == signal.SIGKILL
    assert not host.of("TaskExited", key())


def test_a_stopped_agent_looks_at_the_clock_first(tmp_path: Path) -> None:
    """SIGSTOP for longer than the lease, without a keeper: on waking, before it hears that all is
    well again, the agent ends its exclusive task, which may run elsewhere by now."""
    host = Host(tmp_path, lease_ms=1_500)
    try:
        host.start()
        host.want(order(("sleep", "1000"), exclusive=True), order(("sleep", "1000"), index=1))
        host.pid_of(key())
        other = host.pid_of(key(1))
        assert host.agent is not None
        host.agent.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        host.until(lambda: time.monotonic() > stopped + 1.6)
        host.agent.send_signal(signal.SIGCONT)
        host.until(lambda: host.of("TaskReaped", key()))
        assert "exclusive" in host.of("TaskExited", key())[0]["error"]
        assert read_entry(other) is not None
        assert not host.of("TaskExited", key(1))
    finally:
        host.clean()


def test_two_agents_do_not_share_a_directory(host: Host) -> None:
    """The second one says who is there and ends."""
    host.start()
    host.until(lambda: host.of("Registered"))
    assert host.agent is not None
    second = subprocess.run(
        host.command(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode != 0
    assert f"is in use by the agent with pid {host.agent.pid}" in second.stderr
    assert host.agent.poll() is None
