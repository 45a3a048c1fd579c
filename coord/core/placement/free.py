"""What is free now, counted from the state."""

from __future__ import annotations

from coord.core.fleet import usable
from coord.core.placement.room import Room
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.entities import Host


def rooms_of(state: State) -> Rooms:
    """What is free on every usable host, holds counted as taken. The caller's own."""
    rooms = _rooms_beside_tasks(state).copy()
    for gang in state.gangs.values():
        if gang.holds:
            rooms.take_holds(gang)
    return rooms


def _rooms_beside_tasks(state: State) -> Rooms:
    """Counted anew for hosts whose rows changed: whatever a task takes or leaves, changes one."""
    known: Rooms | None = state.rooms
    if known is None:
        known = Rooms(jobs=state.jobs)
        usables = [host for host in state.hosts.values() if usable(host)]
        rooms = [room_beside_tasks(state, known, host) for host in usables]
        known = Rooms(rooms, jobs=state.jobs)
    else:
        known.jobs = state.jobs
        for name in state.moved:
            host = state.hosts[name]
            if usable(host):
                known.put(room_beside_tasks(state, known, host))
            else:
                known.leave(name)
    state.rooms, state.moved = known, {}
    return known


def room_beside_tasks(state: State, rooms: Rooms, host: Host) -> Room:
    """What tasks leave free on a host, whether it takes work or not."""
    room = Room(host)
    tasks = [state.tasks[key] for key in host.tasks]
    for task in tasks:
        room = room.take(task, task.gang, rooms.placing_of(task.job, task.role))
    return room
