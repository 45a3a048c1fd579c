"""`coordctl up` in a terminal: what it prints, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from coord.cli.processes import MARK
from tests.free_ports import free_block
from tests.integration.cluster import ROOT

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[Start]:
    """Starts `coordctl up`; kills what is left of it at the end."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "coord.cli.main", "up", "--data", str(tmp_path / "data")]
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it printed up to and with the line that holds the text."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    raise AssertionError(f"it ended without {text!r}:\n{read}")


def processes_below(directory: Path) -> list[psutil.Process]:
    """Live processes of a local cluster that name the directory on their command line or socket."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if MARK in environment and process.status() != psutil.STATUS_ZOMBIE:
                named = " ".join(process.cmdline()) + environment.get("COORD_SOCKET", "")
                if str(directory) in named:
                    found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_gone(directory: Path) -> None:
    deadline = time.monotonic() + 30
    while processes_below(directory):
        assert time.monotonic() < deadline, processes_below(directory)
        time.sleep(0.05)


def start_ready(start_up: Start, tmp_path: Path) -> subprocess.Popen[str]:
    """`up` with one server and a job of one endless task, once that runs."""
    port = free_block(0, 1, 2, 100, 101, 102)
    process = start_up("--nodes", "1", "--agents", "1", "--first-port", str(port))
    said = read_until(process, "Ctrl-C ends everything")
    url = f"http://127.0.0.1:{port}"
    assert url in said
    job = tmp_path / "sleep.yaml"
    job.write_text("name: sleep\nroles: [{name: sleeper, command: [sleep, '3600']}]\n")
    submit = [sys.executable, "-m", "coord.cli.main", "job", "submit", str(job), "--server", url]
    subprocess.run(submit, check=True, timeout=60, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not [one for one in processes_below(tmp_path) if one.name() == "sleep"]:
        assert time.monotonic() < deadline, "the task never ran"
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(start_up: Start, tmp_path: Path, number: int) -> None:
    """Ctrl-C and the death of the terminal end servers, agents and tasks, in good order."""
    process = start_ready(start_up, tmp_path)
    process.send_signal(number)
    assert process.wait(timeout=60) == 0
    assert processes_below(tmp_path) == []


def test_even_kill_9_leaves_nothing_behind(start_up: Start, tmp_path: Path) -> None:
    """The guard outlives its parent by the moment it needs."""
    process = start_ready(start_up, tmp_path)
    process.kill()
    process.wait()
    wait_gone(tmp_path)


def test_a_port_in_use_is_named(start_up: Start) -> None:
    """With the option that helps, and before anything was started."""
    port = free_block(0, 1, 2, 100, 101, 102)
    with socket.create_server(("127.0.0.1", port)):
        process = start_up("--first-port", str(port))
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"port {port}" in said
    assert "--first-port" in said


def test_it_says_when_a_process_ended_and_starts_nothing_again(
    start_up: Start, tmp_path: Path
) -> None:
    """The person killed it to see what the others do."""
    process = start_ready(start_up, tmp_path)
    (agent,) = [one for one in processes_below(tmp_path) if "agent" in one.cmdline()]
    agent.kill()
    assert "host-1 was ended by signal 9" in read_until(process, "signal 9")
    assert "agent" in read_until(process, "to start it again")
    assert [one for one in processes_below(tmp_path) if "agent" in one.cmdline()] == []


def test_the_next_up_goes_on_from_there(start_up: Start, tmp_path: Path) -> None:
    """Jobs are kept in the data directory."""
    process = start_ready(start_up, tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    again = start_up("--nodes", "1", "--agents", "1")
    read_until(again, "Ctrl-C ends everything")
    deadline = time.monotonic() + 60
    while not [one for one in processes_below(tmp_path) if one.name() == "sleep"]:
        assert time.monotonic() < deadline, "the task was not started again"
        time.sleep(0.05)
    other = start_up("--nodes", "3")
    said, _ = other.communicate(timeout=60)
    assert other.returncode == 1
    assert "--nodes 1" in said
