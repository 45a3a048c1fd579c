"""A real server on a disk of ours: it runs as ever, and lives through what disks do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from jepsen_lite.disks.machine import MachineDisk
from jepsen_lite.disks.port import FULL

from coord.client.errors import NotDone
from coord.client.sync import SyncClient
from coord.model.events import NoteAdded
from tests.faults.disk_cases import disk, disks
from tests.faults.lone_server import LoneServer, wait_until

__all__ = ["disk", "disks"]


def notes(client: SyncClient) -> list[str]:
    """All that was written with `note`, in order."""
    events = (recorded.entry.event for recorded in client.events(1, 10_000).events)
    return [event.text for event in events if isinstance(event, NoteAdded)]


def test_a_server_lives_through_power_cuts(disk: MachineDisk, tmp_path: Path) -> None:
    """Whatever it acknowledged is in its log, once and in order, life after life."""
    written: list[str] = []
    with LoneServer(disk.directory, tmp_path / "log", disk.environ()) as server:
        for seed in range(3):
            with server.client() as client:
                server.wait_until_ready(client)
                assert notes(client) == written
                for number in range(10):
                    client.note("power", f"{seed}/{number}")
                    written.append(f"{seed}/{number}")
                if seed == 1:
                    client.snapshot()
            server.kill()
            disk.crash(random.Random(seed))
            server.start()
        with server.client() as client:
            server.wait_until_ready(client)
            assert notes(client) == written
    assert disk.shim is not None
    assert disk.shim.syncs > 0


def test_a_disk_that_lies_is_found_out(disk: MachineDisk, tmp_path: Path) -> None:
    """The server starts again, without all that it had acknowledged."""
    with LoneServer(disk.directory, tmp_path / "log", disk.environ()) as server:
        with server.client() as client:
            server.wait_until_ready(client)
            client.note("power", "kept")
            disk.swallow_syncs()
            for number in range(20):
                client.note("power", str(number))
        server.kill()
        assert disk.lose_unsynced(random.Random(2)).syncs > 1
        server.start()
        with server.client() as client:
            server.wait_until_ready(client)
            left = notes(client)
    assert left == ["kept", *map(str, range(20))][: len(left)]
    assert 1 <= len(left) < 21


def test_a_server_is_full_and_slow_and_gets_well(disk: MachineDisk, tmp_path: Path) -> None:
    """A full disk refuses writes for certain; a slow one takes them; both end with `heal`."""
    if FULL not in disk.can:
        pytest.skip("the disk cannot be full here: mounting a tmpfs needs root")
    with LoneServer(disk.directory, tmp_path / "log", disk.environ()) as server:
        with server.client() as client:
            server.wait_until_ready(client)
            disk.slow_fsync(100)
            client.note("disk", "slow")
            disk.heal()
            disk.fill()
            wait_until("the server refuses for want of room", lambda: refused(client))
            disk.heal()
            wait_until("the server takes writes again", lambda: not refused(client))
            assert "slow" in notes(client)
        assert server.running


def refused(client: SyncClient) -> bool:
    """Whether a write of 20 kB is turned away for certain, for want of room."""
    try:
        client.submit(NoteAdded("tester", "disk", "x" * 20_000), timeout_s=1.0)
    except NotDone as error:
        if error.reason == "read_only":
            return True
        raise
    return False
