"""Roles of one job that start after others of it (`placement.after`)."""

from __future__ import annotations

from coord.core.recovery.scope import role_in
from coord.core.state import State
from coord.core.step import Step
from coord.model.entities import ENDED_GANG, Gang, GangPhase

_THERE = (GangPhase.RUNNING, *ENDED_GANG)


def starts_after(state: State, gang: Gang) -> tuple[str, ...]:
    """Roles that it waits for: those that have a gang which has neither started nor ended."""
    after = role_in(state, gang).placement.after
    if not after:
        return ()
    rows = [state.gangs[key] for key in state.jobs[gang.job].gangs]
    missing = {row.role: None for row in rows if row.phase not in _THERE}
    return tuple(name for name in after if name in missing)


def started(step: Step, gang: Gang) -> None:
    """All its tasks run: roles that wait for that are looked at."""
    roles = step.state.jobs[gang.job].spec.roles
    if any(gang.role in role.placement.after for role in roles):
        step.scheduling = True
