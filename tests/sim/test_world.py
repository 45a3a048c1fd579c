"""Whole clusters from seeds: a slice of a campaign, and that its checks would speak up."""

from __future__ import annotations

import pytest
from coord_sim.world.options import WorldOptions, split_words
from coord_sim.world.run import run_seed

SLICE = range(1, 13)
SECONDS = 25


@pytest.mark.parametrize("seed", SLICE)
def test_a_cluster_keeps_every_promise(seed: int) -> None:
    """Whatever the seed draws of faults, weather, sizes and requests."""
    outcome = run_seed(seed, WorldOptions(seconds=SECONDS))
    told = f"{outcome.broken}: {outcome.detail}\n{outcome.repeat_line('')}\n{outcome.climate}"
    assert outcome.ok, told
    assert outcome.entries > 20
    assert outcome.counts["launches"] > 0


def test_a_fair_day_has_no_fault() -> None:
    """Then nobody is lost, and no leader changes."""
    outcome = run_seed(2, WorldOptions(seconds=SECONDS, faults=("none",)))
    assert outcome.ok, outcome.detail
    assert outcome.faults == {}
    assert outcome.counts["terms"] == 1
    assert outcome.counts.get("decided HostLost", 0) == 0


@pytest.mark.parametrize("faults", ["server", "disk", "net", "members,log", "host,agent", "rank"])
def test_each_family_of_faults_alone_is_survived(faults: str) -> None:
    """And really happens."""
    for seed in range(3, 20):
        outcome = run_seed(seed, WorldOptions(seconds=SECONDS, faults=split_words(faults)))
        assert outcome.ok, f"{outcome.broken}: {outcome.detail}\n{outcome.repeat_line('')}"
        if outcome.faults:
            return
    pytest.fail(f"no seed drew any of {faults}")
