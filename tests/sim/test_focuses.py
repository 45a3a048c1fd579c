"""Runs that look at one kind of hazard: the product stands it, and it really comes about."""

from __future__ import annotations

import pytest
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.finders import FINDERS
from coord_sim.mutants.mutant import Reach
from coord_sim.world.client_checks import ABSENT, READS
from coord_sim.world.faults import DRAWN, INJECT, TOLD
from coord_sim.world.focuses import FOCUSES
from coord_sim.world.lease_checks import LEASED
from coord_sim.world.options import WorldOptions
from coord_sim.world.run import climate_of, run_seed
from coord_sim.world.sequences import SEQUENCES

FOUND = (
    ("beats-are-recorded-first", LEASED),
    ("expired-is-not-refused", ABSENT),
    ("read-after-apply", READS),
)


def options(focus: str, faults: tuple[str, ...] = ("all",)) -> WorldOptions:
    return WorldOptions(hosts=2, jobs=1, seconds=25, faults=faults, focus=focus)


@pytest.mark.parametrize("focus", FOCUSES)
def test_a_focus_is_survived_and_comes_about(focus: str) -> None:
    """Every fault of it befalls somebody within a few seeds."""
    missing = dict(FOCUSES[focus].faults)
    for seed in range(1, 31):
        outcome = run_seed(seed, options(focus))
        assert outcome.ok, f"{outcome.broken}: {outcome.detail}\n{outcome.repeat_line('')}"
        for name in outcome.faults:
            missing.pop(name, None)
        if not missing:
            return
    pytest.fail(f"nobody met {', '.join(missing)}")


def test_every_fault_of_a_focus_is_on_a_menu() -> None:
    """Those that only a focus draws, by nobody else; each says what it does."""
    for focus in FOCUSES.values():
        assert focus.told
        assert set(focus.faults) <= set(INJECT)
    assert not set(SEQUENCES) & set(DRAWN)
    assert all(TOLD[name] for name in SEQUENCES)


def test_a_focus_leaves_the_rest_to_the_seed() -> None:
    """Faults can be taken away from it as from any run, and what it does not name is drawn."""
    plain = climate_of(5, WorldOptions(hosts=2, jobs=1, seconds=25))
    focused = climate_of(5, options("answers"))
    assert focused.faults == FOCUSES["answers"].faults
    assert (focused.devices, focused.patience_s) == (plain.devices, plain.patience_s)
    assert set(climate_of(5, options("answers", ("all", "-net"))).faults) == {"server.pause"}
    without = WorldOptions(focus="members", membership=False)
    assert climate_of(5, without).faults == {}


@pytest.mark.parametrize(("name", "broken"), FOUND)
def test_focused_runs_find_a_mutant(name: str, broken: str) -> None:
    """Some of those that take them little time."""
    assert FINDERS[Reach.FOCUS].hunt(MUTANTS[name], 2, 60.0).broken == broken
