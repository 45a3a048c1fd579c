"""A person takes a job back to an older checkpoint, because what came after it is no good.

Newer ones are set aside: no restart begins at them unless somebody asks for one of them by its
step. Their files stay where they are. So is whatever the generation still saves that was taken
back. A gang that waits, or stops anyway, begins at the chosen one next; one that runs is restarted,
in place and at nobody's expense. One that has just been put there, and has done nothing since, is
left alone: who asks for the same step twice gets one restart.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.recovery.scope import widest_first
from coord.core.state import State
from coord.core.step import Step, on
from coord.model.entities import (
    ENDED_GANG,
    FINISHED_JOB,
    Checkpoint,
    FailureCause,
    Gang,
    GangPhase,
    Job,
)
from coord.model.events import RollbackRequested
from coord.model.rejections import Rejection
from coord.model.rollback_decisions import GangRolledBack


@on(RollbackRequested)
def _rollback_requested(step: Step, event: RollbackRequested) -> Rejection | None:
    if min(event.back, event.step + 1) < 0 or (event.step >= 0) == (event.back > 0):
        return Rejection.INVALID
    state = step.state
    job = state.jobs.get(event.job)
    if job is None:
        return Rejection.UNKNOWN_JOB
    if job.status in FINISHED_JOB or job.ending:
        return Rejection.JOB_FINISHED
    if event.role and job.spec.role(event.role) is None:
        return Rejection.UNKNOWN_ROLE
    chosen: dict[str, str] = {}
    """Gang -> key of the checkpoint that it is to begin at."""
    for key in _with_checkpoints(state, job, event.role):
        found = _chosen(state, key, event)
        if not found:
            return Rejection.UNKNOWN_CHECKPOINT
        chosen[key] = found
    if not chosen:
        return Rejection.UNKNOWN_CHECKPOINT
    elsewhere = {key: to for key, to in chosen.items() if not _is_there(state, key, to)}
    if not elsewhere:
        return Rejection.NOTHING_TO_DO
    _roll_back(step, elsewhere, event.reason)
    return None


def _with_checkpoints(state: State, job: Job, role: str) -> list[str]:
    """Gangs that will start again and have something to start from."""
    found = []
    for key in job.gangs:
        gang = state.gangs[key]
        over = gang.phase in ENDED_GANG or gang.stop_final
        if not over and gang.role == (role or gang.role) and _committed(state, key):
            found.append(key)
    return found


def _committed(state: State, gang: str) -> list[tuple[int, str]]:
    """(step, key) of all committed ones, those set aside among them, ascending."""
    keys = state.checkpoints_by_gang.get(gang, ())
    return sorted(
        (state.checkpoints[key].step, key) for key in keys if state.checkpoints[key].committed
    )


def _chosen(state: State, gang: str, event: RollbackRequested) -> str:
    """Empty where there is none. Of several of one step the one that is offered, else the last
    that was committed."""
    saves = _committed(state, gang)
    if event.back:
        offered = [key for _, key in saves if not state.checkpoints[key].set_aside]
        return offered[-1 - event.back] if event.back < len(offered) else ""
    fits = [key for saved_step, key in saves if saved_step == event.step]
    return max(fits, key=lambda key: _preference(state.checkpoints[key]), default="")


def _preference(saved: Checkpoint) -> tuple[bool, int]:
    return not saved.set_aside, saved.committed_at


def _is_there(state: State, key: str, to: str) -> bool:
    """It is about to begin at that checkpoint, or has and did nothing since."""
    gang, saved = state.gangs[key], state.checkpoints[to]
    if state.newest_checkpoint(key) != saved:
        return False
    if gang.phase in gangs.ACTIVE:
        begun = (gang.restore, gang.restore_step) == (saved.path, saved.step)
        return begun and gang.step <= saved.step
    # What stops for another reason may save once more.
    return gang.phase == GangPhase.WAITING or gang.rolled_back == gang.generation


def _roll_back(step: Step, chosen: dict[str, str], reason: str) -> None:
    """All rows first, then each gang that runs."""
    state = step.state
    decided = {key: _set_aside(step, state.gangs[key], to) for key, to in chosen.items()}
    for key in widest_first(state, decided):
        gang = state.gangs[key]
        if gang.phase in gangs.ACTIVE:
            detail = f"back to step {state.checkpoints[chosen[key]].step}"
            if reason:
                detail += f": {reason}"
            cause = FailureCause.ROLLBACK
            gangs.fail_gang(step, key, cause, key, detail, step.now_ms, decided[key])
    for key, to in chosen.items():
        # To get as far as before is progress again.
        best_step = state.checkpoints[to].step
        state.put_gang(replace(state.gangs[key], best_step=best_step, barren=0))


def _set_aside(step: Step, gang: Gang, to: str) -> str:
    """Everything newer than that checkpoint; returns the decision."""
    state, saved = step.state, step.state.checkpoints[to]
    aside = []
    for saved_step, key in _committed(state, gang.key):
        other = state.checkpoints[key]
        if key == to:
            state.put_checkpoint(key, replace(other, set_aside=0))
        elif saved_step >= saved.step and not other.set_aside:
            state.put_checkpoint(key, replace(other, set_aside=step.entry.index))
            aside.append(saved_step)
    state.put_gang(replace(gang, rolled_back=gang.generation))
    return step.decide(
        GangRolledBack(
            (step.cause,),
            gang.job,
            gang.key,
            gang.generation,
            saved.step,
            saved.path,
            tuple(aside),
        )
    )
