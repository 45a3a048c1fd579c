"""A check that looked at nothing does not hold."""

from __future__ import annotations

import pytest
from jepsen_lite.history.journal import History
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge import drains
from jepsen_lite.judge.drains import judge_drains
from jepsen_lite.judge.exported import ORDERED, ExportedLog, judge_order
from jepsen_lite.judge.findings import Finding, judged, said, with_subjects
from jepsen_lite.judge.models import Register, Replicas
from jepsen_lite.judge.verdict import Verdict, judge_history
from jepsen_lite.report.wording import HOLDS, UNKNOWN, is_bad, verdict_of, verdict_word
from jepsen_lite.run.again import judge_evidence
from jepsen_lite.testing.verdicts import assert_holds
from jepsen_lite.workloads.catalogue import WORKLOADS
from jepsen_lite.workloads.judging import ALWAYS
from jepsen_lite.workloads.port import Evidence
from msgspec.structs import replace

from coord.model.decisions import Placement, TasksPlaced
from coord.model.events import DrainRequested, HostRegistered, UndrainRequested
from tests.faults.made_logs import Asked, MadeLog, verdicts

DUE = [(name, check) for name in WORKLOADS for check in sorted(ALWAYS | WORKLOADS[name]().makes)]


def nothing() -> Evidence:
    """Of a run in which nothing happened."""
    return Evidence(History({}), ExportedLog([]), true_clocks=True, alive=())


@pytest.mark.parametrize("workload", WORKLOADS)
def test_nothing_holds_in_a_run_in_which_nothing_happened(workload: str) -> None:
    """Whatever the workload: each check is unknown, or says that there was nothing to check."""
    judgements = judge_evidence(workload, nothing())
    assert {one.verdict for one in judgements} <= {Verdict.UNKNOWN, Verdict.NOTHING}
    assert verdict_of(judgements) == UNKNOWN


@pytest.mark.parametrize(("workload", "check"), DUE)
def test_what_a_workload_makes_is_missed(workload: str, check: str) -> None:
    """A check that must have had something to look at is unknown, and says of what there was
    none."""
    (found,) = [one for one in judge_evidence(workload, nothing()) if one.check == check]
    assert found.verdict is Verdict.UNKNOWN
    assert found.detail
    assert is_bad(found)


def test_every_judgement_says_how_much_it_looked_at() -> None:
    """Also where there was nothing, and what of it was wrong."""
    for workload in WORKLOADS:
        assert all(one.detail for one in judge_evidence(workload, nothing()))
    judgement = judged("a check", [Finding("one is wrong")], seen=1_200, of="things")
    assert judgement.detail == "one is wrong\nof 1,200 things"
    assert judged("a check", [], seen=1_200, of="things").detail == "1,200 things"


def test_only_what_is_due_is_missed() -> None:
    """A finding stays one, and so does what holds."""
    judgements = [
        judged("due", [], seen=0, of="things"),
        judged("held", [], seen=1, of="things"),
        judged("wrong", [Finding("one")], seen=0, of="things"),
        judged("idle", [], seen=0, of="things"),
    ]
    found = with_subjects(judgements, {"due", "held", "wrong"})
    expected = [Verdict.UNKNOWN, Verdict.LINEARIZABLE, Verdict.VIOLATION, Verdict.NOTHING]
    assert [one.verdict for one in found] == expected
    assert "0 things, of which this run must have had some" in found[0].detail


def test_nothing_to_check_fails_no_run_and_makes_none_hold() -> None:
    """Beside something that holds it changes nothing; alone it leaves the run unknown."""
    idle = judged("idle", [], seen=0, of="things")
    held = judged("held", [], seen=1, of="things")
    assert verdict_word(idle) == "nothing to check"
    assert not is_bad(idle)
    assert verdict_of([idle, held]) == HOLDS
    assert verdict_of([idle]) == UNKNOWN
    assert_holds([idle, held])
    with pytest.raises(AssertionError, match="nothing was judged"):
        assert_holds([idle])


def test_what_a_run_says_of_itself_counts_as_well() -> None:
    """No log of a server is no proof that none halted."""
    assert said("no halt", [], 3, "logs").verdict is Verdict.LINEARIZABLE
    assert said("no halt", [], 0, "logs").verdict is Verdict.UNKNOWN
    assert said("no halt", ["s1 did"], 3, "logs").verdict is Verdict.VIOLATION


def test_a_history_without_an_answer_is_unknown() -> None:
    """Whatever was in doubt or failed, an order explains it."""
    asked = Asked()
    asked.add("write", argument=3, outcome=Outcome.INFO)
    asked.add("read", outcome=Outcome.FAIL)
    (found,) = judge_history(asked.operations, Register())
    assert found.verdict is Verdict.UNKNOWN
    assert "none of 2 operations was answered" in found.detail
    (order,) = with_subjects([judge_order(asked.operations)], {ORDERED})
    assert order.verdict is Verdict.UNKNOWN


def test_registers_without_an_acknowledged_write_are_unknown() -> None:
    """Where writes are due; looks alone are explained by a register that never works."""
    asked = Asked()
    asked.add("read", result=1)
    asked.add("write", argument=1, result="nothing_to_do")
    (found,) = judge_history(asked.operations, Replicas(first=1))
    assert found.verdict is Verdict.LINEARIZABLE
    (found,) = judge_history(asked.operations, Replicas(first=1), changes_due=True)
    assert found.verdict is Verdict.UNKNOWN
    assert "none of 2 answered operations changed anything" in found.detail
    asked.add("write", argument=2)
    (found,) = judge_history(asked.operations, Replicas(first=1), changes_due=True)
    assert found.verdict is Verdict.LINEARIZABLE


# Drains


@pytest.fixture
def drained() -> MadeLog:
    """h1 is drained, h2 is not, and a task is placed."""
    made = MadeLog()
    made.host("h1")
    made.host("h2")
    made.say(DrainRequested("h1", "op", "moving"))
    made.submit("job", 1)
    return made


def test_a_drained_host_that_is_passed_over_is_fine(drained: MadeLog) -> None:
    """And once it was given back it may have tasks."""
    assert judge_drains(drained.log()).detail == "1 drains"
    drained.say(UndrainRequested("h1", "op"))
    drained.submit("other", 3)
    places = [
        placement.host
        for record in drained.records
        for decision in record.decisions
        if isinstance(decision, TasksPlaced)
        for placement in decision.placements
    ]
    assert places[0] == "h2"
    assert "h1" in places[1:]
    assert judge_drains(drained.log()).verdict is Verdict.LINEARIZABLE


def test_a_task_on_a_drained_host_is_found(drained: MadeLog) -> None:
    """Also after the host has registered anew."""
    drained.say(HostRegistered("h1", "agent-h1", "boot", "127.0.0.1", 2, 8_000, 8_000))
    placed = TasksPlaced((), "job", "job/trainer", 2, (Placement("job/trainer/0#2", "h1"),))
    drained.records[-1] = replace(drained.records[-1], decisions=(placed,))
    judgement = judge_drains(drained.log())
    assert verdicts([judgement]) == {drains.DRAINED: Verdict.VIOLATION}
    assert "places job/trainer/0#2 on h1, which was drained at index" in judgement.detail
