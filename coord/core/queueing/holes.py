"""A started gang keeps its holes: a host that comes back is kept for whoever was interrupted there.

Without this, a job that waits could take the place of a rank whose gang is only on its way to its
restart (design.md, Recovery, 5).
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.fleet import usable
from coord.core.placement import Rooms, rooms_of
from coord.core.step import Step
from coord.core.stopping import role_of
from coord.model.entities import Gang, GangPhase, Hold


def keep_places_again(step: Step, name: str) -> None:
    """Hold on that host what gangs between two generations had there, first submitted first."""
    state = step.state
    if not usable(state.hosts[name]):
        return
    gangs = [gang for gang in state.gangs.values() if name in gang.hosts]
    interrupted = [gang for gang in gangs if _between_generations(step, gang)]
    if not interrupted:
        return
    rooms = rooms_of(state)
    for gang in sorted(interrupted, key=lambda gang: (gang.submitted, gang.key)):
        held = _hold_missing(step, gang, rooms, name)
        if held:
            state.put_gang(replace(gang, holds=(*gang.holds, *held)))
            if gang.phase == GangPhase.WAITING:
                state.timers.arm("gang", gang.key, gang.holds_until_ms)


def _between_generations(step: Step, gang: Gang) -> bool:
    """It is to start again, and has not waited for too long."""
    if gang.phase == GangPhase.STOPPING:
        return not gang.stop_final and not gang.yields_to
    return gang.phase == GangPhase.WAITING and step.now_ms < gang.holds_until_ms


def _hold_missing(step: Step, gang: Gang, rooms: Rooms, name: str) -> list[Hold]:
    role = role_of(step, gang)
    had = sum(1 for one in gang.hosts[: gang.desired] if one == name)
    has = sum(1 for hold in gang.holds if hold.host == name and not hold.spare)
    has += sum(1 for key in gang.live if step.state.tasks[key].host == name)
    if rooms[name].objection(gang, role.placement):
        return []
    held: list[Hold] = []
    while has + len(held) < had and rooms[name].fits(role.resources):
        held.append(rooms[name].hold(role.resources, spare=False))
        rooms.put(rooms[name].take(held[-1], gang.key, role.placement))
    return held
