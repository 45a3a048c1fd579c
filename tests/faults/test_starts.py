"""A task is one process: who starts it again says so in the log, even if that is refused."""

from __future__ import annotations

from jepsen_lite.judge.starts import judge_starts
from jepsen_lite.judge.verdict import Verdict

from coord.model.events import TaskStarted
from tests.faults.made_logs import MadeLog

TASK = "j/trainer/0#1"


def _started() -> MadeLog:
    made = MadeLog()
    made.host("h1")
    made.submit("j", 1)
    made.start_all()
    return made


def test_a_start_that_is_told_again_is_one_start() -> None:
    """For want of an answer, or under a new incarnation."""
    made = _started()
    made.report(TaskStarted("h1", 1, TASK, 100))

    judgement = judge_starts(made.log())

    assert judgement.verdict is Verdict.LINEARIZABLE
    assert judgement.detail == "1 tasks"


def test_a_second_process_of_a_task_is_a_violation_though_its_report_was_refused() -> None:
    """The log keeps what was refused."""
    made = _started()
    refused = made.report(TaskStarted("h1", 1, TASK, 177))

    judgement = judge_starts(made.log())

    assert refused.rejection
    assert judgement.verdict is Verdict.VIOLATION
    assert f"{TASK} was started as pid 100 on h1" in judgement.detail
    assert f"as pid 177 on h1 at index {refused.entry.index}" in judgement.detail
