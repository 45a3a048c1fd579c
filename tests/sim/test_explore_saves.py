"""Checkpoints in an exploration: what is taken apart holds them to one generation and to growth."""

from __future__ import annotations

import pytest
from coord_sim.explore.execute import execute
from coord_sim.explore.judge import (
    COMMITS_GROW,
    CURRENT_COMMITS,
    ONE_GENERATION,
    Sight,
    judge,
    memory_of,
)
from coord_sim.explore.run import Violation
from coord_sim.explore.schedule import Duplicate, Schedule
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.surgery import applied
from msgspec.structs import replace

from coord.model.entities import TaskStatus
from coord.model.entry import Origin
from coord.model.events import HeartbeatsSeen, ShardSaved
from tests.fleet_story import Story

from .explored_stories import QUICK, explored, position

PATH = "/ck/3"


def begun() -> Story:
    """A gang of two at its third step, the save of which has one shard."""
    story = Story(hosts=2, settings=QUICK)
    story.submit("d", 2, grace_ms=1_000)
    story.wait(500)
    story.all_step("d", 3)
    save(story, "d/trainer/0#1", 3)
    return story


def save(story: Story, task: str, step: int) -> None:
    """The shard of one task, whether it is taken or not."""
    row = story.state.tasks[task]
    host = story.state.hosts[row.host]
    about = (row.host, host.incarnation, task)
    origin = Origin(f"host:{row.host}", host.incarnation, host.report_seq + 1)
    story.add(origin, ShardSaved(*about, step, PATH, f"{row.index}", f"{task}@{step}"))


def late_step() -> Story:
    """The step is saved after one that is further."""
    story = begun()
    story.checkpoint("d", 5)
    for task in ("d/trainer/0#1", "d/trainer/1#1"):
        save(story, task, 3)
    return story


def next_generation() -> Story:
    """A rank dies, and the generation after it saves the same step."""
    story = begun()
    story.exit("d/trainer/1#1", 1)
    story.wait(2_500)
    save(story, "d/trainer/1#2", 3)
    return story


STORIES = {
    "steps-never-back": (late_step, COMMITS_GROW),
    "checkpoint-of-one-generation": (next_generation, ONE_GENERATION),
}


def explore_a_little(story: Story) -> Violation | None:
    """From the first beat on, which comes twice."""
    at = position(story, HeartbeatsSeen)
    schedule = Schedule((Duplicate(at, at),))
    return execute(explored(story), schedule, to_the_end=True).violation


@pytest.mark.parametrize("name", STORIES)
def test_a_wrong_commit_is_found(name: str) -> None:
    tell, sentence = STORIES[name]
    assert explore_a_little(tell()) is None
    with applied(MUTANTS[name]):
        violation = explore_a_little(tell())
    assert violation is not None
    assert violation.sentence == sentence


def test_a_shard_of_a_task_that_was_given_up_is_not_taken() -> None:
    """Judged on the entry that takes it: in the end it may stand in a checkpoint of others."""
    story = begun()
    record = story.records[-1]
    assert record.accepted
    memory, sight = memory_of(story.state), Sight(now_ms=record.now_ms)
    assert judge(memory, story.state, record, [], sight)[1] is None
    task = story.state.tasks["d/trainer/0#1"]
    for status, generation in ((TaskStatus.UNKILLABLE, 1), (TaskStatus.RUNNING, 0)):
        story.state.tasks.put(task.key, replace(task, status=status, generation=generation))
        broken = judge(memory, story.state, record, [], sight)[1]
        assert broken is not None
        assert broken[0] == CURRENT_COMMITS
