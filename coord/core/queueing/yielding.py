"""What becomes of the places of a gang that gives way to another one."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet
from coord.core.step import Step
from coord.model.entities import Gang, GangPhase, Task


def gave_way(step: Step, gang: Gang) -> Gang:
    """All of its places are free, or kept for the one that gets them."""
    if not gang.yields_to:
        return gang
    state = step.state
    by = state.gangs.get(gang.yields_to)
    if by is not None and gang.key in by.victims:
        left = tuple(key for key in by.victims if key != gang.key)
        state.put_gang(replace(by, victims=left))
    step.scheduling = True
    return replace(gang, yields_to="")


def hand_over(step: Step, gang: Gang, task: Task) -> None:
    """The place of a task of a gang that gives way: kept for the one that gets it."""
    by = step.state.gangs.get(gang.yields_to)
    if by is not None and by.phase == GangPhase.WAITING and gang.key in by.victims:
        step.state.put_gang(fleet.hold_place(step, by, task))
    step.scheduling = True
