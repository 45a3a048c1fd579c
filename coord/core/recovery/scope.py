"""What restarts together with a gang, and that none of it starts before all of it has stopped.

The incident is that of the gang in which the failure was; it alone pays for it. The others are
stopped with it, keep their places, and start again in them, where their hosts are well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coord.core.state import State
from coord.model.entities import Gang, GangPhase
from coord.model.recovery import SCOPES, RoleRecovery, recovery_of
from coord.model.spec import RoleSpec


def role_in(state: State, gang: Gang) -> RoleSpec:
    role = state.jobs[gang.job].spec.role(gang.role)
    assert role is not None, f"gang {gang.key} of a role its job does not have"
    return role


def recovery_in(state: State, gang: Gang) -> RoleRecovery:
    return recovery_of(state.jobs[gang.job].spec, gang.role)


def companions(state: State, gang: Gang) -> tuple[str, ...]:
    """Gangs of its job that a failure of this one takes along, if they go on."""
    scope = recovery_in(state, gang).scope
    if scope == "own":
        return ()
    return tuple(
        key
        for key in state.jobs[gang.job].gangs
        if key != gang.key and (scope == "job" or state.gangs[key].role == gang.role)
    )


def widest_first(state: State, keys: Iterable[str]) -> list[str]:
    """Gangs that one cause has struck, in the order in which they are to fail: who takes others
    along comes first, so that these are no incidents of their own."""

    def order(key: str) -> tuple[int, str]:
        gang = state.gangs.get(key)
        return (-SCOPES.index(recovery_in(state, gang).scope) if gang else 0, key)

    return sorted(keys, key=order)


def goes_on(gang: Gang) -> bool:
    """It runs, and has more to do than to be reaped."""
    active = gang.phase in (GangPhase.STARTING, GangPhase.RUNNING)
    return active and gang.succeeded < gang.size


def waiting_for(state: State, leaving: Sequence[Gang]) -> list[Gang]:
    """Gangs that stopped together with one of these, and wait for it."""
    numbers = dict.fromkeys(gang.together for gang in leaving if gang.together)
    if not numbers:
        return []
    gangs = [state.gangs[key] for key in state.jobs[leaving[0].job].gangs]
    known = dict.fromkeys(gang.key for gang in leaving)
    return [gang for gang in gangs if gang.together in numbers and gang.key not in known]


def awaits_others(state: State, gang: Gang) -> bool:
    """Some of those that stopped with it have not gone yet."""
    return bool(gang.together) and gang.together in state.recovering.leaving
