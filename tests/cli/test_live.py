"""The commands against a real server and a real agent, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coord.cli.exits import Exit
from tests.free_ports import free_address

COORDCTL = [sys.executable, "-m", "coord.cli.main"]
JOB = """\
name: hello
roles:
  - name: talker
    command: [sh, -c, "echo rank $RANK of $WORLD_SIZE; sleep 0.3; echo done"]
    replicas: 2
    resources: {devices: 1}
"""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 45.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


class Cluster:
    """A server, an agent, and coordctl to talk to them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = free_address()
        self.environment = {**os.environ, "COORD_SERVER": self.address, "COORD_ACTOR": "ann"}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{arguments[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [*COORDCTL, *arguments],
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COORDCTL, *arguments],
            cwd=self.directory,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def json(self, *arguments: str) -> object:
        done = self.run(*arguments, "-o", "json")
        assert done.returncode == Exit.OK, done.stderr
        return json.loads(done.stdout)

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("live"))
    try:
        found.start("server", "--data", "s1", "--api", found.address)
        found.start("agent", "--data", "a1", "--host-id", "h1", "--devices", "2")
        wait_until(lambda: "h1" in found.run("host", "list").stdout, "the host is registered")
        yield found
    finally:
        found.stop()


pytestmark = pytest.mark.xdist_group("cli_live")


def test_a_job_runs_to_its_end_and_is_replayed(cluster: Cluster) -> None:
    """Submitted with --wait, followed with logs -f, exported and replayed: all of it on one job."""
    submitted = cluster.run("job", "submit", "--wait", "-", given=JOB)
    assert submitted.returncode == Exit.OK, submitted.stderr
    assert "hello: completed" in submitted.stderr

    logs = cluster.run("job", "logs", "-f", "hello", "--index", "1")
    assert (logs.returncode, logs.stdout) == (Exit.OK, "rank 1 of 2\ndone\n")

    assert cluster.run("note", "hello", "looked at it").returncode == Exit.OK
    told = cluster.run("events", "--job", "hello").stdout
    assert "JobCompleted" in told
    assert "ann: looked at it" in told

    exported = cluster.run("incident", "export")
    assert exported.returncode == Exit.OK, exported.stderr
    replayed = cluster.run("replay", "incident.log")
    assert (replayed.returncode, replayed.stderr) == (Exit.OK, "")
    assert "JobCompleted" in replayed.stdout
    assert replayed.stdout.endswith("replay matches the record\n")

    lines = cluster.run("incident", "export", "--format", "jsonl", "incident.jsonl")
    assert lines.returncode == Exit.OK, lines.stderr
    assert cluster.run("replay", "--summary", "incident.jsonl").stdout.endswith(
        "replay matches the record\n"
    )

    again = cluster.run("job", "submit", "-", given=JOB)
    assert again.returncode == Exit.FAILED
    assert "a job of this name exists" in again.stderr


def test_what_fits_nowhere_waits_with_its_reason_and_can_be_cancelled(cluster: Cluster) -> None:
    """Impossible resources are no error; the job says what it waits for."""
    job = JOB.replace("hello", "large").replace("devices: 1", "devices: 64")
    assert cluster.run("job", "submit", "-", given=job).returncode == Exit.OK
    shown = cluster.run("job", "show", "large").stdout
    assert "waits for devices: " in shown
    assert cluster.run("job", "cancel", "large", "--reason", "too large").returncode == Exit.OK
    found = cluster.json("job", "show", "large")
    assert isinstance(found, dict)
    assert found["job"]["status"] == "cancelled"


def test_a_host_is_drained_and_given_back(cluster: Cluster) -> None:
    assert cluster.run("host", "drain", "h1", "--reason", "test").returncode == Exit.OK
    assert "drain" in cluster.run("host", "list").stdout
    assert cluster.run("host", "undrain", "h1").returncode == Exit.OK
    assert "drain" not in cluster.run("host", "list").stdout
    assert cluster.run("host", "show", "absent").returncode == Exit.FAILED


def test_following_events_ends_cleanly_with_ctrl_c(cluster: Cluster) -> None:
    """It prints what happens as it happens, then 130 and no traceback."""
    with subprocess.Popen(
        [*COORDCTL, "events", "-f", "--from", "1"],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert b"LeaderElected" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (Exit.INTERRUPTED, b"\n")


def test_a_port_in_use_is_one_paragraph(cluster: Cluster) -> None:
    """It names the address and what to do."""
    done = cluster.run("server", "--data", "s2", "--api", cluster.address)
    assert done.returncode == Exit.FAILED
    assert done.stderr.startswith(
        f"coordctl: the server did not start: api_listen is '{cluster.address}'"
    )
    assert "Traceback" not in done.stderr


def test_a_server_ends_cleanly_with_sigterm(tmp_path: Path) -> None:
    """Exit code 0; and coordctl then says that nobody answers, with exit code 3."""
    alone = Cluster(tmp_path)
    try:
        server = alone.start("server", "--data", "s1", "--api", alone.address)
        wait_until(lambda: alone.run("cluster", "status").returncode == Exit.OK, "it leads")
        server.terminate()
        assert server.wait(timeout=30) == 0, (tmp_path / "server.log").read_text()
    finally:
        alone.stop()
    away = alone.run("cluster", "status", "--timeout", "0.5")
    assert away.returncode == Exit.UNAVAILABLE
    assert "Nothing was changed" in away.stderr
