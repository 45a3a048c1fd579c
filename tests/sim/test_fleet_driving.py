"""What the economical driving leaves out decides nothing: it is compared with driving by all of
it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from coord_sim.fleet.causes import CAUSES, Showing
from coord_sim.fleet.model import FleetModel
from coord_sim.fleet.policy import CoreSettings, Failures, JobPolicy, Operations, Policy, Rates
from coord_sim.fleet.results import FleetResult

from coord.model.decisions import CheckpointCommitted, Decision

Told = list[tuple[int, str, dict[str, Any]]]

OFTEN = {Showing.EXIT: 60, Showing.SILENT: 120, Showing.HANG: 500}
"""Times as often as in a real fleet."""

ROUGH = Policy(
    job=JobPolicy(spares=1, checkpoint_interval_s=600.0),
    operations=Operations(health_catches=0.6),
    failures=Failures(
        job_per_day=10.0,
        flap_mean_s=6.0,
        flap_mutes_share=0.5,
        unkillable_share=0.8,
        switch_hosts=3,
        switch_share=0.5,
    ),
    rates=Rates(**{one.name: OFTEN[one.showing] * one.per_1000_gpu_days for one in CAUSES}),
)
"""Everything goes wrong, and often."""

SLOW = msgspec.structs.replace(
    ROUGH,
    core=CoreSettings(launch_timeout_ms=18_000, unkillable_ms=2_000),
    job=JobPolicy(spares=1, checkpoint_interval_s=600.0, hang_s=0.0, launch_s=20.0),
)
"""Launches are given up now and then, and hangs end by time-out alone."""


def decisions_of(policy: Policy, seed: int, *, every_beat: bool) -> tuple[Told, FleetResult]:
    """When what was decided, causes apart: they name entries, and the ways differ in these."""
    told: Told = []

    def watch(now_ms: int, decision: Decision) -> None:
        # A checkpoint that a later one replaced is not told economically.
        if not isinstance(decision, CheckpointCommitted):
            fields = msgspec.structs.asdict(decision)
            del fields["causes"]
            told.append((now_ms, type(decision).__name__, fields))

    model = FleetModel(
        policy, hosts=8, gpus=8, days=0.7, seed=seed, every_beat=every_beat, watch=watch
    )
    model.run()
    return told, model.result()


@pytest.mark.parametrize("seed", [1, 2, 10, 21])
@pytest.mark.parametrize("policy", [ROUGH, SLOW], ids=["rough", "slow"])
def test_every_beat_and_few_of_them_decide_the_same(policy: Policy, seed: int) -> None:
    """The same decisions at the same milliseconds, and the same books.

    In seed 10 links are down for so long that the core takes it for a hang; in 21 a bad host that
    nobody found fails again between two reports.
    """
    few, economical = decisions_of(policy, seed, every_beat=False)
    every, faithful = decisions_of(policy, seed, every_beat=True)
    assert len(few) > 40, "it must be put to the test"
    for ours, theirs in zip(few, every, strict=False):
        assert ours == theirs
    assert len(few) == len(every)
    assert economical.ettr == faithful.ettr
    assert economical.lost == faithful.lost
    assert economical.tally == faithful.tally
    assert faithful.entries > 4 * economical.entries


def test_the_comparison_sees_losses_hangs_and_what_cannot_be_killed() -> None:
    """Or it would prove little."""
    kinds = {
        kind
        for seed in (1, 2, 10, 21)
        for _, kind, _ in decisions_of(ROUGH, seed, every_beat=False)[0]
    }
    assert kinds > {
        "HostLost",
        "HostCleared",
        "HostDrained",
        "HostQuarantined",
        "HangDetected",
        "TaskAbandoned",
        "JobQueued",
        "SpareActivated",
        "IncidentClosed",
    }
