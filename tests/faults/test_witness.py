"""The log's order as a proof, and what it does not accept as one."""

from __future__ import annotations

import random
import time

import pytest
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import Register, Switch
from jepsen_lite.judge.verdict import Verdict, judge_history
from jepsen_lite.judge.witness import settle, why_not

from tests.faults.judge_stories import ExportedTokens, carry_out, plan, unique_writes

MILLION = 1_000_000


def seen(
    action: str, value: object, invoked: int, completed: int, index: int, number: int = 0
) -> Operation:
    """A read that saw a value, or a write of it."""
    looks = action == "read"
    return Operation(
        number, f"c{number}", "story", "k", action, None if looks else value, invoked, completed,
        Outcome.OK, value if looks else None, index,
    )  # fmt: skip


def test_reads_of_one_state_may_stand_in_any_order() -> None:
    """The one that saw the older index came later, and nothing was written between them."""
    operations = [
        seen("write", 1, 1, 2, 5),
        seen("read", 1, 3, 4, 9),
        seen("read", 1, 6, 7, 5),
    ]
    assert why_not(operations, Register()) == ""


REFUTED = [
    ("a read of the past", [seen("write", 1, 1, 2, 5), seen("write", 2, 3, 4, 6),
                            seen("read", 1, 5, 6, 5, 7)], "before what its index 6 follows"),
    ("a read of the future", [seen("read", 1, 1, 2, 5, 7), seen("write", 1, 3, 4, 5)],
     "operation 7 saw index 5"),
    ("another value", [seen("write", 1, 1, 2, 5), seen("read", 2, 3, 4, 5, 7)],
     "operation 7 saw another state"),
    ("writes against real time", [seen("write", 1, 1, 2, 6, 7), seen("write", 2, 3, 4, 5)],
     "operation 7 was over before what its index 6 follows"),
    ("a write before what a read saw", [seen("read", None, 8, 9, 4),
                                        seen("write", 1, 1, 2, 5, 7)], "operation 7 was over"),
    ("two at one index", [seen("write", 1, 1, 9, 5), seen("write", 2, 3, 9, 5)], "index 5"),
    ("no index", [seen("write", 1, 1, 9, 0, 7)], "operation 7 has no index"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operations", "why"), [row[1:] for row in REFUTED], ids=[row[0] for row in REFUTED]
)
def test_a_log_that_contradicts_is_no_proof(operations: list[Operation], why: str) -> None:
    """The reason names the operation, in whatever order the history lists them."""
    for order in (operations, operations[::-1]):
        assert why in why_not(order, Register())


def test_an_answer_that_the_state_did_not_give_is_no_proof() -> None:
    """A host that is drained cannot be drained again."""
    drains = [seen("drain", None, 1, 2, 5), seen("drain", None, 3, 4, 6, 7)]
    assert why_not(drains, Switch()) == "operation 7 cannot be answered so at index 6"


def test_what_the_log_refutes_another_order_may_explain() -> None:
    """No client sees that indexes contradict real time: the search has the last word."""
    operations = [seen("write", 1, 1, 2, 6, 1), seen("write", 2, 3, 4, 5, 2)]
    (judgement,) = judge_history(operations, Register())
    assert (judgement.verdict, judgement.by) == (Verdict.LINEARIZABLE, "search")


def test_an_operation_without_an_index_gets_it_from_the_log() -> None:
    """By its token; what the log does not know stays as it was."""
    log = ExportedTokens()
    log.tokens["t1"] = [8]
    known = Operation(1, "a", "story", "k", "write", 1, 1, 2, Outcome.OK, token="t1")
    lost = Operation(2, "b", "story", "k", "write", 2, 1, 2, Outcome.OK, token="t2")
    failed = Operation(3, "c", "story", "k", "write", 3, 1, 2, Outcome.FAIL, token="t3")
    settled = settle([known, lost, failed], log)
    assert [each.index for each in settled.operations] == [8, 0]
    assert known.index == 0
    assert settled.absent == 0


def test_a_million_operations_are_judged_in_ten_seconds() -> None:
    """Of one core, with unknown outcomes that the log settles."""
    rng = random.Random(1)
    asked = unique_writes(rng, MILLION // 20, 5)
    story = carry_out(plan(rng, asked, clients=8, unknown=0.001), Register())
    operations = [
        Operation(
            each.number, each.client, each.workload, f"{each.key} {copy}", each.action,
            each.argument, each.invoked_ns, each.completed_ns, each.outcome, each.result,
            each.index, each.token,
        )
        for copy in range(20)
        for each in story.operations
    ]  # fmt: skip
    assert len(operations) == MILLION
    began = time.thread_time()
    (judgement,) = judge_history(operations, Register(), log=story.log)
    seconds = time.thread_time() - began
    assert (judgement.verdict, judgement.by) == (Verdict.LINEARIZABLE, "witness")
    assert "of 100 keys" in judgement.detail
    assert seconds < 10
