"""State as it is shown: entities with what belongs to them."""

from __future__ import annotations

from typing import Any

import msgspec

from coord.core.care import quarantine_course
from coord.core.placement import never_fits
from coord.core.queueing.queues import QUEUES_SINCE
from coord.core.queueing.turns import turns_now
from coord.core.state import State
from coord.model.entities import Checkpoint, Host, Job, JobStatus
from coord.model.spec import Problem, Resources


def positions(state: State) -> dict[str, int]:
    """By job, which turn it has among those that wait in its queue: 1 is next."""
    if state.meta.logic_version < QUEUES_SINCE:
        return {}
    counts: dict[str, int] = {}
    found: dict[str, int] = {}
    for gang in turns_now(state):
        queue = state.jobs[gang.job].spec.queue
        if gang.job not in found:
            counts[queue] = found[gang.job] = counts.get(queue, 0) + 1
    return found


def job_view(state: State, job: Job) -> dict[str, Any]:
    """A job with its gangs, their tasks and the newest committed checkpoint."""
    newest: Checkpoint | None = None
    gangs = []
    for key in job.gangs:
        gang = state.gangs.get(key)
        if gang is None:
            continue
        checkpoint = state.newest_checkpoint(key)
        if checkpoint is not None and (newest is None or checkpoint.step > newest.step):
            newest = checkpoint
        saves = [_checkpoint_view(row) for row in checkpoints_of(state, key)]
        gangs.append(msgspec.structs.asdict(gang) | {"tasks": [], "checkpoints": saves})
    by_key = {gang["key"]: gang["tasks"] for gang in gangs}
    for task in tasks_of(state, job):
        if task.gang in by_key:
            by_key[task.gang].append(task)
    weights = state.weights.get(job.name)
    return msgspec.structs.asdict(job) | {"gangs": gangs, "checkpoint": newest, "weights": weights}


def checkpoints_of(state: State, gang: str) -> list[Checkpoint]:
    """The committed ones that are remembered, those set aside among them, by step."""
    rows = [state.checkpoints[key] for key in state.checkpoints_by_gang.get(gang, ())]
    committed = [row for row in rows if row.committed]
    return sorted(committed, key=lambda row: (row.step, row.generation))


def _checkpoint_view(row: Checkpoint) -> dict[str, Any]:
    """Without its shards: there may be thousands."""
    return {
        "step": row.step,
        "generation": row.generation,
        "path": row.path,
        "committed_at": row.committed_at,
        "set_aside": row.set_aside,
    }


def warnings_of(state: State, job: Job) -> tuple[Problem, ...]:
    """Why a job that nothing of has ever run could not start on the fleet as it is, were it empty.

    It is no reason to refuse it: fleets grow.
    """
    return tuple(never_fits(state, job.spec)) if job.status == JobStatus.QUEUED else ()


def tasks_of(state: State, job: Job) -> list[Any]:
    """The job's tasks that still take something of a host, by generation, role and index."""
    hosts = {
        host: None for key in job.gangs if (gang := state.gangs.get(key)) for host in gang.hosts
    }
    found = {}
    for name in hosts:
        host = state.hosts.get(name)
        for key in host.tasks if host is not None else ():
            task = state.tasks.get(key)
            if task is not None and task.job == job.name:
                found[key] = task
    for gang_key in job.gangs:
        gang = state.gangs.get(gang_key)
        for key in gang.processes if gang is not None else ():
            if key in state.tasks:
                found[key] = state.tasks[key]
    return sorted(found.values(), key=lambda task: (task.generation, task.role, task.index))


def host_view(state: State, host: Host) -> dict[str, Any]:
    """A host with how long ago it was heard, in log time, what is free on it, and how far it is on
    its way out of the fleet and back."""
    taken = [state.tasks[key] for key in host.tasks if key in state.tasks]
    free = Resources(
        devices=host.devices - sum(len(task.devices) for task in taken),
        cpu_millis=host.cpu_millis - sum(task.cpu_millis for task in taken),
        memory_mib=host.memory_mib - sum(task.memory_mib for task in taken),
    )
    ago_ms = state.meta.now_ms - state.last_seen_ms[host.slot]
    row = state.quarantines.get(host.host)
    held = {
        "quarantined": row,
        "quarantined_ms_ago": state.meta.now_ms - row.since_ms if row is not None else 0,
        "next_step": quarantine_course.next_step(row) if row is not None else "",
        "silent_domain": next(
            (
                f"{silence.level} {silence.domain}"
                for silence in state.silences.values()
                if host.host in silence.hosts
            ),
            "",
        ),
    }
    move_in_ms = max(host.move_by_ms - state.meta.now_ms, 0)
    seen = {
        "last_seen_ms_ago": ago_ms,
        "free": free,
        "move_in_ms": move_in_ms,
        "evidence": state.evidence.get(host.host),
    }
    return msgspec.structs.asdict(host) | seen | held
