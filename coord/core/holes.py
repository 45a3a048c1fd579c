"""A started gang keeps its holes: a host that comes back is kept for whoever was interrupted there.

Without this, a job that waits could take the place of a rank whose gang is only on its way to its
restart (design.md, Recovery, 5).
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.fleet import usable
from coord.core.gangs import role_of
from coord.core.placement import Room, rooms_of
from coord.core.step import Step
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
    room = rooms_of(state)[name]
    for gang in sorted(interrupted, key=lambda gang: (gang.submitted, gang.key)):
        held = _hold_missing(step, gang, room)
        if held:
            state.put_gang(replace(gang, holds=(*gang.holds, *held)))
            if gang.phase == GangPhase.WAITING:
                state.timers.arm("gang", gang.key, gang.holds_until_ms)


def _between_generations(step: Step, gang: Gang) -> bool:
    """It is to start again, and has not waited for too long."""
    if gang.phase == GangPhase.STOPPING:
        return not gang.stop_final
    return gang.phase == GangPhase.WAITING and step.now_ms < gang.holds_until_ms


def _hold_missing(step: Step, gang: Gang, room: Room) -> list[Hold]:
    need = role_of(step, gang).resources
    had = sum(1 for name in gang.hosts[: gang.desired] if name == room.host)
    has = sum(1 for hold in gang.holds if hold.host == room.host and not hold.spare)
    has += sum(1 for key in gang.live if step.state.tasks[key].host == room.host)
    held: list[Hold] = []
    while has + len(held) < had and room.fits(need):
        devices = room.take_one(need)
        held.append(
            Hold(
                room.host,
                False,
                devices,
                need.cpu_millis,
                need.memory_mib,
                need.device_millis,
            )
        )
    return held
