"""Rules of the raft guard, each off alone: which promise is broken then, and how soon."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

import pytest
from coord_sim.mutants.finders import RaftRuns
from coord_sim.mutants.of_raft import RAFT_MUTANTS
from coord_sim.mutants.surgery import applied
from coord_sim.world.raft_checks import (
    ANSWERED,
    CAN_WRITE,
    CATCHES_UP,
    DURABLE,
    ELECTED,
    HALTED,
    KEPT,
    MAJORITY,
    NEVER_CHANGES,
    OFFERABLE,
    ONE_VOTE,
    SAME_DIGEST,
    STAYS,
    TERM_MONOTONE,
)
from coord_sim.world.raft_run import RaftOutcome, raft_run
from coord_sim.world.raft_swarm import FOCUSES, rounds
from coord_sim.world.raft_traffic import EACH_ONCE, NEWEST, TOLD

from coord.raft.rules import ALL_RULES, RULES, all_but

SECONDS = 40
FOUND: dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]] = {
    "G1": ("", (0, 2), (STAYS, KEPT, MAJORITY, NEVER_CHANGES)),
    "G1.covered": ("tails", (4, 6), (KEPT, MAJORITY, CATCHES_UP)),
    "G2": ("tails", (0, 1), (SAME_DIGEST, NEVER_CHANGES, MAJORITY)),
    "G3": ("terms", (10, 20), (MAJORITY, DURABLE, STAYS)),
    "G4": ("elections", (0, 1), (ELECTED,)),
    "G5.log": ("", (2, 3), (MAJORITY, DURABLE, KEPT)),
    "G5.vote": ("elections", (0, 1), (TERM_MONOTONE, ONE_VOTE)),
    "G5.own": ("", (0, 1), (MAJORITY, DURABLE)),
    "G6": ("", (0, 1), (EACH_ONCE,)),
    "G7": ("tails", (0, 1), (MAJORITY, STAYS, CATCHES_UP, SAME_DIGEST, KEPT)),
    "G7.late": ("snapshots", (3, 1), (OFFERABLE, CATCHES_UP)),
    "G7.tail": ("offers", (2, 11, 1), (KEPT, STAYS, MAJORITY)),
    "G8": ("connections", (0, 1), (NEWEST,)),
    "G10": ("replaced", (0, 1), (TOLD,)),
    "G11": ("replaced", (0, 1), (ANSWERED,)),
    "G12": ("disks", (0, 1), (CAN_WRITE,)),
    "G13": ("disks", (4, 5), (CATCHES_UP, HALTED, OFFERABLE)),
}
"""Rule: focus, seeds of which one is enough, properties of which one breaks."""


def run_without(rule: str, seed: int, focus: str) -> RaftOutcome:
    """G7 is structure rather than a filter, and is taken out of the code."""
    cut: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if rule == "G7":
        cut = applied(next(mutant for mutant in RAFT_MUTANTS if mutant.name == "rule-g7"))
    with cut:
        rules = all_but(rule)
        return raft_run(seed, rules, seconds=SECONDS, focus=focus)


@pytest.mark.parametrize("rule", sorted(FOUND))
def test_without_a_rule_a_named_property_breaks(rule: str) -> None:
    """In the first of a few histories, or in another."""
    focus, seeds, properties = FOUND[rule]
    for seed in seeds:
        outcome = run_without(rule, seed, focus)
        if not outcome.ok:
            assert outcome.broken in properties, outcome.detail
            return
    pytest.fail(f"{len(seeds)} histories without {rule}, and nothing broke")


@pytest.mark.parametrize("focus", ["", *sorted(FOCUSES)])
def test_with_all_rules_the_same_seeds_are_clean(focus: str) -> None:
    """One for each focus; the slow test below has many more."""
    seed = next(seeds[0] for name, seeds, _ in FOUND.values() if name == focus)
    outcome = raft_run(seed, ALL_RULES, seconds=SECONDS, focus=focus)
    assert (outcome.broken, outcome.detail) == ("", "")


def test_every_rule_is_looked_for_or_known_to_be_static() -> None:
    """G9 and G14 are about messages that no server sends; unit tests hold them."""
    assert set(RULES) - set(FOUND) == {"G9", "G14"}


def test_each_round_looks_everywhere_in_an_order_of_its_own() -> None:
    """As often as a focus has shares; a hunt that is repeated looks in the same places."""
    shares = Counter({"": 1, **{name: focus.share for name, focus in FOCUSES.items()}})
    size = shares.total()
    looks = list(itertools.islice(rounds(7), 3 * size))
    orders = [[look.focus for look in looks[at : at + size]] for at in range(0, len(looks), size)]
    assert [Counter(order) for order in orders] == [shares] * 3
    assert orders[0] != orders[1]
    assert looks == list(itertools.islice(rounds(7), 3 * size))
    assert looks != list(itertools.islice(rounds(8), 3 * size))


@pytest.mark.parametrize(
    "name", ["rule-g5.own", "rule-g6", pytest.param("rule-g7", marks=pytest.mark.slow)]
)
def test_a_hunt_is_the_same_whenever_it_is_repeated(name: str) -> None:
    """Whether a rule is switched off or code is taken out; and what was off is on again."""
    mutant = next(mutant for mutant in RAFT_MUTANTS if mutant.name == name)
    first, again = (RaftRuns().hunt(mutant, 1, 60.0) for _ in range(2))
    assert first.found
    assert first[:3] == again[:3]
    assert raft_run(1, ALL_RULES, seconds=5.0, focus="terms").ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_with_all_rules_nothing_breaks(seed: int) -> None:
    """For a minute of misfortunes each, in all climates."""
    outcome = raft_run(seed)
    assert (outcome.broken, outcome.detail) == ("", "")
