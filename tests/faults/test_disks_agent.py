"""A real agent on a disk of ours: its machine dies, and comes back as the same host."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
from jepsen_lite.disks.machine import MachineDisk, users

from coord.agent.proctable import boot_id
from coord.model.entities import Host, HostStatus
from tests.faults.disk_cases import disk, disks
from tests.faults.lone_server import LoneServer, wait_until

__all__ = ["disk", "disks"]


@contextlib.contextmanager
def agent_on(disk: MachineDisk, url: str, log: Path) -> Iterator[None]:
    """The agent of host h1, until the machine dies with all that runs on it."""
    command = [sys.executable, "-m", "coord.cli.main", "agent", "--host-id", "h1"]
    command += ["--server", url, "--data", str(disk.directory), "--devices", "2"]
    assert disk.shim is not None
    with log.open("ab") as output:
        agent = subprocess.Popen(
            command, env={**os.environ, **disk.environ()}, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        agent.kill()
        agent.wait()
        for pid in users(disk.shim.control):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                process.kill()
        wait_until("all of the machine is dead", lambda: not users(disk.shim.control))


def test_an_agent_lives_through_power_cuts(disk: MachineDisk, tmp_path: Path) -> None:
    """With its keeper; each life of the host is a new incarnation on a new boot."""
    lives: list[tuple[int, str]] = []

    def up() -> Host | None:
        """The host, once it is up in a life that has not been seen."""
        for host in client.hosts():
            known = lives[-1][0] if lives else 0
            if host.status == HostStatus.UP and host.incarnation > known:
                return host
        return None

    with (
        LoneServer(tmp_path / "server", tmp_path / "server.log", {}) as server,
        server.client() as client,
    ):
        server.wait_until_ready(client)
        for seed in range(3):
            with agent_on(disk, server.url, tmp_path / "agent.log"):
                host = wait_until("h1 is up", up)
                assert host is not None
                lives.append((host.incarnation, host.boot))
            disk.crash(random.Random(seed))
    assert len({boot for _, boot in lives}) == 3
    assert boot_id() not in {boot for _, boot in lives}
    assert disk.shim is not None
    assert disk.shim.syncs > 0
    assert disk.shim.troubles == 0
