"""What the log says of tasks: where they were placed, what they started, saved and committed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coord.model.decisions import (
    CheckpointCommitted,
    Decision,
    GangSucceeded,
    HostLost,
    RestartScheduled,
    TasksPlaced,
    TasksStopping,
)
from coord.model.entry import Recorded
from coord.model.events import JobSubmitted, ShardSaved, TaskReaped, TaskStarted
from coord.model.rejections import Rejection
from jepsen_lite.judge.exported import ExportedLog


class Story(msgspec.Struct):
    """What the log says of the tasks of traced jobs: those whose processes write a diary."""

    exclusive: set[tuple[str, str]] = set()
    """(job, role)"""
    placed: dict[tuple[str, int], tuple[TasksPlaced, int, int]] = {}
    """(gang, generation) to the placement, its index and the leader's clock in ms."""
    newest: dict[str, int] = {}
    """Gang to the generation placed last, while the log is read."""
    seats: dict[str, tuple[str, int, str, int]] = {}
    """Task to its gang, generation, host, and the index that placed it there."""
    lost: dict[str, list[int]] = {}
    """Host to the indexes at which it was taken as lost, ascending."""
    over: dict[tuple[str, int], int] = {}
    """(gang, generation) to the index from which on it is given up: a restart was decided, or the
    next generation placed."""
    started: list[tuple[int, TaskStarted]] = []
    reaped: dict[str, tuple[int, int]] = {}
    """Task to the index that says so and the leader's clock in ms."""
    counted: dict[tuple[str, str], tuple[int, ShardSaved]] = {}
    """(task, path) to the shard that counts."""
    known: set[tuple[str, str, str]] = set()
    """(task, path, digest) of all that the log holds, whether it came first or again."""
    commits: list[tuple[int, CheckpointCommitted, int]] = []
    """Index, commit, and the generation placed last at that index."""
    unwanted: set[tuple[str, int]] = set()
    """(gang, generation) that was told to stop."""
    succeeded: list[tuple[int, GangSucceeded]] = []

    def given_up(self, task: str, index: int) -> str:
        """Why nothing that the task does counts at this index any more, by what stands in the log
        before it; empty when it may."""
        if task not in self.seats:
            return ""
        gang, generation, host, placed_at = self.seats[task]
        over_at = self.over.get((gang, generation), index)
        if over_at < index:
            return f"generation {generation} of {gang} was given up at index {over_at}"
        for lost_at in self.lost.get(host, ()):
            if placed_at < lost_at < index:
                return f"{host}, where it ran, was taken as lost at index {lost_at}"
        return ""


def read_story(log: ExportedLog, traced: Callable[[str], bool]) -> Story:
    """Go through the log once."""
    story = Story()
    for record in log.records:
        _happened(story, record, traced)
        for decision in record.decisions:
            _decided(story, record, decision, traced)
    return story


def _happened(story: Story, record: Recorded, traced: Callable[[str], bool]) -> None:
    index, event = record.entry.index, record.entry.event
    counts = record.accepted and not record.duplicate_of
    if isinstance(event, ShardSaved) and _job_of(event.task, traced):
        if record.accepted or record.rejection == Rejection.NOTHING_TO_DO:
            story.known.add((event.task, event.path, event.digest))
        if counts:
            story.counted[event.task, event.path] = (index, event)
    elif isinstance(event, TaskStarted) and counts and _job_of(event.task, traced):
        story.started.append((index, event))
    elif isinstance(event, TaskReaped) and counts:
        story.reaped.setdefault(event.task, (index, record.entry.wall_ms))
    elif isinstance(event, JobSubmitted) and counts:
        roles = [role.name for role in event.spec.roles if role.exclusive]
        story.exclusive.update((event.spec.name, role) for role in roles)


def _decided(
    story: Story, record: Recorded, decision: Decision, traced: Callable[[str], bool]
) -> None:
    index = record.entry.index
    if isinstance(decision, TasksPlaced):
        _placed(story, decision, index, record.entry.wall_ms)
    elif isinstance(decision, HostLost):
        story.lost.setdefault(decision.host, []).append(index)
    elif isinstance(decision, RestartScheduled):
        story.over.setdefault((decision.gang, decision.generation), index)
    elif isinstance(decision, CheckpointCommitted) and traced(decision.job):
        story.commits.append((index, decision, story.newest.get(decision.gang, 0)))
    elif isinstance(decision, TasksStopping):
        story.unwanted.add((decision.gang, decision.generation))
    elif isinstance(decision, GangSucceeded) and traced(decision.job):
        story.succeeded.append((index, decision))


def _placed(story: Story, decision: TasksPlaced, index: int, wall_ms: int) -> None:
    gang, generation = decision.gang, decision.generation
    before = story.newest.get(gang, generation)
    if before < generation:
        story.over.setdefault((gang, before), index)
    story.newest[gang] = generation
    story.placed[gang, generation] = (decision, index, wall_ms)
    for placement in decision.placements:
        story.seats[placement.task] = (gang, generation, placement.host, index)


def _job_of(task: str, traced: Callable[[str], bool]) -> bool:
    return traced(task.partition("/")[0])


def every_job_with(command_word: str, log: ExportedLog) -> Callable[[str], bool]:
    """Whether a job's command has this word: how to tell which jobs write diaries."""
    names = {
        record.entry.event.spec.name
        for record in log.records
        if isinstance(record.entry.event, JobSubmitted)
        and any(command_word in role.command for role in record.entry.event.spec.roles)
    }
    return names.__contains__
