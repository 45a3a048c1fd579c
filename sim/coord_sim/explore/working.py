"""What tasks do that the log never had: they go on at the pace that it shows for their role.

A generation that is only placed in an execution finishes steps, saves checkpoints and comes to an
end as those before it did, so that what it still has to say can come too late as well.
"""

from __future__ import annotations

import itertools
import re
from statistics import median_low
from typing import TYPE_CHECKING, Any

import msgspec

from coord.agent.reconcile import Fact
from coord.model.entry import Recorded
from coord.model.events import (
    CheckpointBegun,
    ProgressReported,
    ShardSaved,
    TaskExited,
    TaskStarted,
)

from . import agents

if TYPE_CHECKING:
    from .reacting import Reacting

Role = tuple[str, str]
"""Job and role."""


class Pace(msgspec.Struct, frozen=True):
    """How tasks of a role go on, as far as the log shows it."""

    every_ms: int
    """Between two reports of progress."""
    stride: int
    """Steps between them."""
    save_every: int = 0
    """Steps between two saves; 0 where none was seen."""
    path: str = ""
    """Where a save goes, with places for the step and the generation."""
    last: int = 0
    """The step after which tasks exited well; 0 where none did."""


def role_of(task: str) -> Role:
    order = agents.order_of_key(task)
    return order.job, order.role


def paces(records: tuple[Recorded, ...]) -> dict[Role, Pace]:
    """Of every role of which a task was seen to go on."""
    newest: dict[str, tuple[int, int]] = {}
    gaps: dict[Role, list[tuple[int, int]]] = {}
    saved: dict[Role, list[tuple[int, str]]] = {}
    ended: dict[Role, int] = {}
    for record in records:
        event = record.entry.event
        if not record.accepted or record.duplicate_of:
            continue
        if isinstance(event, TaskStarted):
            newest[event.task] = (record.now_ms, 0)
        elif isinstance(event, ProgressReported):
            role = role_of(event.task)
            known = newest.get(event.task)
            if known is not None and record.now_ms > known[0] and event.step > known[1]:
                gaps.setdefault(role, []).append((record.now_ms - known[0], event.step - known[1]))
            newest[event.task] = (record.now_ms, event.step)
        elif isinstance(event, ShardSaved):
            saved.setdefault(role_of(event.task), []).append((event.step, _pattern(event)))
        elif isinstance(event, TaskExited):
            well = event.observed and not event.expected and not (event.exit_code or event.signal)
            if well and event.task in newest:
                ended[role_of(event.task)] = newest[event.task][1]
    return {
        role: Pace(
            median_low([ms for ms, _ in found]),
            median_low([steps for _, steps in found]),
            _distance([step for step, _ in saved.get(role, ())]),
            saved[role][-1][1] if role in saved else "",
            ended.get(role, 0),
        )
        for role, found in gaps.items()
    }


def _pattern(event: ShardSaved) -> str:
    """The path with places for step and generation, for `str.format`."""
    path = event.path.replace("{", "{{").replace("}", "}}")
    generation = agents.order_of_key(event.task).generation
    path = re.sub(rf"gen-{generation}(?!\d)", "gen-{generation}", path)
    step = re.compile(rf"(?<!\d)0*{event.step}(?!\d)")
    return step.sub(lambda found: f"{{step:0{len(found[0])}}}", path, count=1)


def _distance(steps: list[int]) -> int:
    """Between two saves; where there was one alone, as far as that was from the beginning."""
    once = sorted(dict.fromkeys(steps))
    gaps = [later - earlier for earlier, later in itertools.pairwise(once)]
    return median_low(gaps) if gaps else once[0] if once else 0


def begin(execution: Reacting, host: str, task: str) -> None:
    """A task that runs now goes on by itself, unless the log has what comes of it."""
    recording = execution.recording
    pace = recording.paces.get(role_of(task))
    row = execution.state.tasks.get(task)
    if pace is None or row is None or (task, Fact.STARTED) in recording.told:
        return
    gang = execution.state.gangs.get(row.gang)
    step = max(gang.restore_step if gang is not None else 0, 0) + pace.stride
    execution.later(pace.every_ms, "works", host, (task, step))


def work(execution: Any, host: str, about: tuple[str, int]) -> None:
    """One more report of progress, with what is due at that step; and then the next."""
    task, step = about
    agent = execution.agents.get(host)
    record = agent.records.get(task) if agent is not None and host not in execution.dead else None
    if execution.healed or record is None or not agents.alive(record) or record.stopping:
        return
    pace = execution.recording.paces[role_of(task)]
    if agent.registered:
        execution.say(host, ProgressReported(host, agent.incarnation, task, step))
        if pace.save_every and step // pace.save_every > (step - pace.stride) // pace.save_every:
            _save(execution, host, task, step, pace)
    if pace.last and step >= pace.last:
        execution.later(_saving_ms(pace) + 1, "finished", host, task)
    else:
        execution.later(pace.every_ms, "works", host, (task, step + pace.stride))


def _save(execution: Any, host: str, task: str, step: int, pace: Pace) -> None:
    """The shard is durable a while after the save began, and told at once."""
    generation = agents.order_of_key(task).generation
    path = pace.path.format(step=step, generation=generation)
    incarnation = execution.agents[host].incarnation
    execution.say(host, CheckpointBegun(host, incarnation, task, step, path))
    execution.later(_saving_ms(pace), "saved", host, (task, step, path))


def _saving_ms(pace: Pace) -> int:
    return max(pace.every_ms // 4, 1)


def saved(execution: Any, host: str, about: tuple[str, int, str]) -> None:
    """A shard is durable, whatever has become of its task meanwhile."""
    task, step, path = about
    agent = execution.agents.get(host)
    if agent is None or host in execution.dead or not agent.registered:
        return
    order = agents.order_of_key(task)
    shard, digest = f"rank-{order.index}", f"{task}@{step}"
    execution.say(host, ShardSaved(host, agent.incarnation, task, step, path, shard, digest))


def finished(execution: Any, host: str, task: str) -> None:
    """The last step is done: the task exits well."""
    agent = execution.agents.get(host)
    record = agent.records.get(task) if agent is not None and host not in execution.dead else None
    if record is not None and agents.alive(record):
        execution.comes_true(host, task, TaskExited(host, agent.incarnation, task))
