"""How often a task was started, by what agents say in the log.

A process that dies before its first line leaves no diary; its agent tells of it all the same, and
the log keeps also what the state refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from coord.model.events import TaskStarted
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement

STARTED_ONCE = "a task is started once, whatever was decided of the report"


def judge_starts(log: ExportedLog) -> Judgement:
    """A start that is told again, under a new incarnation or for want of an answer, is of the same
    process."""
    starts: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
    for record in log.records:
        event = record.entry.event
        if isinstance(event, TaskStarted):
            starts[event.task].setdefault((event.host, event.pid), record.entry.index)
    return judged(STARTED_ONCE, _again(starts), seen=len(starts), of="tasks")


def _again(starts: dict[str, dict[tuple[str, int], int]]) -> Iterator[Finding]:
    for task, processes in starts.items():
        if len(processes) > 1:
            told = (
                f"as pid {pid} on {host} at index {index}"
                for (host, pid), index in processes.items()
            )
            yield Finding(f"{task} was started {', and '.join(told)}")
