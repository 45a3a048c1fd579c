"""How one task is told to end, and by when."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet
from coord.core.recovery.scope import role_in
from coord.core.step import Step
from coord.model.entities import Gang, Task, TaskStatus
from coord.model.spec import RoleSpec


def role_of(step: Step, gang: Gang) -> RoleSpec:
    return role_in(step.state, gang)


def stop_task(step: Step, task: Task, status: TaskStatus, grace_ms: int) -> None:
    """It is to have ended within the grace; an earlier deadline stays."""
    deadline_ms = step.now_ms + grace_ms
    if task.stop_deadline_ms and status != TaskStatus.ORPHANED:
        deadline_ms = min(deadline_ms, task.stop_deadline_ms)
    fleet.change(
        step,
        replace(
            task,
            status=status,
            stop_deadline_ms=deadline_ms,
            stop_grace_ms=max(deadline_ms - step.now_ms, 0),
        ),
    )
    unkillable_ms = step.state.meta.settings.unkillable_ms
    step.state.timers.arm("task", task.key, deadline_ms + unkillable_ms)


def exit_task(step: Step, task: Task, status: TaskStatus) -> None:
    """Store the exit; leftovers of the process tree are to be ended within the role's grace."""
    stop_task(step, task, status, role_of(step, step.state.gangs[task.gang]).grace_ms)


def orphan_task(step: Step, task: Task) -> None:
    """A process of a task given up long ago was found: it is to end."""
    gang = step.state.gangs.get(task.gang)
    grace_ms = role_of(step, gang).grace_ms if gang else 0
    stop_task(step, task, TaskStatus.ORPHANED, grace_ms)
