"""The search: its shares, its determinism, and that it finds nothing where there is nothing."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest
from coord_sim.explore.conflicts import Conflicts
from coord_sim.explore.execute import Explored
from coord_sim.explore.found import Progress
from coord_sim.explore.judge import NEVER_RAISES
from coord_sim.explore.schedule import first_position
from coord_sim.explore.search import ALL, search
from coord_sim.explore.strategies.window import Windows
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.surgery import applied

from .explored_stories import crash_and_restart, history, incident_of


class Ticks:
    """A clock that moves by a hundredth of a second whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.01
        return self.now_s


def searched(seed: int, budget_s: float = 4.0) -> Progress:
    told: list[Progress] = []
    found = search(
        incident_of(crash_and_restart()),
        budget_s=budget_s,
        seed=seed,
        on_progress=told.append,
        clock=Ticks(),
    )
    assert list(found) == []
    return told[-1]


def test_a_seed_tries_the_same_again() -> None:
    assert searched(1) == searched(1)
    assert searched(1) != searched(2)


def test_a_share_that_is_not_used_goes_to_the_next() -> None:
    progress = searched(1)
    flips, faults, *_ = progress.strategies
    assert flips.finished
    assert flips.bound.startswith(f"single flips: all {flips.schedules} tried")
    share = ALL[1].share / sum(strategy.share for strategy in ALL)
    assert faults.share_s > progress.budget_s * share
    assert all(strategy.schedules for strategy in progress.strategies)


def test_a_short_budget_sees_windows_in_every_part_of_the_log() -> None:
    ready = Explored(incident_of(crash_and_restart()))
    windows = Windows(ready, Conflicts(ready), Random(1))
    some = list(islice(windows.schedules(), 2 * ready.recording.size))
    begun = Counter(first_position(schedule.changes[0]) for schedule in some)
    assert len(begun) > ready.recording.size // 2
    assert max(begun.values()) - min(begun.values()) <= 1


def test_it_tells_how_much_of_the_log_was_used() -> None:
    for strategy in searched(1).strategies:
        assert 0 < strategy.consumed_min <= strategy.consumed_median <= 1_000


def test_without_a_budget_the_log_is_only_replayed() -> None:
    progress = searched(1, budget_s=0)
    assert progress.schedules == 1
    assert "nothing else was tried" in progress.note
    assert not any(strategy.schedules for strategy in progress.strategies)


@pytest.mark.parametrize(
    "name",
    ["transcript-recovery-host-lost-spare", "transcript-recovery-rank-crash", "fleet-15"],
)
def test_nothing_is_found_in_what_is_sound(name: str) -> None:
    """A short slice of each; a finding here is a bug of the core or a false alarm."""
    found = next(search(history(name), budget_s=1.5, seed=7, clock=Ticks()), None)
    assert found is None, f"{found.schedule}: {found.run.violation}" if found else ""


def test_an_apply_that_raises_is_found() -> None:
    """Without the look at a report's generation, a late one meets a gang that does not know it."""
    with applied(MUTANTS["generation-of-reports"]):
        found = next(search(history("fleet-14"), budget_s=60.0, seed=1))
    violation = found.run.violation
    assert violation is not None
    assert violation.sentence == NEVER_RAISES
    assert "TaskReaped" in violation.detail
