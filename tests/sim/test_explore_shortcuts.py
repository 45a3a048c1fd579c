"""What an execution leaves out to be fast makes no difference to what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from random import Random

import pytest
from coord_sim.explore.changes import script_of
from coord_sim.explore.conflicts import Conflicts
from coord_sim.explore.execute import Execution, Explored, Run, execute
from coord_sim.explore.fork import RowKey, changed_rows, differing, fork
from coord_sim.explore.marks import Marks
from coord_sim.explore.prefixes import Trail
from coord_sim.explore.schedule import Drop, Flip, Reorder, Schedule
from coord_sim.explore.strategies import ALL
from coord_sim.explore.watching import Watch
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.surgery import applied

from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.state import State

from .explored_stories import crash_and_restart, explored, history, incident_of

EACH = 12
"""Schedules of each strategy."""


class Plain(Execution):
    """Every invariant after every entry, and nothing is taken from other executions."""

    def known_from_here(self) -> bool:
        return False

    def way(self) -> Trail | None:
        return None


def look(
    watch: Watch, state: State, changed: list[RowKey], marks: Marks, sound: dict[int, None]
) -> tuple[str, str] | None:
    broken = violations(state)
    if not broken:
        return None
    sentence, _, offender = broken[0].partition(": ")
    return sentence, offender


def schedules(ready: Explored, seed: int) -> Iterator[Schedule]:
    conflicts = Conflicts(ready)
    for strategy in ALL:
        yield from islice(strategy(ready, conflicts, Random(seed)).schedules(), EACH)


def plainly(ready: Explored, schedule: Schedule) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "look", look)
        return Plain(ready, schedule).run()


@pytest.mark.parametrize(
    ("name", "mutant", "finds"),
    [
        ("transcript-recovery-rank-crash", "", False),
        ("fleet-15", "", False),
        ("transcript-recovery-rank-crash", "started-after-stop", True),
        ("transcript-recovery-host-lost-spare", "one-failure-one-restart", True),
    ],
)
def test_the_same_is_found_in_the_plain_way(name: str, mutant: str, *, finds: bool) -> None:
    """Violation and records are those of an execution that looks at everything to its end."""
    with applied(MUTANTS[mutant]) if mutant else nullcontext():
        incident = history(name)
        fast, plain = Explored(incident), Explored(incident)
        broken = 0
        for schedule in schedules(fast, 3):
            run, other = execute(fast, schedule), plainly(plain, schedule)
            assert run.violation == other.violation, schedule
            assert run.records == other.records[: len(run.records)], schedule
            broken += run.violation is not None
    assert bool(broken) is finds


def test_numbers_of_rows_are_kept_up_as_if_made_anew() -> None:
    incident = history("fleet-15")
    state = incident.start_state()
    marks = Marks(state)
    for record in incident.records:
        apply(state, record.entry)
        marks.note(changed_rows(state))
        marks.rows(state)
    anew = Marks(state)
    assert marks.rows(state) == anew.rows(state)
    assert marks.requests(state) == anew.requests(state)


def test_states_have_the_same_number_when_no_row_differs() -> None:
    """Two notes in the other order: all that is different is who asked last."""
    incident = incident_of(crash_and_restart())
    state = incident.start_state()
    marks = Marks(state)
    seen: dict[int, State] = {}
    for record in incident.records:
        apply(state, record.entry)
        changed = changed_rows(state)
        marks.note(changed)
        number = marks.rows(state)
        known = seen.get(number)
        if known is not None and known.meta.now_ms == state.meta.now_ms:
            assert not [row for row in differing(known, state, changed) if row[0] != "requests"]
        seen[number] = fork(state)
    assert len(seen) > 10


def test_what_is_as_recorded_at_either_end_is_left_to_the_log() -> None:
    ready = explored(crash_and_restart())
    size = ready.recording.size
    script = script_of(Schedule((Reorder(3, (3, 4, 6, 5, 7)),)), ready.order, size)
    assert (script.first, script.last, script.sequence) == (5, 7, [6, 5])
    script = script_of(Schedule((Reorder(3, (3, 4, 6, 5, 7)), Drop(3))), ready.order, size)
    assert script.sequence == [3, 4, 6, 5]
    script = script_of(Schedule((Flip(5, 6),)), ready.order, size)
    assert script.sequence == [6, 5]
