"""Gangs that wait to start: until when, and how many of their tasks it takes.

A gang that may be smaller than it wants waits for room for all of it for as long as its role says,
then starts with what fits. Of a gang that has run before, all of it is as many as it had: it has
shrunk already, and grows while it runs (`elastic.py`).
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.placement.plan import Refusal
from coord.core.recovery.scope import recovery_in, role_in
from coord.core.state import State
from coord.core.step import Step
from coord.model.entities import Gang, QueueReason


def smallest_of(state: State, gang: Gang) -> int:
    """Tasks without which it does not start now, however long it has waited."""
    least = role_in(state, gang).smallest if gang.index < 0 else 1
    return min(least, gang.desired)


def smallest_now(state: State, gang: Gang, now_ms: int) -> int:
    """Tasks without which it does not start as yet."""
    if now_ms >= shrinks_at_ms(state, gang):
        return smallest_of(state, gang)
    return max(smallest_of(state, gang), _whole(gang))


def shrinks_at_ms(state: State, gang: Gang) -> int:
    """Log time from which on it starts with fewer than all; 0: at once."""
    wait_ms = recovery_in(state, gang).shrink_after_ms if gang.index < 0 else 0
    if not wait_ms or smallest_of(state, gang) >= _whole(gang):
        return 0
    since_ms = gang.not_before_ms if gang.generation else state.jobs[gang.job].submitted_ms
    return since_ms + wait_ms


def reason_of(step: Step, gang: Gang, why: Refusal) -> Refusal:
    """What it waits for, if it could start with fewer before long; it is looked at again then."""
    at_ms = shrinks_at_ms(step.state, gang)
    if step.now_ms >= at_ms or why.reason == QueueReason.PREEMPTING:
        return why
    step.state.timers.arm("gang", gang.key, at_ms)
    least = smallest_of(step.state, gang)
    detail = f"{why.reason}, {why.detail}; with {least} or more from {at_ms} ms of log time on"
    return Refusal(QueueReason.FULL_SIZE, detail)


def _whole(gang: Gang) -> int:
    return min(gang.size, gang.desired) if gang.generation else gang.desired


def look_at(step: Step, gang: Gang) -> None:
    """Its alarm went off: back-off over, holds expired, or has it waited long enough for all?"""
    state = step.state
    if (gang.holds or gang.claim) and step.now_ms >= gang.holds_until_ms:
        gang = replace(gang, holds=(), claim=0)
        state.put_gang(gang)
        step.scheduling = True
    if gang.not_before_ms > step.now_ms:
        state.timers.arm("gang", gang.key, gang.not_before_ms)
    elif gang.queue_reason == QueueReason.BACKOFF:
        step.scheduling = True
    if gang.holds or gang.claim:
        state.timers.arm("gang", gang.key, gang.holds_until_ms)
    if gang.queue_reason == QueueReason.FULL_SIZE:
        at_ms = shrinks_at_ms(state, gang)
        if step.now_ms < at_ms:
            state.timers.arm("gang", gang.key, at_ms)
        else:
            step.scheduling = True
