"""A planted bug, a log in which it does not show, and a plain way to execute other orders."""

from __future__ import annotations

from pathlib import Path

import pytest
from coord_sim.explore.incident import Incident, replayed
from coord_sim.explore.run import Run, Violation
from coord_sim.explore.schedule import Delay, Flip, Reorder, Schedule
from msgspec.structs import replace

from coord.core import gangs
from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.step import HANDLERS, Step
from coord.core.tasks import current_task
from coord.model.entry import Recorded
from coord.model.events import Event, TaskStarted
from coord.model.rejections import Rejection
from coord.store.incident import IncidentReader

TWO_FAILURES = Path(__file__).parent.parent / "cli" / "incidents" / "two_failures.jsonl"
SENTENCE = "a task that runs on a plan belongs to the current generation of an active gang"


def two_failures() -> Incident:
    """A gang of two with one spare: a rank is killed, then a host falls silent."""
    with TWO_FAILURES.open("rb") as file:
        reader = IncidentReader(file, "incident.log")
        records = [located.record for located in reader]
        return replayed(reader.header, reader.start_state(), records, "incident.log")


def started_without_guard(step: Step, event: Event) -> Rejection | None:
    """As `coord.core.tasks` has it, but a task that is being stopped may start all the same."""
    assert isinstance(event, TaskStarted)
    found = current_task(step, event)
    if isinstance(found, Rejection):
        return found
    gangs.task_started(step, found[0], event.pid)
    return None


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late starts count, until the test is over."""
    monkeypatch.setitem(HANDLERS, TaskStarted, started_without_guard)


def new_order(incident: Incident, schedule: Schedule) -> list[int]:
    """Positions in the order in which the schedule lets them arrive."""
    order = list(range(len(incident.records)))
    for change in schedule.changes:
        if isinstance(change, Flip | Delay):
            at, after = (
                (change.first, change.second)
                if isinstance(change, Flip)
                else (change.at, change.until_after)
            )
            origin = incident.records[at].entry.origin
            held = [
                one
                for one in order[order.index(at) : order.index(after)]
                if incident.records[one].entry.origin.actor == origin.actor
            ]
            order = [one for one in order if one not in held]
            place = order.index(after) + 1
            order[place:place] = held
        elif isinstance(change, Reorder):
            order[change.start : change.start + len(change.order)] = change.order
    return order


def execute_orders(incident: Incident, schedule: Schedule) -> Run:
    """Apply the events in the new order, as they are, until an invariant breaks."""
    state = incident.start_state()
    records: list[Recorded] = []
    wall_ms = 0
    for position in new_order(incident, schedule):
        entry = incident.records[position].entry
        wall_ms = max(wall_ms, entry.wall_ms)
        index = incident.header.start_index + len(records)
        records.append(apply(state, replace(entry, index=index, wall_ms=wall_ms)))
        broken = violations(state)
        if broken:
            sentence, _, detail = broken[0].partition(": ")
            violation = Violation(sentence, detail, len(records) - 1)
            return Run(tuple(records), violation, 0, 0, None, state, len(records))
    return Run(tuple(records), None, None, len(records), None, state, len(records))
