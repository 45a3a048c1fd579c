"""Random histories of a shared fleet: they hold of the product, repeat, and find what is broken."""

from __future__ import annotations

import pytest
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.finders import SharedWalk
from coord_sim.mutants.mutant import Mutant, Reach
from coord_sim.mutants.shared_fleet import SharedFleet, run

from coord.model import care_decisions, decisions


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_shared_fleet_survives_any_history(seed: int) -> None:
    """Every property holds, and what fits runs to its end; one of them also from its rows."""
    assert run(seed, 60, twin=seed == 1).property == ""


def test_a_history_repeats_itself() -> None:
    assert run(3, 40) == run(3, 40)


def test_histories_reach_what_they_are_about() -> None:
    """Quarantines and proposals, silent domains, preemptions, kept room, spares and weights."""
    wanted = {
        decisions.HostQuarantined,
        care_decisions.QuarantineProposed,
        care_decisions.HostOnProbation,
        care_decisions.DomainSilent,
        decisions.GangPreempted,
        decisions.RoomReserved,
        decisions.SpareKept,
        decisions.ScopeStopping,
        decisions.WeightsAdvanced,
    }
    for seed in range(1, 40):
        world = SharedFleet(seed, twin=False)
        world.live_through(60)
        wanted -= {type(one) for record in world.driver.records for one in record.decisions}
        if not wanted:
            return
    assert not wanted


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("quarantine-share", "no more hosts are in quarantine without approval than were allowed"),
        ("quota", "no queue uses more than its quota and what it may borrow"),
    ],
)
def test_the_shared_walk_finds_a_mutant(name: str, broken: str) -> None:
    assert SharedWalk().hunt(MUTANTS[name], 1, 30.0).broken == broken


def test_nothing_is_found_in_the_product_itself() -> None:
    whole = Mutant(name="whole", guard="-", breaks="-", reach=(Reach.SHARED,))
    assert SharedWalk().hunt(whole, 1, 1.0).broken == ""
