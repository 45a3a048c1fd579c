"""A gang between two generations: what it waits for, and from when on it may start."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import failures
from coord.core.queueing.yielding import gave_way
from coord.core.recovery.scope import recovery_in
from coord.core.step import Step
from coord.model.decisions import JobQueued, RestartScheduled
from coord.model.entities import FailureCause, Gang, GangPhase, QueueReason


def await_fence(step: Step, gang: Gang, why: str) -> None:
    """Say, once, what keeps an exclusive gang from its restart."""
    if gang.phase != GangPhase.STOPPING or gang.stop_final or gang.queue_reason:
        return
    reason, detail = QueueReason.FENCING, f"may still run: {', '.join(gang.awaits_fence)}"
    causes = (why, gang.cause)
    step.decide(JobQueued(causes, gang.job, gang.key, reason, detail))
    step.state.put_gang(replace(gang, queue_reason=reason, queue_detail=detail))


def schedule_restart(step: Step, gang: Gang, why: str) -> None:
    """The last task of the generation has gone: the gang waits for its next one."""
    yielded = bool(gang.yields_to)
    gang = gave_way(step, gang)
    not_before_ms = step.now_ms + gang.backoff_ms
    limit = 0
    pays = gang.incident or not gang.together
    if pays and recovery_in(step.state, gang).required:
        policy = step.state.jobs[gang.job].spec.restart
        limit = failures.limit_of(policy, gang.stop_cause)
    decided = step.decide(
        RestartScheduled(
            (gang.cause, why),
            gang.job,
            gang.key,
            gang.generation,
            gang.stop_cause,
            failures.restarts_of(gang, gang.stop_cause),
            limit,
            not_before_ms,
        )
    )
    # Whoever gave way keeps nothing.
    holds_until_ms = 0 if yielded else step.now_ms + step.state.meta.settings.hold_ms
    step.state.put_gang(
        replace(
            gang,
            phase=GangPhase.WAITING,
            stop_cause=FailureCause.NONE,
            queue_reason=QueueReason.NONE,
            queue_detail="",
            restarts=gang.restarts + 1,
            not_before_ms=not_before_ms,
            holds_until_ms=holds_until_ms,
            cause=decided,
        )
    )
    step.state.timers.arm("gang", gang.key, min(not_before_ms, holds_until_ms or not_before_ms))
    step.scheduling = True
