"""Spare places for a gang that runs already."""

from __future__ import annotations

from coord.core.placement.candidates import Candidates, Pool
from coord.core.placement.choosing import Choice
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.entities import Gang, Hold
from coord.model.place import LEVELS
from coord.model.spec import RoleSpec


def keep_beside(
    state: State, rooms: Rooms, gang: Gang, role: RoleSpec, count: int
) -> tuple[Hold, ...]:
    """Take up to `count` places on hosts that it does not stand on yet, near those that it does;
    if it must stand within one domain, in that one."""
    if count <= 0:
        return ()
    candidates = Candidates(state, rooms, gang, role)
    pool = candidates.pool()
    hosts = dict.fromkeys((*gang.hosts, *(hold.host for hold in gang.holds)))
    if role.placement.within:
        pool = _within(candidates, pool, hosts)
    choice = Choice(candidates, 0)
    held = choice.keep_spares(pool, count, hosts)
    for room in choice.changed.values():
        rooms.put(room)
    return held


def _within(candidates: Candidates, pool: Pool, hosts: dict[str, None]) -> Pool:
    level = LEVELS.index(candidates.placing.within)
    domains, _ = pool.split(level)
    for name in hosts:
        room = candidates.rooms.get(name)
        if room is not None:
            return domains.get(room.order[level]) or Pool()
    return Pool()
