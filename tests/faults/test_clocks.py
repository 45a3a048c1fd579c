"""A server's wall clock, bent through its own seam."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from jepsen_lite.clocks import ClockSeam
from structlog.testing import capture_logs

from coord.client.sync import SyncClient
from coord.node.ports import CLOCK_OFFSET_LIMIT_MS, OffsetClock
from tests.faults.lone_server import LoneServer

HOUR_MS = 3_600_000


class Noon:
    def wall_ms(self) -> int:
        return 1_000_000_000


def test_the_clock_follows_the_file(tmp_path: Path) -> None:
    """Either way, at once, and back when the file is gone."""
    seam = ClockSeam(tmp_path / "somewhere" / "offset")
    clock = OffsetClock(seam.file, Noon())
    assert clock.wall_ms() == 1_000_000_000
    seam.skew(-1_500)
    assert clock.wall_ms() == 999_998_500
    seam.jump(2_000)
    assert (seam.offset_ms, clock.wall_ms()) == (500, 1_000_000_500)
    seam.heal()
    seam.heal()
    assert (seam.offset_ms, clock.wall_ms()) == (0, 1_000_000_000)


@pytest.mark.parametrize(
    "content", [b"", b"soon", b"1.5", b"\xff", str(CLOCK_OFFSET_LIMIT_MS + 1).encode()]
)
def test_what_cannot_be_understood_changes_nothing(tmp_path: Path, content: bytes) -> None:
    """The last good value stays, and the log says so once for each time that it goes wrong."""
    file = tmp_path / "offset"
    clock = OffsetClock(file, Noon())
    file.write_bytes(b"250\n")
    assert clock.offset_ms() == 250
    with capture_logs() as logs:
        for _ in range(2):
            file.write_bytes(content)
            assert [clock.offset_ms() for _ in range(3)] == [250, 250, 250]
            file.write_bytes(b"250")
            assert clock.offset_ms() == 250
    assert [line["event"] for line in logs] == ["clock_offset_unreadable"] * 2
    assert logs[0]["keeping_ms"] == 250


def test_a_directory_in_its_place_changes_nothing(tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert OffsetClock(tmp_path, Noon()).wall_ms() == 1_000_000_000
    assert [line["log_level"] for line in logs] == ["warning"]


def test_a_running_server_lives_by_the_bent_clock(tmp_path: Path) -> None:
    """It warns at its start, stamps its log with the bent time, and outlives a file of nonsense."""
    seam = ClockSeam(tmp_path / "offset")
    with LoneServer(tmp_path / "data", tmp_path / "server.log", seam.environ()) as server:
        with server.client() as client:
            server.wait_until_ready(client)
            seam.skew(HOUR_MS)
            assert _ahead_ms(client, "ahead") > HOUR_MS - 10_000
            seam.file.write_text("an hour")
            assert _ahead_ms(client, "nonsense") > HOUR_MS - 10_000
            seam.heal()
            _ahead_ms(client, "healed")
        assert server.running
    text = server.log.read_text()
    assert text.count("clock_is_bent") == 1
    assert text.count("clock_offset_unreadable") == 1


def _ahead_ms(client: SyncClient, text: str) -> float:
    """How far ahead of ours the time is under which the server writes this into its log."""
    written = client.note("clock", text)
    (recorded,) = client.events(written.index, 1).events
    return recorded.entry.wall_ms - time.time() * 1_000
