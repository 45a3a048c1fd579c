"""Schedules that begin alike: what is taken over from one for the other makes no difference."""

from __future__ import annotations

from itertools import islice
from random import Random

from coord_sim.explore.changes import script_of
from coord_sim.explore.conflicts import Conflicts
from coord_sim.explore.execute import Execution, Explored
from coord_sim.explore.prefixes import KEPT_LIMIT, Prefixes
from coord_sim.explore.run import Run
from coord_sim.explore.schedule import AgentCrash, AnyChange, LeaderChange, Reorder, Schedule
from coord_sim.explore.strategies import ALL

from coord.core.state import state_digest

from .explored_stories import crash_and_restart, explored, history

ORDERS = ((4, 3, 5, 7, 6), (4, 3, 5, 6, 7), (4, 3, 7, 5, 6), (4, 3, 7, 6, 5), (4, 3, 5, 7, 6))


def ran(ready: Explored, *changes: AnyChange) -> tuple[Execution, Run]:
    execution = Execution(ready, Schedule(changes))
    return execution, execution.run()


def test_what_goes_on_from_another_one_is_as_if_begun_anew() -> None:
    """Records, state and what is used of the log, with a fault where they part and without."""
    for fault in (None, AgentCrash("host-0000", 4), LeaderChange(4)):
        ready = explored(crash_and_restart())
        resumed = 0
        for order in ORDERS:
            changes = (Reorder(3, order), *((fault,) if fault else ()))
            execution, run = ran(ready, *changes)
            _, anew = ran(explored(crash_and_restart()), *changes)
            assert run.violation is None
            assert run.violation == anew.violation
            assert run.consumed == anew.consumed
            assert run.records == anew.records[: len(run.records)]
            if len(run.records) == len(anew.records):
                assert state_digest(run.state) == state_digest(anew.state)
            resumed += execution.resumed
        assert resumed >= 2


class Alone(Execution):
    """Takes nothing over, whoever was where it is."""

    def way(self) -> None:
        return None

    def known_from_here(self) -> bool:
        return False


EARLY_ALARM = (
    Reorder(14, (14, 16, 15, 27, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26)),
    Reorder(7, (10, 11, 12, 13, 7, 14, 15, 8, 9, 16, 27, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26)),
)
"""After these the rows are the same, and the leader looks at its clock at other moments."""


def test_how_much_of_the_log_is_used_does_not_depend_on_who_came_before() -> None:
    incident = history("transcript-hang")
    ready, apart = Explored(incident), Explored(incident)
    conflicts = Conflicts(ready)
    schedules = [Schedule((change,)) for change in EARLY_ALARM]
    for strategy in ALL:
        tried = strategy(ready, conflicts, Random(1)).schedules()
        schedules += islice(tried, 40)
    entries = 0
    for schedule in schedules:
        run, alone = Execution(ready, schedule).run(), Alone(apart, schedule).run()
        assert (run.violation, run.consumed) == (alone.violation, alone.consumed), schedule
        entries += alone.entries - run.entries
    assert entries > 1_000, "what is taken over from others spares work"


def test_the_same_schedule_is_not_executed_twice() -> None:
    ready = explored(crash_and_restart())
    _, first = ran(ready, Reorder(3, (4, 3)))
    execution, again = ran(ready, Reorder(2, (2, 4, 3, 5)))
    assert execution.trail is not None
    assert execution.trail.consumed == first.consumed == again.consumed
    assert again.entries == 0 < first.entries


def test_who_begins_alike_before_another_election_does_not_begin_alike() -> None:
    """The term of what comes before and was recorded after tells of the election already."""
    ready = explored(crash_and_restart())
    prefixes: Prefixes[str] = Prefixes(1)
    size = ready.recording.size

    def depth(*changes: AnyChange) -> int:
        script = script_of(Schedule(changes), ready.order, size)
        return prefixes.trail(script).depth

    assert depth(Reorder(3, (4, 3, 5, 7, 6))) == 0
    assert depth(Reorder(3, (4, 3, 5, 7, 6))) == 5
    assert depth(Reorder(3, (4, 3, 7, 5, 6))) == 2
    assert depth(Reorder(3, (4, 3, 5, 7, 6)), LeaderChange(7)) == 0
    assert depth(Reorder(3, (4, 3, 5, 7, 6)), AgentCrash("host-0000", 5)) == 2


def test_what_was_not_used_for_longest_is_given_up() -> None:
    ready = explored(crash_and_restart())
    prefixes: Prefixes[int] = Prefixes(1)
    script = script_of(Schedule((Reorder(3, ORDERS[0]),)), ready.order, ready.recording.size)
    prefixes.trail(script)
    trail = prefixes.trail(script)
    prefixes.keep(trail.steps[2], 2)
    for step in range(KEPT_LIMIT - 1):
        prefixes.keep(1_000 + step, step)
    assert prefixes.nearest(trail) == (2, 2)
    prefixes.keep(10_000, 1)
    assert prefixes.nearest(trail) == (2, 2)
    for step in range(KEPT_LIMIT):
        prefixes.keep(20_000 + step, step)
    assert prefixes.nearest(trail) == (0, None)
