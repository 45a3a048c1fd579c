"""Hosts that were drained, by what the log says of them."""

from __future__ import annotations

from collections.abc import Iterator

from coord.model.decisions import TasksPlaced
from coord.model.entry import Recorded
from coord.model.events import DrainRequested, HostRemovalRequested, UndrainRequested
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement

DRAINED = "a host that was drained is given no task before it is given back"


def judge_drains(log: ExportedLog) -> Judgement:
    """A drain lasts, also over new registrations of the host, until somebody takes it back or
    removes the host."""
    drained: dict[str, int] = {}
    drains = 0
    findings: list[Finding] = []
    for record in log.records:
        index, event = record.entry.index, record.entry.event
        if record.accepted and not record.duplicate_of:
            if isinstance(event, DrainRequested):
                drained.setdefault(event.host, index)
                drains += 1
            elif isinstance(event, UndrainRequested | HostRemovalRequested):
                drained.pop(event.host, None)
        findings.extend(_placed_there(record, drained))
    return judged(DRAINED, findings, seen=drains, of="drains")


def _placed_there(record: Recorded, drained: dict[str, int]) -> Iterator[Finding]:
    """`drained` is host to the index of its drain."""
    for decision in record.decisions:
        for placement in decision.placements if isinstance(decision, TasksPlaced) else ():
            if placement.host in drained:
                yield Finding(
                    f"index {record.entry.index} places {placement.task} on {placement.host}, "
                    f"which was drained at index {drained[placement.host]} and not given back since"
                )
