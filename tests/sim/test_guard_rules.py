"""Rules of the raft guard, each off alone: the checks see what breaks without it."""

from __future__ import annotations

import pytest
from coord_sim.world.raft_checks import (
    AS_SAID,
    CATCHES_UP,
    DURABLE,
    ELECTED,
    HALTED,
    MAJORITY,
    NEVER_CHANGES,
    ONE_VOTE,
    SAME_DIGEST,
    STAYS,
    TERM_MONOTONE,
)
from coord_sim.world.raft_run import raft_run

from coord.raft.rules import all_but

FOUND = [
    ("G1", 20, (STAYS, MAJORITY, NEVER_CHANGES)),
    ("G2", 20, (SAME_DIGEST, NEVER_CHANGES, MAJORITY, AS_SAID)),
    ("G4", 20, (ELECTED,)),
    ("G5.log", 20, (MAJORITY, DURABLE)),
    ("G5.vote", 20, (TERM_MONOTONE, ONE_VOTE)),
    ("G13", 20, (CATCHES_UP, HALTED)),
]
"""Rule, seeds within which something breaks, properties of which one does."""


@pytest.mark.parametrize(("rule", "seeds", "properties"), FOUND, ids=[one[0] for one in FOUND])
def test_without_a_rule_a_named_property_breaks(
    rule: str, seeds: int, properties: tuple[str, ...]
) -> None:
    """Within a few seeds; the same seeds hold with all rules on."""
    for seed in range(seeds):
        outcome = raft_run(seed, all_but(rule), seconds=40)
        if not outcome.ok:
            assert outcome.broken in properties, outcome.detail
            return
    pytest.fail(f"{seeds} histories without {rule}, and nothing broke")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_with_all_rules_nothing_breaks(seed: int) -> None:
    """For a minute of misfortunes each, in all climates."""
    outcome = raft_run(seed)
    assert (outcome.broken, outcome.detail) == ("", "")
