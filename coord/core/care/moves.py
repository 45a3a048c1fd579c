"""Planned moves: a gang leaves a host when it has just saved, or when the host's time is up.

A host with `move_by_ms` takes no new work. Each gang with a task there is stopped upon its next
CheckpointCommitted and starts again elsewhere from that very step; what still runs at the deadline
is stopped with its grace. Neither costs a budget.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.step import Step
from coord.model.care_decisions import MovesDue
from coord.model.entities import FailureCause, Host


def look_at(step: Step, name: str) -> None:
    """The alarm for the host's moves went off."""
    state = step.state
    host = state.hosts[name]
    if not host.move_by_ms:
        return
    if step.now_ms < host.move_by_ms:
        state.timers.arm("moves", name, host.move_by_ms)
        return
    reason = host.move_reason
    causes = (step.cause, host.move_cause) if host.move_cause else (step.cause,)
    decided = step.decide(MovesDue(causes, name))
    state.put_host(without_moves(host))
    gangs.move_away(step, name, FailureCause.DRAIN, reason, -1, decided)


def at_checkpoint(step: Step, key: str, saved_step: int, cause: str) -> None:
    """The gang has just committed a checkpoint: what it loses by moving now is nothing."""
    state = step.state
    gang = state.gangs[key]
    if gang.phase not in gangs.ACTIVE:
        return
    names = dict.fromkeys(state.tasks[task].host for task in gang.live)
    leaving = sorted(name for name in names if state.hosts[name].move_by_ms)
    if not leaving:
        return
    host = state.hosts[leaving[0]]
    why = f": {host.move_reason}" if host.move_reason else ""
    detail = f"{', '.join(leaving)}{why}; moved at the checkpoint of step {saved_step}"
    gangs.fail_gang(step, key, FailureCause.DRAIN, leaving[0], detail, step.now_ms, cause)


def without_moves(host: Host) -> Host:
    """Nothing is to move any more, or all has been told to."""
    return replace(host, move_by_ms=0, move_reason="", move_cause="")
