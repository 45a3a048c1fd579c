"""When a gang has hung, and which ranks are slow, by how fast they were before."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coord.core.causes import pace
from coord.model.settings import EvidenceSettings

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "placement" / "alibaba_gpu_v2020"
DEFAULTS = EvidenceSettings()


@given(st.lists(st.integers(1, 100_000), max_size=80), st.integers(1, 600_000))
def test_no_silence_that_was_seen_before_is_taken_for_a_hang(
    intervals_ms: list[int], floor_ms: int
) -> None:
    """The limit is above every time between steps that is remembered, and never below the floor."""
    limit_ms = pace.learned_ms(tuple(intervals_ms), floor_ms)
    assert limit_ms >= floor_ms
    if len(intervals_ms) >= pace.ENOUGH:
        assert all(limit_ms >= 3 * interval for interval in intervals_ms)


def test_a_gang_of_which_little_is_known_gets_time() -> None:
    assert pace.learned_ms((), 60_000) == 600_000
    assert pace.learned_ms((1_000,) * pace.ENOUGH, 5_000) == 20_000
    assert pace.learned_ms((1_000,) * 60 + (90_000,), 5_000) == 270_000


@given(st.lists(st.integers(1, 10_000), min_size=4, max_size=40))
def test_never_is_more_than_a_quarter_slow(paces: list[int]) -> None:
    """Nor anybody that is not slower than all that are not."""
    ranked = list(enumerate(paces))
    slow, usual = pace.slow_ranks(ranked, DEFAULTS.slow_permille)
    assert len(slow) * 4 <= len(paces)
    for rank, measured in slow:
        assert measured > usual
        assert all(
            measured >= other for at, other in ranked if (at, other) not in slow and at != rank
        )


def suspects(job: int) -> list[int]:
    """Ranks that are suspected in a recorded job: windows as the core forms them. Its workers noted
    every tenth step."""
    path = RECORDED / f"minibatch_job_{job}_norm.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there: recorded traces are not part of this repository")
    windows: dict[int, dict[int, list[int]]] = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            window = int(row["time"]) // DEFAULTS.slow_steps
            spent = windows.setdefault(window, {}).setdefault(int(row["worker"]), [])
            spent.append(round(float(row["batch_time_norm"]) * 1_000))
    times: dict[int, int] = {}
    found: dict[int, None] = {}
    for window in sorted(windows):
        paces = [(rank, sum(own) // len(own)) for rank, own in sorted(windows[window].items())]
        slow, _ = pace.slow_ranks(paces, DEFAULTS.slow_permille)
        times = {rank: times.get(rank, 0) + 1 for rank, _ in slow}
        found.update({rank: None for rank in times if times[rank] >= DEFAULTS.slow_times})
    return sorted(found)


def test_the_straggler_of_a_recorded_job_is_suspected() -> None:
    """Worker 6 of the first job, and nobody else."""
    assert suspects(1) == [6]


@pytest.mark.parametrize("job", [2, 3, 4])
def test_nobody_is_suspected_in_jobs_without_a_straggler(job: int) -> None:
    """Also where half of the workers take twice as long, for their work is another."""
    assert suspects(job) == []
