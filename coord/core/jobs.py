"""Jobs: submitted, resized, cancelled. How they end is in `ending.py`."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.ending import end_job
from coord.core.placement import remember_shapes
from coord.core.step import Step, on
from coord.model.decisions import JobResized
from coord.model.entities import (
    ENDED_GANG,
    FINISHED_JOB,
    FailureCause,
    Gang,
    GangPhase,
    Job,
    JobStatus,
)
from coord.model.events import JobCancelRequested, JobResizeRequested, JobSubmitted
from coord.model.ids import gang_key
from coord.model.rejections import Rejection
from coord.model.spec import RoleSpec, spec_problems


@on(JobSubmitted)
def _submitted(step: Step, event: JobSubmitted) -> Rejection | None:
    spec = event.spec
    if spec_problems(spec):
        return Rejection.INVALID
    if spec.name in step.state.jobs:
        return Rejection.DUPLICATE_JOB
    if spec.queue and spec.queue not in step.state.queues:
        return Rejection.UNKNOWN_QUEUE
    job = Job(
        name=spec.name,
        spec=spec,
        status=JobStatus.QUEUED,
        submitted=step.entry.index,
        submitted_ms=step.now_ms,
        replicas=tuple(role.replicas for role in spec.roles),
        actor=event.actor,
    )
    keys = []
    for role in spec.roles:
        for index in (-1,) if role.gang else range(role.replicas):
            keys.append(_add_gang(step, job, role, index))
    step.state.put_job(replace(job, gangs=tuple(keys)))
    if step.state.meta.logic_version >= 2:
        remember_shapes(step.state, spec)
    step.scheduling = True
    return None


def _add_gang(step: Step, job: Job, role: RoleSpec, index: int) -> str:
    key = gang_key(job.name, role.name, index)
    gang = Gang(
        key=key,
        job=job.name,
        role=role.name,
        index=index,
        phase=GangPhase.WAITING,
        desired=role.replicas if index < 0 else 1,
        cause=step.cause,
        submitted=job.submitted,
    )
    step.state.put_gang(gang)
    return key


@on(JobCancelRequested)
def _cancel_requested(step: Step, event: JobCancelRequested) -> Rejection | None:
    job = step.state.jobs.get(event.job)
    if job is None:
        return Rejection.UNKNOWN_JOB
    if job.status in FINISHED_JOB:
        return Rejection.JOB_FINISHED
    if job.ending:
        return Rejection.NOTHING_TO_DO
    job = replace(job, reason=event.reason)
    ending, why = JobStatus.CANCELLED, FailureCause.CANCEL
    end_job(step, job, ending, why, "cancel", step.cause, gangs.end_gang)
    return None


@on(JobResizeRequested)
def _resize_requested(step: Step, event: JobResizeRequested) -> Rejection | None:
    job = step.state.jobs.get(event.job)
    if job is None:
        return Rejection.UNKNOWN_JOB
    if job.status in FINISHED_JOB or job.ending:
        return Rejection.JOB_FINISHED
    role = job.spec.role(event.role)
    if role is None:
        return Rejection.UNKNOWN_ROLE
    if not role.smallest <= event.replicas <= role.largest:
        return Rejection.OUT_OF_RANGE
    at = job.spec.roles.index(role)
    if job.replicas[at] == event.replicas:
        return Rejection.NOTHING_TO_DO
    replicas = (*job.replicas[:at], event.replicas, *job.replicas[at + 1 :])
    step.state.put_job(replace(job, replicas=replicas))
    cause = step.decide(JobResized((step.cause,), job.name, role.name, event.replicas))
    if role.gang:
        _resize_gang(step, gang_key(job.name, role.name, -1), event.replicas, cause)
    else:
        _resize_tasks(step, job.name, role, event.replicas, cause)
    step.scheduling = True
    return None


def _resize_gang(step: Step, key: str, replicas: int, cause: str) -> None:
    gang = step.state.gangs[key]
    if gang.phase in ENDED_GANG:
        return
    step.state.put_gang(replace(gang, desired=replicas))
    if gang.phase in gangs.ACTIVE and gang.size != replicas:
        detail = f"{gang.size} to {replicas} replicas"
        why = FailureCause.RESIZE
        gangs.fail_gang(step, key, why, key, detail, step.now_ms, cause)


def _resize_tasks(step: Step, name: str, role: RoleSpec, replicas: int, cause: str) -> None:
    """Independent tasks come and go one by one; the others are not disturbed.

    One that has gone took its budgets and checkpoints with it: the next of its name begins anew.
    """
    state = step.state
    for key in state.jobs[name].gangs:
        gang = state.gangs[key]
        if gang.role != role.name:
            continue
        if gang.index >= replicas and gang.phase not in ENDED_GANG:
            gangs.end_gang(step, key, FailureCause.RESIZE, "remove", cause)
        elif gang.index < replicas and gang.stop_final == "remove":
            # It was on its way out by an earlier resize, and is wanted again.
            state.put_gang(replace(gang, stop_final=""))
    added = []
    for index in range(replicas):
        if gang_key(name, role.name, index) not in state.gangs:
            added.append(_add_gang(step, state.jobs[name], role, index))
    job = state.jobs[name]
    state.put_job(replace(job, gangs=(*job.gangs, *added)))
