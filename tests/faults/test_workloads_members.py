"""What is seen of the members against what was asked: each planted fault is found, and only it."""

from __future__ import annotations

import pytest
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.verdict import Verdict
from jepsen_lite.workloads.members import KEY, judge_members

from tests.faults.made_logs import Asked

HOLDS, VIOLATION = Verdict.LINEARIZABLE, Verdict.VIOLATION
NOTHING = Verdict.NOTHING
"""No addition was acknowledged, so nothing had to be seen."""
FIRST = [1, 2, 3]


@pytest.fixture
def asked() -> Asked:
    asked = Asked()
    look(asked, FIRST)
    return asked


def look(asked: Asked, members: list[int]) -> None:
    asked.add("read", key=KEY, result=members)


def change(asked: Asked, action: str, node: int, outcome: Outcome = Outcome.OK) -> None:
    asked.add(action, key=KEY, argument=node, outcome=outcome)


def test_what_is_added_and_removed_is_seen(asked: Asked) -> None:
    """Also beside servers that a nemesis brings and takes, of which nothing is said."""
    change(asked, "add", 4)
    look(asked, [1, 2, 3, 4, 9])
    change(asked, "add", 5, Outcome.FAIL)
    look(asked, [1, 3, 4])
    change(asked, "remove", 4)
    look(asked, FIRST)
    assert judge_members(asked.operations).verdict is HOLDS


@pytest.mark.parametrize(("seen", "verdict"), [([1, 2, 3, 4], HOLDS), (FIRST, VIOLATION)])
def test_an_added_server_that_is_no_member_is_found(
    asked: Asked, seen: list[int], verdict: Verdict
) -> None:
    """It was acknowledged."""
    change(asked, "add", 4)
    look(asked, seen)
    assert judge_members(asked.operations).verdict is verdict


def test_a_removed_server_that_is_still_a_member_is_found(asked: Asked) -> None:
    """As is one whose addition certainly failed."""
    change(asked, "add", 4)
    change(asked, "remove", 4)
    look(asked, [1, 2, 3, 4])
    assert judge_members(asked.operations).verdict is VIOLATION
    failed = Asked()
    look(failed, FIRST)
    change(failed, "add", 4, Outcome.FAIL)
    look(failed, [1, 2, 3, 4])
    assert judge_members(failed.operations).verdict is VIOLATION


@pytest.mark.parametrize("seen", [FIRST, [1, 2, 3, 4]])
def test_a_change_in_doubt_may_be_seen_or_not(asked: Asked, seen: list[int]) -> None:
    """Until a later answer settles it: what can be removed was added."""
    change(asked, "add", 4, Outcome.INFO)
    look(asked, seen)
    assert judge_members(asked.operations).verdict is NOTHING
    change(asked, "remove", 4)
    look(asked, [1, 2, 3, 4])
    assert judge_members(asked.operations).verdict is VIOLATION


def test_an_addition_in_doubt_may_come_after_nobody_knew_the_server(asked: Asked) -> None:
    """But a removal in doubt has happened by then."""
    change(asked, "add", 4, Outcome.INFO)
    asked.add("remove", key=KEY, argument=4, result="unknown_node")
    look(asked, [1, 2, 3, 4])
    assert judge_members(asked.operations).verdict is NOTHING
    change(asked, "add", 5)
    change(asked, "remove", 5, Outcome.INFO)
    asked.add("remove", key=KEY, argument=5, result="unknown_node")
    look(asked, [1, 2, 3, 5])
    assert judge_members(asked.operations).verdict is VIOLATION
