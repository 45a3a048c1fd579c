"""Tasks, as their agents report them. What follows for the gang is in `gangs.py`.

| status            | upon                     | becomes    |
| ----------------- | ------------------------ | ---------- |
| placed            | TaskStarted              | running    |
| placed            | LaunchFailed             | exited     |
| placed, running   | its gang stops           | stopping   |
| placed, running, stopping | TaskExited       | exited     |
| any               | TaskReaped               | (gone)     |
| stopping, exited, orphaned | TaskUnkillable; silence past its grace | unkillable |
| any               | its host is lost         | lost       |
| lost              | its host returns with it | orphaned   |

What waits beside its gang and is no rank (`Task.standby`) goes the same way, and nothing follows
from it for the gang: `recovery/standbys.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.causes import attribution, pace
from coord.core.incidents import close_incident, made_progress
from coord.core.recovery import standbys
from coord.core.state import LIVE_HOST
from coord.core.step import Step, on
from coord.core.stopping import exit_task, role_of
from coord.model.entities import FailureCause, Gang, HostStatus, Task, TaskStatus
from coord.model.events import (
    CheckpointBegun,
    CollectiveTimedOut,
    LaunchFailed,
    ProgressReported,
    ShardSaved,
    TaskExited,
    TaskReaped,
    TaskStarted,
    TaskUnkillable,
    WeightsLoaded,
    WeightsPublished,
)
from coord.model.rejections import Rejection

TaskReport = (
    TaskStarted
    | LaunchFailed
    | TaskExited
    | ProgressReported
    | CheckpointBegun
    | ShardSaved
    | CollectiveTimedOut
    | WeightsPublished
    | WeightsLoaded
)
"""What only counts for a task of the current generation."""

_ENDED = (TaskStatus.EXITED, TaskStatus.UNKILLABLE, TaskStatus.LOST)


def reported_task(step: Step, host_name: str, incarnation: int, key: str) -> Task | Rejection:
    """The task that a report is about, if this host may speak of it now."""
    host = step.state.hosts.get(host_name)
    if host is None:
        return Rejection.UNKNOWN_HOST
    if incarnation != host.incarnation:
        return Rejection.STALE_INCARNATION
    if host.status not in LIVE_HOST:
        return Rejection.HOST_NOT_LIVE
    task = step.state.tasks.get(key)
    if task is None or task.host != host_name:
        return Rejection.UNKNOWN_TASK
    return task


def current_task(step: Step, event: TaskReport) -> tuple[Task, Gang] | Rejection:
    """The same with its gang, where the task is of the current generation and not given up."""
    task = reported_task(step, event.host, event.incarnation, event.task)
    if isinstance(task, Rejection):
        return task
    gang = step.state.gangs.get(task.gang)
    if gang is None or not gangs.counts(gang, task):
        return Rejection.STALE_GENERATION
    return task, gang


def standby_of(step: Step, event: TaskReport) -> Task | None:
    """The task that a report is about, if that waits beside its gang."""
    task = reported_task(step, event.host, event.incarnation, event.task)
    return task if isinstance(task, Task) and task.standby else None


@on(TaskStarted)
def _started(step: Step, event: TaskStarted) -> Rejection | None:
    if (standby := standby_of(step, event)) is not None:
        return standbys.started(step, standby, event)
    found = current_task(step, event)
    if isinstance(found, Rejection):
        return found
    task, _ = found
    if task.status == TaskStatus.STOPPING:
        return Rejection.TASK_STOPPING
    if task.status != TaskStatus.PLACED:
        return Rejection.NOTHING_TO_DO
    gangs.task_started(step, task, event.pid)
    return None


@on(LaunchFailed)
def _launch_failed(step: Step, event: LaunchFailed) -> Rejection | None:
    if (standby := standby_of(step, event)) is not None:
        return standbys.launch_failed(step, standby, event)
    found = current_task(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    if task.status not in (TaskStatus.PLACED, TaskStatus.STOPPING):
        return Rejection.NOTHING_TO_DO
    exit_task(step, task, TaskStatus.EXITED)
    if task.status == TaskStatus.PLACED:
        cause = FailureCause.USER if event.user_error else FailureCause.INFRASTRUCTURE
        detail = f"launch failed: {event.error}"
        gangs.fail_gang(step, gang.key, cause, task.key, detail, step.now_ms, step.cause)
    return None


@on(TaskExited)
def _exited(step: Step, event: TaskExited) -> Rejection | None:
    if (standby := standby_of(step, event)) is not None:
        return standbys.exited(step, standby, event)
    found = current_task(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    if task.status in _ENDED:
        return Rejection.NOTHING_TO_DO
    succeeded = event.observed and not event.exit_code and not event.signal
    exited = replace(task, exit_code=event.exit_code, exit_signal=event.signal, succeeded=succeeded)
    exit_task(step, exited, TaskStatus.EXITED)
    if task.status == TaskStatus.STOPPING and (succeeded or event.expected):
        attribution.note_ended(step, step.state.gangs[gang.key], task, event)
        return None
    if succeeded:
        gang = step.state.gangs[gang.key]
        step.state.put_gang(replace(gang, succeeded=gang.succeeded + 1))
        # If its host is silent, the others were not judged because of it.
        step.state.timers.arm("gang", gang.key, step.now_ms)
        return None
    preempted = bool(step.state.hosts[event.host].drain_deadline_ms)
    found_out = attribution.read_exit(step, task, event, preempted)
    gangs.weigh_against(step, gang.key, found_out, step.now_ms, step.cause)
    return None


@on(TaskReaped)
def _reaped(step: Step, event: TaskReaped) -> Rejection | None:
    """Of any generation: its devices are free now."""
    task = reported_task(step, event.host, event.incarnation, event.task)
    if isinstance(task, Rejection):
        return task
    gangs.task_gone(step, task)
    return None


@on(TaskUnkillable)
def _unkillable(step: Step, event: TaskUnkillable) -> Rejection | None:
    task = reported_task(step, event.host, event.incarnation, event.task)
    if isinstance(task, Rejection):
        return task
    if task.status == TaskStatus.UNKILLABLE:
        return Rejection.NOTHING_TO_DO
    gangs.task_abandoned(step, task)
    return None


@on(ProgressReported)
def _progress(step: Step, event: ProgressReported) -> Rejection | None:
    if event.step < 0 or event.busy_us < 0:
        return Rejection.INVALID
    found = current_task(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    if gang.phase not in gangs.ACTIVE:
        return Rejection.TASK_STOPPING
    if task.status != TaskStatus.RUNNING or event.step <= task.step:
        return Rejection.NOTHING_TO_DO
    state = step.state
    task = pace.paced(step, task, event.step - task.step, event.busy_us)
    state.tasks.put(task.key, replace(task, step=event.step, progress_ms=step.now_ms))
    first = not gang.progress_ms
    before = gang.step
    furthest = max(before, event.step)
    # Never 0, which stands for "none yet".
    gang = replace(gang, step=furthest, progress_ms=max(step.now_ms, 1))
    if gang.incident:
        gang = close_incident(step, gang, resolved=True)
    if first:
        gang = made_progress(step, gang)
    if furthest > before:
        gang = pace.look_for_slow_ranks(step, pace.advanced(step, gang, before))
    state.put_gang(gang)
    if first or step.state.jobs[gang.job].spec.hang_floor_ms:
        # What is learned may shorten the wait.
        hang_ms = pace.hang_limit_ms(step, gang, role_of(step, gang))
        if hang_ms:
            state.timers.arm("gang", gang.key, step.now_ms + hang_ms)
    return None


def look_at(step: Step, key: str) -> None:
    """The task's alarm went off: launched in time? stopped in time?"""
    state = step.state
    task = state.tasks.get(key)
    if task is None:
        return
    settings = state.meta.settings
    if task.status == TaskStatus.PLACED:
        due_ms = task.placed_ms + settings.launch_timeout_ms
    elif task.status in (TaskStatus.STOPPING, TaskStatus.EXITED, TaskStatus.ORPHANED):
        due_ms = task.stop_deadline_ms + settings.unkillable_ms
    else:
        return
    status = state.hosts[task.host].status
    if step.now_ms < due_ms:
        state.timers.arm("task", key, due_ms)
    elif status != HostStatus.UP:
        # Its host's silence is judged first; once it is heard again, the task is looked at again.
        return
    elif task.status == TaskStatus.PLACED and task.standby:
        standbys.late(step, task)
    elif task.status == TaskStatus.PLACED:
        detail = f"not started within {settings.launch_timeout_ms} ms"
        cause = FailureCause.INFRASTRUCTURE
        gangs.fail_gang(step, task.gang, cause, key, detail, task.placed_ms, step.cause)
    else:
        gangs.task_abandoned(step, task)
