"""How a job ends: by its gangs, or because somebody wants it to."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from coord.core.incidents import costed
from coord.core.step import Step
from coord.model.decisions import JobCancelled, JobCompleted, JobFailed
from coord.model.entities import (
    ENDED_GANG,
    FINISHED_JOB,
    FailureCause,
    Gang,
    GangPhase,
    Job,
    JobStatus,
)
from coord.model.recovery import recovery_of

EndGang = Callable[[Step, str, FailureCause, str, str], None]


def gang_ended(step: Step, gang: Gang, end_gang: EndGang) -> None:
    """One gang has ended: does its job end with it?"""
    state = step.state
    job = state.jobs[gang.job]
    if gang.stop_final == "remove":
        left = tuple(key for key in job.gangs if key != gang.key)
        job = replace(job, gangs=left)
        state.put_job(job)
        state.gangs.drop(gang.key)
        for key in state.checkpoints_by_gang.pop(gang.key, ()):
            state.checkpoints.drop(key)
    if gang.stop_final == "fail" and not job.ending:
        job = replace(job, reason=gang.fail_reason, detail=f"{gang.key}: {gang.fail_detail}")
        end_job(step, job, JobStatus.FAILED, FailureCause.JOB_ENDED, "cancel", gang.cause, end_gang)
        return
    if not job.ending and _all_done(step, job):
        end_job(
            step, job, JobStatus.COMPLETED, FailureCause.JOB_ENDED, "succeed", gang.cause, end_gang
        )
        return
    _finish(step, job.name, gang.cause)


def end_job(
    step: Step,
    job: Job,
    ending: JobStatus,
    cause: FailureCause,
    final: str,
    why: str,
    end_gang: EndGang,
) -> None:
    """Stop whatever of the job is left; it has ended when nothing is."""
    step.state.put_job(replace(job, status=JobStatus.STOPPING, ending=ending))
    for key in job.gangs:
        if step.state.gangs[key].phase not in ENDED_GANG:
            end_gang(step, key, cause, final, why)
    _finish(step, job.name, why)


def _all_done(step: Step, job: Job) -> bool:
    """Every role that has an end of its own, and is required, has succeeded."""
    awaited = [
        role.name
        for role in job.spec.roles
        if not role.service and recovery_of(job.spec, role.name).required
    ]
    gangs = [step.state.gangs[key] for key in job.gangs]
    return all(gang.phase == GangPhase.SUCCEEDED for gang in gangs if gang.role in awaited)


def _finish(step: Step, name: str, why: str) -> None:
    state = step.state
    job = state.jobs[name]
    if not job.ending or job.status in FINISHED_JOB:
        return
    if any(state.gangs[key].phase not in ENDED_GANG for key in job.gangs):
        return
    causes = (step.cause, why) if why != step.cause else (step.cause,)
    if job.ending == JobStatus.COMPLETED:
        step.decide(JobCompleted(causes, name))
    elif job.ending == JobStatus.FAILED:
        step.decide(JobFailed(causes, name, job.reason, job.detail))
    else:
        step.decide(JobCancelled(causes, name))
    state.put_job(
        replace(job, status=JobStatus(job.ending), ended=step.entry.index, ended_ms=step.now_ms)
    )
    excess = len(state.finished) - state.meta.settings.finished_jobs_kept
    if excess > 0:
        # A job is remembered for as long as something of it may run: its tasks keep their names.
        still_there = {name: None, **{task.job: None for task in state.tasks.values()}}
        ended = [state.jobs[ended_name] for ended_name in state.finished]
        gone = [job for job in ended if job.name not in still_there]
        for job in sorted(gone, key=lambda job: (job.ended, job.name))[:excess]:
            _forget(step, job.name)


def _forget(step: Step, name: str) -> None:
    state = step.state
    del state.finished[name]
    for key in state.jobs[name].gangs:
        for checkpoint in state.checkpoints_by_gang.pop(key, ()):
            state.checkpoints.drop(checkpoint)
        state.gangs.drop(key)
    state.jobs.drop(name)
    state.weights.drop(name)
    if costed(state):
        return  # Incidents outlive their job: the newest ones are kept, whosever they were.
    for number in sorted(state.incidents):
        if state.incidents[number].job == name:
            state.incidents.drop(number)
