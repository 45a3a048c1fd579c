"""The benchmark beside etcd measures what it says: a tiny run of each side, and its arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench.etcd import install, ours, theirs
from tests.bench.etcd.__main__ import bench, measure
from tests.bench.etcd.frames import BINARY, PING, Frames, NotUpgraded, masked
from tests.bench.etcd.sizes import Sizes
from tests.bench.etcd.works import Goal, Work, row, works

TINY = Sizes(
    agents=24,
    period_ms=300,
    lease_ms=2_000,
    windows=3,
    writers=(4,),
    write_s=0.3,
    packers=2,
    packed=10,
    deaths=6,
    single_deaths=2,
    receivers=12,
    changes=1,
)


def test_every_heartbeat_of_a_tiny_fleet_is_counted_once() -> None:
    """24 agents that beat every 0.3 s are about 80 acknowledged beats a second, none lost."""
    values = ours.heartbeats(TINY)
    assert 40 <= values["beat_rate"][0] <= 100
    assert values["beats_lost"] == [0.0]
    assert values["beat_us"][0] > 0
    assert values["memory_mib"][0] > 1


def test_deaths_are_seen_after_the_lease_and_only_of_the_dead() -> None:
    """Late by more than nothing, by less than a lease, and nobody else is declared lost."""
    values = ours.deaths(TINY)
    assert 0 < values["death_s"][0] <= values["death_worst_s"][0] < TINY.lease_ms / 1_000
    assert values["death_false"] == [0.0]
    assert 0 < values["deaths_last_s"][0] < TINY.lease_ms / 1_000


def test_a_change_reaches_every_agent_and_a_report_has_a_row_for_it() -> None:
    """The whole way from the command to the table, without the other side."""
    report = measure(TINY, 1, ("change",), both=False)
    rows = {one.key: one for one in report.rows}
    assert set(rows) == {"change_ms", "placed_ms"}
    assert len(rows["change_ms"].ours_values) == TINY.changes
    assert rows["change_ms"].ours is not None
    assert rows["change_ms"].ours > 0
    assert rows["change_ms"].theirs is None


@pytest.mark.slow
def test_both_sides_measure_the_rows_that_are_judged_by_their_ratio() -> None:
    """Writes on either system; absent etcd, nothing is compared."""
    if not install.found():
        pytest.skip("etcd and its load generator are not here: `make bench-etcd` installs them")
    mine, others = ours.writes(TINY), theirs.writes(TINY)
    assert mine["writes_4"][0] > 0
    assert others["writes_4"][0] > 0
    assert set(others) == set(mine)


def test_a_ratio_is_of_medians_and_a_worst_is_of_all_runs() -> None:
    """Three runs each: 2/8 by medians, 9 by the worst."""
    work = Work("k", "name", "us", Goal(0.25, times_theirs=True))
    found = row(work, [1.0, 2.0, 9.0], [8.0, 8.0, 8.0])
    assert found is not None
    assert (found.ours, found.theirs, found.ratio, found.reached) == (2.0, 8.0, 0.25, True)
    worst = row(Work("k", "name", "s", Goal(0.3), worst=True), [0.1, 0.4], [])
    assert worst is not None
    assert (worst.ours, worst.reached) == (0.4, False)


def test_a_goal_beside_etcd_is_not_judged_without_etcd() -> None:
    """Neither reached nor missed; and what nobody measured has no row."""
    work = Work("k", "name", "1/s", Goal(2, at_most=False, times_theirs=True))
    found = row(work, [5.0], [])
    assert found is not None
    assert found.reached is None
    assert row(work, [], []) is None


def test_every_key_measured_has_a_row() -> None:
    """Of the writes, whose rows depend on the sizes."""
    keys = {work.key for work in works(TINY)}
    assert {"writes_4", "write_us_4", "write_p50_ms_4", "write_client_us_4"} <= keys


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_is_read_whole_however_it_comes_in_pieces(size: int) -> None:
    """Lengths of each form, after the answer to the upgrade, cut at every few bytes."""
    payload = bytes(at % 251 for at in range(size))
    # A server's frame is a client's without the bit and the key of the mask.
    sent = masked(BINARY, payload)
    head = sent[: len(sent) - size - 4]
    unmasked = bytes((head[0], head[1] & 0x7F)) + head[2:] + payload
    stream = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + unmasked + bytes((0x80 | PING, 0))
    frames = Frames()
    step = max(1, len(stream) // 97)
    read = [
        frame for at in range(0, len(stream), step) for frame in frames.feed(stream[at : at + step])
    ]
    assert read == [(BINARY, payload), (PING, b"")]


def test_an_answer_that_is_no_upgrade_is_an_error() -> None:
    """A server that refuses must not look like one that is silent."""
    with pytest.raises(NotUpgraded, match="404"):
        list(Frames().feed(b"HTTP/1.1 404 Not Found\r\n\r\n"))


def test_without_the_load_generator_it_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is missing is named, and the exit code is not that of a comparison that was made."""
    monkeypatch.setattr(install, "SOURCES", tmp_path / "nothing")
    done = CliRunner().invoke(bench, ["--quick"])
    assert done.exit_code == 1
    assert f"{tmp_path / 'nothing'} has no src/etcdload" in done.output
