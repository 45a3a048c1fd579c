"""Gangs that started smaller than they want, and grow into room that is there since.

That costs a restart, so it is done when a checkpoint has just been committed and nothing is lost by
it, and only for room that the gang then surely gets: what is kept for the first that waits, or is
beyond its queue's quota, is not. The room is kept for it while it stops.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.fleet import usable
from coord.core.placement import Plan, Rooms, place, rooms_of
from coord.core.queueing.backfill import keep_from_others
from coord.core.queueing.shares import Shares, free_in, narrowed
from coord.core.queueing.waiting import smallest_of
from coord.core.recovery.scope import recovery_in, role_in
from coord.core.state import State
from coord.core.step import Step
from coord.model.decisions import GangGrowing
from coord.model.entities import FailureCause, Gang, GangPhase, Hold

GROWING_SINCE = 2
"""Logic version from which on gangs grow of which the job says nothing."""


def at_checkpoint(step: Step, key: str, saved_step: int, cause: str) -> None:
    """The gang has just committed a checkpoint: does it move into more room?"""
    state = step.state
    gang = state.gangs[key]
    if gang.phase != GangPhase.RUNNING or gang.index >= 0 or gang.succeeded:
        return
    every_ms = _grows_every_ms(state, gang)
    if gang.size >= gang.desired or not every_ms or step.now_ms < gang.grows_from_ms:
        return
    free = room_for_others(state)
    plan = _larger(state, free.copy(), gang)
    if plan is None:
        return
    after = len(plan.places)
    decided = step.decide(
        GangGrowing((cause,), gang.job, key, gang.generation, gang.size, after, saved_step)
    )
    kept = (*gang.holds, *_more(state, free, gang, plan))
    state.put_gang(replace(gang, holds=kept, grows_from_ms=step.now_ms + every_ms))
    detail = f"{gang.size} to {after} replicas, at the checkpoint of step {saved_step}"
    gangs.fail_gang(step, key, FailureCause.RESIZE, key, detail, step.now_ms, decided)


def room_for_others(state: State) -> Rooms:
    """What is free, without what is kept for the first that waits for room."""
    rooms = rooms_of(state)
    for key in state.waiting:
        first = state.gangs[key]
        if first.reserving:
            role = role_in(state, first)
            left = keep_from_others(state, rooms, first, role, smallest_of(state, first))
            return rooms if left is None else left
    return rooms


def _grows_every_ms(state: State, gang: Gang) -> int:
    recovery = recovery_in(state, gang)
    said = recovery.role or state.meta.logic_version >= GROWING_SINCE
    return recovery.grow_every_ms if said else 0


def _larger(state: State, rooms: Rooms, gang: Gang) -> Plan | None:
    """Where it would stand if it started now, if that is with more than it has."""
    if not all(usable(state.hosts[name]) for name in gang.hosts):
        return None  # Where it stands is in doubt: it may have to move for another reason.
    shares = Shares(state)
    grant = shares.grant(gang, gang.size + 1, free_in(rooms))
    role = narrowed(role_in(state, gang), rooms, grant)
    if grant.replicas <= gang.size or role is None:
        return None
    for key in gang.live:
        rooms.free_task(state.tasks[key])
    wanted = replace(gang, desired=grant.replicas)
    return place(state, rooms, wanted, role, gang.size + 1)


def _more(state: State, free: Rooms, gang: Gang, plan: Plan) -> tuple[Hold, ...]:
    """Places of the plan that it does not have, to be kept for it."""
    role = role_in(state, gang)
    have = [*gang.hosts, *(hold.host for hold in gang.holds)]
    found: list[Hold] = []
    for spot in plan.places:
        if spot.host in have:
            have.remove(spot.host)
        elif spot.host in free and free[spot.host].fits(role.resources):
            found.append(free[spot.host].hold(role.resources, spare=False))
            free.put(free[spot.host].take(found[-1], gang.key, role.placement))
    return tuple(found)
