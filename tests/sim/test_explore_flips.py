"""Other orders of concurrent events: which are worth a try, and what they find."""

from __future__ import annotations

import pytest
from coord_sim.explore.conflicts import Conflicts
from coord_sim.explore.execute import execute
from coord_sim.explore.schedule import Delay, Flip, Reorder, Schedule
from coord_sim.explore.search import search
from coord_sim.explore.strategies.flips import SingleFlips
from msgspec.structs import replace

from coord.core import gangs
from coord.model.entities import GangPhase
from coord.model.events import TaskExited, TaskStarted
from tests.fleet_story import Story

from .explored_stories import QUICK, crash_and_restart, explored, incident_of, note, position


def test_what_commutes_is_not_flipped() -> None:
    """Two ranks start on two hosts: whichever is first, the gang runs in the end."""
    story = crash_and_restart()
    conflicts = Conflicts(explored(story))
    first, second = position(story, TaskStarted, 2), position(story, TaskStarted, 3)
    assert (first, second) in conflicts.pairs()
    flips = list(conflicts.flips())
    assert conflicts.commuting > 0
    assert len(flips) + conflicts.commuting == len(conflicts.pairs())


def test_two_exits_do_not_commute() -> None:
    """Whichever comes first is the evidence that the incident names."""
    story = crash_and_restart()
    story.exit("d/trainer/0#2", 1)
    story.exit("d/trainer/1#2", 2)
    conflicts = Conflicts(explored(story))
    last = max(at for at in range(len(story.records)) if _is_exit(story, at))
    first = max(at for at in range(last) if _is_exit(story, at))
    assert not conflicts.commute(first, last)


def _is_exit(story: Story, at: int) -> bool:
    return isinstance(story.records[at].entry.event, TaskExited)


def test_a_flip_puts_the_first_right_after_the_second() -> None:
    story = crash_and_restart()
    first, second = note(story, "ann", "one"), note(story, "bob", "two")
    run = execute(incident_of(story), Schedule((Flip(first, second),)), to_the_end=True)
    texts = [getattr(record.entry.event, "text", "") for record in run.records]
    assert [text for text in texts if text] == ["two", "one"]
    assert run.diverged_at == first


def test_a_run_that_is_as_recorded_again_ends_there() -> None:
    """After two notes in the other order nothing is left that is different."""
    story = crash_and_restart()
    first, second = note(story, "ann", "one"), note(story, "bob", "two")
    story.wait(2_000)
    run = execute(explored(story), Schedule((Flip(first, second),)))
    assert run.converged_at == second + 1
    assert run.consumed == len(story.records)
    assert run.violation is None


def test_a_late_message_is_late_with_what_its_sender_sent_after_it() -> None:
    story = crash_and_restart()
    exited = position(story, TaskExited)
    run = execute(explored(story), Schedule((Delay(exited, exited + 3),)), to_the_end=True)
    kinds = [type(record.entry.event).__name__ for record in run.records[exited:]]
    assert kinds.index("TaskExited") == 2, "its reaping stood between and could not overtake it"
    assert kinds.index("TaskReaped") > kinds.index("TaskExited")
    assert run.violation is None


def test_an_order_of_other_events_is_refused() -> None:
    with pytest.raises(ValueError, match="is no order of"):
        execute(explored(crash_and_restart()), Schedule((Reorder(3, (3, 5)),)))


def test_a_position_beyond_the_log_is_refused() -> None:
    with pytest.raises(ValueError, match="the log has 0 to"):
        execute(explored(crash_and_restart()), Schedule((Flip(3, 4_000),)))


def test_a_planted_race_is_found_by_a_single_flip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were later evidence against a stopping generation taken for a failure of its own, the other
    order of two exits would restart the gang twice."""
    weigh = gangs.weigh_against

    def fail_again(step, key, found, *rest, **more):  # type: ignore[no-untyped-def]
        gang = step.state.gangs[key]
        if gang.phase == GangPhase.STOPPING and found.subject.startswith("d/trainer/0"):
            step.state.put_gang(replace(gang, phase=GangPhase.RUNNING))
        weigh(step, key, found, *rest, **more)

    story = Story(hosts=2, settings=QUICK)
    story.submit("d", 2)
    story.wait(500)
    story.exit("d/trainer/0#1", 1)
    story.exit("d/trainer/1#1", 1)
    story.wait(1_000)
    incident = incident_of(story)
    monkeypatch.setattr(gangs, "weigh_against", fail_again)
    found = next(search(incident, budget_s=5, seed=1, strategies=(SingleFlips,)))
    assert found.strategy == "single flips"
    assert found.run.violation is not None
    assert found.run.violation.sentence == "one failure makes one restart"


def test_pairs_cost_as_much_as_there_are_conflicts() -> None:
    """Ten times as many events that touch nothing in common make no more pairs to look at."""

    def looked_at(notes: int) -> int:
        story = crash_and_restart()
        for number in range(notes):
            note(story, f"client-{number}", "hello")
        conflicts = Conflicts(explored(story))
        conflicts.pairs()
        return conflicts.looked_at

    assert looked_at(200) == looked_at(20)


def test_pairs_of_a_long_quiet_time_cost_as_much_as_it_is_long() -> None:
    """What one leader records by itself is ordered, however often it touches the same hosts."""

    def looked_at(beats: int) -> int:
        story = crash_and_restart()
        for _ in range(beats):
            story.beat()
        story.exit("d/trainer/1#2", 1)
        conflicts = Conflicts(explored(story))
        conflicts.pairs()
        return conflicts.looked_at

    few, more, most = looked_at(50), looked_at(100), looked_at(200)
    assert most - more == 2 * (more - few)


def test_what_it_costs_to_find_pairs_grows_as_the_log_does() -> None:
    """A log that is dominated by two ranks' steps, which all touch the row of their gang and which
    nothing orders: ten times as many make ten times the work, not a hundred times."""

    def costs(steps: int) -> tuple[int, int, int]:
        story = crash_and_restart()
        for step in range(3, steps // 2 + 3):
            story.all_step("d", step)
        ready = explored(story)
        conflicts = Conflicts(ready)
        pairs = len(conflicts.pairs())
        return conflicts.looked_at, pairs, ready.order.joins

    few, more, most = costs(100), costs(1_000), costs(10_000)
    for at, names in enumerate(("looked at", "pairs", "joins")):
        growth = (most[at] - more[at]) / max(more[at] - few[at], 1)
        assert growth <= 11, names
    assert most[1] > 10_000
