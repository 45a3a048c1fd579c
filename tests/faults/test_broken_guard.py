"""Rules of raft's guard, off: what each mutation takes away, and that real processes show it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from jepsen_lite.broken.build import edited
from jepsen_lite.broken.catalogue import BREAKAGES
from jepsen_lite.broken.hunt import Hunt

from coord.raft.rules import RULES

OFF = {
    "guard-off": set(RULES) - {"G6"},
    "guard-commit-cap-off": {"G2"},
    "guard-durability-off": {"G5.log", "G5.vote", "G5.own"},
    "applied-twice": {"G13"},
}
LIMIT_S = 240.0
"""No run begins later; each takes half a minute, and twice that on a busy machine."""


def _rules(name: str) -> frozenset[str]:
    """That are on in the build of this mutation."""
    names: dict[str, frozenset[str]] = {}
    exec(edited(name, BREAKAGES[name].edits)["raft/rules.py"], names)
    return names["ALL_RULES"]


@pytest.mark.parametrize("name", OFF)
def test_these_rules_are_off_and_no_other(name: str) -> None:
    """A name that is no rule would take away nothing."""
    assert set(RULES) - _rules(name) == OFF[name]


def test_every_mutation_of_rules_is_looked_at_here() -> None:
    """One that is added belongs into the table above."""
    found = [name for name in BREAKAGES if _edits_rules(name)]

    assert sorted(found) == sorted(OFF)


def _edits_rules(name: str) -> bool:
    return any(edit.file == "raft/rules.py" for edit in BREAKAGES[name].edits)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in OFF if name.startswith("guard-")])
def test_servers_without_them_are_reported(name: str, tmp_path: Path) -> None:
    """Within five minutes of real processes, from any seed."""
    hunted = asyncio.run(Hunt(tmp_path, first_seed=11).hunt(BREAKAGES[name], LIMIT_S))

    assert hunted.caught, hunted.tries
