"""Places kept beside a running gang, so that it can go on at once when it loses one of its own.

They are kept when it is placed, and again whenever there is room: after everybody who waits and has
a place has got it, and never of what is kept for the first that lacks room. (races.md 30, 31.)
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.placement import Rooms, keep_beside
from coord.core.queueing.shares import Shares, free_in, narrowed
from coord.core.recovery import standbys
from coord.core.recovery.elastic import room_for_others
from coord.core.recovery.scope import recovery_in, role_in
from coord.core.state import State
from coord.core.step import Step
from coord.model.decisions import SpareKept
from coord.model.entities import Gang

KEPT_AGAIN_SINCE = 2
"""Logic version from which on they are also for a gang of which its job says nothing."""


def refill(step: Step) -> None:
    """Keep what running gangs lack of their spares, the first submitted first; and launch the
    standbys that they lack on what is kept."""
    state = step.state
    if not state.recovering.sparing:
        return
    _keep(step)
    standbys.launch(step)


def _keep(step: Step) -> None:
    state = step.state
    sparing = [state.gangs[key] for key in state.recovering.sparing]
    lacking = [gang for gang in sparing if _missing(gang) > 0]
    if not lacking:
        return
    rooms = room_for_others(state)
    shares = Shares(state)
    for gang in sorted(lacking, key=lambda gang: (gang.submitted, gang.key)):
        _refill(step, shares, rooms, gang)


def _missing(gang: Gang) -> int:
    return gang.spares - sum(hold.spare for hold in gang.holds) - len(gang.standbys)


def _refill(step: Step, shares: Shares, rooms: Rooms, gang: Gang) -> None:
    state = step.state
    grant = shares.grant(replace(gang, desired=gang.size), gang.size, free_in(rooms))
    role = narrowed(role_in(state, gang), rooms, grant)
    if role is None:
        return
    missing = _missing(gang) - gang.spares + min(gang.spares, role.spares)
    kept = tuple(state.tasks[key].host for key in gang.standbys)
    beside = replace(gang, hosts=(*gang.hosts, *kept)) if kept else gang
    for hold in keep_beside(state, rooms, beside, role, missing):
        causes = (step.cause, gang.cause) if gang.cause != step.cause else (step.cause,)
        step.decide(SpareKept(causes, gang.job, gang.key, gang.generation, hold.host))
        row = state.gangs[gang.key]
        state.put_gang(replace(row, holds=(*row.holds, hold)))


def wanted(state: State, gang: Gang) -> int:
    """How many are to be kept again beside a gang that starts now."""
    said = recovery_in(state, gang).role or state.meta.logic_version >= KEPT_AGAIN_SINCE
    return role_in(state, gang).spares if said else 0
