"""What the demo reads from the log, on logs that were made without a cluster."""

from __future__ import annotations

from typing import NamedTuple

from coord.cli.demo_log import JobLog, cost_text
from coord.model.decisions import IncidentClosed
from coord.model.entry import Recorded
from tests.fleet_story import Story


class Page(NamedTuple):
    events: tuple[Recorded, ...]
    next: int


class Reader:
    """The records of a story, in pages of the size asked for."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def events(self, start: int, limit: int) -> Page:
        page = tuple(self.story.records[start - 1 : start - 1 + limit])
        return Page(page, start + len(page))


def running_story() -> Story:
    """Two ranks of a gang that have saved step 3 and done step 6."""
    story = Story(hosts=3)
    story.submit("digits", 2, spares=1)
    story.obey()
    story.all_step("digits", 3)
    story.checkpoint("digits", 3)
    story.all_step("digits", 6)
    return story


def log_of(story: Story) -> JobLog:
    log = JobLog()
    log.fetch(Reader(story))
    return log


def test_a_gang_is_in_full_swing_some_steps_past_a_checkpoint() -> None:
    """Only then does a failure cost steps, and only then is there something to return to."""
    story = Story(hosts=3)
    assert not log_of(story).in_full_swing
    story.submit("digits", 2)
    story.obey()
    story.all_step("digits", 3)
    assert not log_of(story).in_full_swing
    story.checkpoint("digits", 3)
    assert not log_of(story).in_full_swing
    story.all_step("digits", 6)
    assert log_of(story).in_full_swing


def test_a_new_generation_is_in_full_swing_only_by_its_own_steps() -> None:
    """Steps and checkpoints of the one before do not count for it."""
    story = running_story()
    story.exit("digits/trainer/0#1", 0, 9)
    story.wait(1_000)
    log = log_of(story)
    assert log.generation == 2
    assert (log.step, log.checkpoint_step) == (-1, -1)
    assert not log.in_full_swing


def test_the_log_is_fetched_piece_by_piece() -> None:
    """A later fetch adds what is new, once."""
    story = running_story()
    log = log_of(story)
    story.all_step("digits", 7)
    log.fetch(Reader(story))
    log.fetch(Reader(story))
    assert log.records == story.records
    assert log.step == 7


def test_two_failures_are_two_incidents_and_no_problem() -> None:
    """A rank and a host die, the gang recovers from each."""
    story = running_story()
    story.exit("digits/trainer/0#1", 0, 9)
    story.wait(1_000)
    story.all_step("digits", 7)
    lost = story.running["digits/trainer/1#2"]
    story.lose(lost)
    story.wait(10_000)
    story.all_step("digits", 8)
    log = log_of(story)
    assert [one.resolved for one in log.closed] == [True, True]
    assert log.problems(incidents=2, lost_hosts=[lost]) == []


def test_what_differs_from_the_expected_is_said() -> None:
    """One incident instead of two, a host lost that nobody killed."""
    story = running_story()
    story.lose(story.running["digits/trainer/1#1"])
    story.wait(10_000)
    problems = log_of(story).problems(incidents=2, lost_hosts=[])
    assert [problem.split(",")[0] for problem in problems] == [
        "2 incidents were expected",
        "generation 3 should be the last",
        "hosts lost should be []",
    ]


def test_the_leader_is_the_one_elected_last() -> None:
    """Stories begin with node 1."""
    assert log_of(Story()).leader == 1
    assert JobLog().leader == 0


def test_the_cost_of_an_incident_is_one_line() -> None:
    """Phases in seconds, a dash for one that was not reached."""
    closed = IncidentClosed(("1",), 1, "digits", "digits/trainer", 1, 50, 200, 0, -1, -1, 7, True)
    assert cost_text(closed) == (
        "detected in 0.05 s, stopped in 0.20 s, placed in 0.00 s, running again in -, "
        "next step after -; 7 steps lost"
    )
