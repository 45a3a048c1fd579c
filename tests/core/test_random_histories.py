"""Random histories: whatever happens, in whatever order, nothing that must hold is ever broken."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from coord_sim.core_world.driver import Driver, travelled
from coord_sim.core_world.hostile import hostile_event
from coord_sim.core_world.world import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coord.core.machine import apply
from coord.core.state import new_state, state_digest, state_from_rows, state_rows
from coord.model.entities import FINISHED_JOB

SEEDS = st.integers(0, 2**32 - 1)
CI = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
LONG = settings(CI, max_examples=int(os.environ.get("COORD_HISTORIES", "600")), derandomize=False)


def live(seed: int, steps: int, *, recovery: bool = False, hot: bool = False) -> World:
    """Invariants, ground truth and the twin are checked at every entry on the way."""
    world = World(seed, recovery=recovery, hot=hot)
    world.live_through(steps)
    world.calm_down()
    assert world.unmet() == []
    return world


@CI
@given(SEEDS)
def test_a_fleet_survives_any_history_and_then_gets_its_work_done(seed: int) -> None:
    """Faults of every kind; once they end, each job that fits ends within two minutes."""
    live(seed, 120)


@CI
@given(SEEDS)
def test_roles_recover_in_every_way_they_may(seed: int) -> None:
    """Together or alone, required or not, shrinking and growing, with weights going back and forth:
    whatever happens, all of it holds, and the work gets done."""
    live(seed, 120, recovery=True)


@CI
@given(SEEDS)
def test_hot_spares_are_promoted_and_replaced_whatever_happens(seed: int) -> None:
    """Processes that wait die, are lost, promoted, let go, found again: a rank has one process, a
    standby is none, no failure is counted for it, and the work gets done."""
    live(seed, 120, hot=True)


@pytest.mark.slow
@LONG
@given(SEEDS)
def test_hot_spares_survive_long_histories(seed: int) -> None:
    live(seed, 300, hot=True)


@pytest.mark.slow
@LONG
@given(SEEDS)
def test_a_fleet_survives_long_histories(seed: int) -> None:
    live(seed, 300, recovery=bool(seed % 2))


@settings(CI, max_examples=5)
@given(SEEDS)
def test_a_history_gives_one_state_however_it_is_applied(seed: int) -> None:
    """In one go, or with a restart from stored rows here and there."""
    world = World(seed, twin=False)
    world.live_through(150)
    digests = (world.state.meta.digest, state_digest(world.state))
    rng = Random(seed)
    restarted = new_state()
    straight = new_state()
    for entry in world.driver.entries:
        apply(straight, entry)
        if rng.random() < 0.1:
            restarted = state_from_rows(state_rows(restarted))
        apply(restarted, travelled(entry))
    assert (straight.meta.digest, state_digest(straight)) == digests
    assert (restarted.meta.digest, state_digest(restarted)) == digests


@settings(CI, max_examples=30)
@given(SEEDS)
def test_apply_never_raises(seed: int) -> None:
    """Absurd values among sensible ones: rejected or harmless, never a crash (race 42)."""
    world = World(seed)
    world.live_through(40)
    driver = Driver()
    for entry in world.driver.entries:
        driver.apply(entry)
    rng = Random(seed)
    for _ in range(80):
        event, origin, wall_ms = hostile_event(rng, driver)
        driver.wall_ms = wall_ms
        driver.send(event, origin=origin)


def test_histories_are_worth_living_through() -> None:
    """The generator reaches what it is meant to reach: otherwise all of the above proves little."""
    seen: dict[str, None] = {}
    rejections: dict[str, None] = {}
    finished = 0
    for seed in range(30):
        world = World(seed, twin=False)
        world.live_through(150)
        world.calm_down()
        for record in world.driver.records:
            seen.update({type(decision).__name__: None for decision in record.decisions})
            rejections[record.rejection] = None
        finished += sum(job.status in FINISHED_JOB for job in world.state.jobs.values())
    wanted = (
        "CheckpointCommitted",
        "EvictionsFrozen",
        "EvictionsResumed",
        "GenerationStarted",
        "HangDetected",
        "HostCleared",
        "HostDrained",
        "HostFenced",
        "HostLost",
        "HostQuarantined",
        "HostReturned",
        "IncidentClosed",
        "JobCancelled",
        "JobCompleted",
        "JobFailed",
        "JobResized",
        "RestartScheduled",
        "SpareActivated",
        "TaskAbandoned",
    )
    assert [name for name in wanted if name not in seen] == []
    for name in ("report_gap", "stale_incarnation", "stale_generation", "host_not_live"):
        assert name in rejections
    assert finished > 12


def test_histories_with_hot_spares_promote_them() -> None:
    """What is drawn at random leads there: they are launched, promoted, lost and let go."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        world = World(seed, twin=False, hot=True)
        world.live_through(150)
        for record in world.driver.records:
            seen.update(type(decision).__name__ for decision in record.decisions)
    assert seen["StandbyPlaced"] > 20
    assert seen["StandbyPromoted"] > 3
    assert seen["StandbyEnded"] > 10
