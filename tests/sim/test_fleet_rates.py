"""The failure model against what was recorded, where the data is at hand."""

from __future__ import annotations

import csv
import io
import lzma
from collections import Counter
from pathlib import Path
from statistics import mean, median

import pytest
from coord_sim.fleet.causes import CAUSES
from coord_sim.fleet.policy import Failures, Policy
from coord_sim.fleet.schedule import Strike, draw, log_normal_ms

FAILURES = Path(__file__).parents[3] / "shared" / "data" / "failures"
GPUS, DAYS = 16_384, 54
GPU_DAYS = GPUS * DAYS

recorded = pytest.mark.skipif(
    not FAILURES.is_dir(), reason=f"the recorded failures are not at hand: no {FAILURES}"
)


@recorded
def test_the_rates_are_those_of_the_published_run() -> None:
    """Every component of its table is counted under exactly one cause."""
    with (FAILURES / "published_rates/llama3_405b_unplanned_interruptions.csv").open() as table:
        published = {row["component"]: int(row["count"]) for row in csv.DictReader(table)}
    assert sorted(published) == sorted(name for cause in CAUSES for name in cause.components)
    for cause in CAUSES:
        count = sum(published[name] for name in cause.components)
        assert count == cause.published
        assert abs(1_000 * count / GPU_DAYS - cause.per_1000_gpu_days) < 0.001, cause.name


@recorded
def test_planned_maintenance_is_as_frequent_as_published() -> None:
    with (FAILURES / "published_rates/headline_numbers.csv").open() as table:
        rows = {row["number"]: row["value"] for row in csv.DictReader(table)}
    unplanned, planned = int(rows["unplanned interruptions"]), int(rows["planned interruptions"])
    assert abs(planned / unplanned - Policy().failures.planned_share) < 0.02


@recorded
def test_repairs_last_as_recorded() -> None:
    """Median and mean of 23,552 repairs of node failures, and so the spread between them."""
    (path,) = (FAILURES / "lanl_1996_2005").glob("*.csv.xz")
    with lzma.open(path) as packed:
        rows = csv.DictReader(io.TextIOWrapper(packed, encoding="latin1"))
        minutes = [int(row["Down Time"]) for row in rows if row["Down Time"].isdigit()]
    down = [one for one in minutes if one > 0]
    operations = Policy().operations
    assert len(down) > 20_000
    assert abs(median(down) * 60 / operations.repair_median_s - 1) < 0.02
    assert abs(mean(down) * 60 / operations.repair_mean_s - 1) < 0.02


def test_as_many_failures_are_drawn_as_the_rates_say() -> None:
    """419 in 54 days on 16,384 GPUs, within three standard deviations for each cause; switches are
    taken from the cause they belong to."""
    drawn: Counter[str] = Counter()
    seeds = range(1, 5)
    for seed in seeds:
        for fault in draw(Policy(), hosts=2_048, gpus=8, days=DAYS, seed=seed).faults:
            name = "switch_or_cable" if fault.strike == Strike.CUT else fault.cause
            drawn[name] += 1
    for cause in CAUSES:
        expected = cause.per_1000_gpu_days * GPU_DAYS / 1_000 * len(seeds)
        # Lemons are few: their number, and with it the rate of all, differs between seeds.
        assert abs(drawn[cause.name] - expected) < 3 * expected**0.5 + 0.05 * expected, cause.name
    total = sum(drawn[cause.name] for cause in CAUSES)
    assert abs(total / len(seeds) / 419 - 1) < 0.07
    assert abs(drawn["planned"] / total - 0.1) < 0.02
    assert abs(drawn["job"] / len(seeds) / DAYS - 2.2) < 0.3
    links = drawn["switch_or_cable"] + drawn["nic"]
    assert 800 < drawn["link_flap"] / links < 1_250


def test_lemons_fail_far_more_often() -> None:
    """Five to ten times as often as the others, and they are one or two in a hundred."""
    still = Policy(failures=Failures(flap_factor=0.0))
    schedule = draw(still, hosts=2_048, gpus=8, days=1_000, seed=3)
    assert 0.008 < len(schedule.lemons) / 2_048 < 0.025
    failures = Counter(one.host for one in schedule.faults if one.host >= 0)
    lemons = mean(failures[host] for host in schedule.lemons)
    others = mean(failures[host] for host in range(2_048) if host not in schedule.lemons)
    assert 5 < lemons / others < 10


def test_a_log_normal_time_has_its_median() -> None:
    assert log_normal_ms(3_600.0, 21_300.0, 0.0) == 3_600_000
    assert log_normal_ms(60.0, 60.0, 2.5) == 60_000
