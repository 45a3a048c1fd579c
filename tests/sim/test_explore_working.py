"""Tasks that only an execution has: they go on at the log's pace."""

from __future__ import annotations

import pytest
from coord_sim.explore.execute import Explored, Run, execute
from coord_sim.explore.schedule import LoseHosts, Schedule
from coord_sim.explore.working import Pace, paces

from coord.model.decisions import CheckpointCommitted
from coord.model.events import (
    HeartbeatsSeen,
    ProgressReported,
    ShardSaved,
)
from tests.fleet_story import Story

from .explored_stories import QUICK, explored, position

PATH = "/ck/step-{step:010}-gen-{generation}"


def saving_story() -> Story:
    """A task of one rank finishes ten steps, two in a second, saves every fifth, and ends."""
    story = Story(hosts=2, settings=QUICK)
    story.submit("d", 1)
    story.wait(500)
    for step in range(1, 11):
        story.wait(500)
        story.all_step("d", step)
        if step % 5 == 0:
            story.checkpoint("d", step)
    story.exit("d/trainer/0#1")
    story.wait(10_000)
    return story


@pytest.fixture(name="ready", scope="module")
def _ready() -> Explored:
    return explored(saving_story())


def lost_early(ready: Explored) -> Run:
    """The host of the task has no power from the second step on."""
    at = next(
        at
        for at, record in enumerate(ready.recording.records)
        if isinstance(record.entry.event, ProgressReported) and record.entry.event.step == 2
    )
    event = ready.recording.records[at].entry.event
    assert isinstance(event, ProgressReported)
    run = execute(ready, Schedule((LoseHosts((event.host,), at),)), to_the_end=True)
    assert run.violation is None
    return run


def test_the_pace_is_read_off_the_log(ready: Explored) -> None:
    found = paces(ready.recording.records)
    assert found == {("d", "trainer"): Pace(500, 1, 5, PATH, 10)}


def test_a_generation_that_the_log_never_had_works_saves_and_ends(ready: Explored) -> None:
    events = [(record.entry.event, record.accepted) for record in lost_early(ready).records]
    steps = [
        event.step
        for event, accepted in events
        if isinstance(event, ProgressReported) and event.task.endswith("#2") and accepted
    ]
    assert steps == list(range(1, 11))
    saved = [event for event, _ in events if isinstance(event, ShardSaved)]
    assert [(shard.step, shard.path) for shard in saved] == [
        (step, PATH.format(step=step, generation=2)) for step in (5, 10)
    ]
    decisions = [one for record in lost_early(ready).records for one in record.decisions]
    commits = [one.generation for one in decisions if isinstance(one, CheckpointCommitted)]
    assert commits == [2, 2]
    assert lost_early(ready).state.jobs["d"].status == "completed"


def test_a_service_without_steps_makes_none() -> None:
    story = Story(hosts=2, settings=QUICK)
    story.submit("d", 1)
    story.wait(3_000)
    ready = explored(story)
    assert paces(ready.recording.records) == {}
    (task,) = story.state.tasks.values()
    at = position(story, HeartbeatsSeen, 2)
    run = execute(ready, Schedule((LoseHosts((task.host,), at),)), to_the_end=True)
    assert not [one for one in run.records if isinstance(one.entry.event, ProgressReported)]
