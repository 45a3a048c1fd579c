"""What the log says of tasks: where they were placed, what they started, saved and committed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from coord.model.decisions import CheckpointCommitted, GangSucceeded, TasksPlaced, TasksStopping
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


def read_story(log: ExportedLog, traced: Callable[[str], bool]) -> Story:
    """Go through the log once."""
    story = Story()
    for record in log.records:
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
        for decision in record.decisions:
            if isinstance(decision, TasksPlaced):
                key = (decision.gang, decision.generation)
                story.placed[key] = (decision, index, record.entry.wall_ms)
                story.newest[decision.gang] = decision.generation
            elif isinstance(decision, CheckpointCommitted) and traced(decision.job):
                newest = story.newest.get(decision.gang, 0)
                story.commits.append((index, decision, newest))
            elif isinstance(decision, TasksStopping):
                story.unwanted.add((decision.gang, decision.generation))
            elif isinstance(decision, GangSucceeded) and traced(decision.job):
                story.succeeded.append((index, decision))
    return story


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
