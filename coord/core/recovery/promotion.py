"""Which standby takes which rank of a gang that starts again, so that nobody else moves.

Ranks whose places are kept stay where they are. A rank that has none gets a standby, the nearest
first. So does the rank whose failure ended the generation, where it stood alone on its host: the
place that it leaves is kept as a spare. What no standby can take goes to warm spares, and what is
missing then is placed as any gang is; but where a role binds its ranks to each other, all of it is
placed anew unless standbys and spares make it whole.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from coord.core.fleet import usable
from coord.core.placement import Place, Plan, Rooms, place
from coord.core.state import State
from coord.model.entities import Gang, Hold, Task, TaskStatus
from coord.model.place import LEVELS, domain
from coord.model.spec import Placing, RoleSpec


class Promotion(NamedTuple):
    """Where the generation stands; `taken`: index -> the standby whose place that is."""

    plan: Plan
    taken: dict[int, str]


def promotion(
    state: State, rooms: Rooms, gang: Gang, role: RoleSpec, desired: int, smallest: int
) -> Promotion | None:
    """None when no standby can take a rank, or the gang has no place with them. On None, `rooms`
    are as before; else they lack what is placed beside the kept places."""
    seats = _Seats(state, gang, role.placement, desired)
    seats.fill()
    if not seats.taken:
        return None
    missing = [index for index in range(desired) if index not in seats.places]
    if missing:
        if _binds(role.placement):
            return None
        former = tuple(_former(gang, index) for index in missing)
        rest = replace(gang, desired=len(missing), hosts=former, holds=())
        least = max(smallest - len(seats.places), 1)
        found = place(state, rooms, rest, replace(role, spares=0), least)
        if found is None and len(seats.places) < smallest:
            return None
        for index, spot in zip(missing, found.places if found else (), strict=False):
            seats.places[index] = spot
    order = sorted(seats.places)
    places = tuple(seats.places[index] for index in order)
    taken = {at: seats.taken[index] for at, index in enumerate(order) if index in seats.taken}
    return Promotion(Plan(places, seats.spares()), taken)


def _former(gang: Gang, index: int) -> str:
    return gang.hosts[index] if index < len(gang.hosts) else ""


def _binds(placing: Placing) -> bool:
    """A rank's place depends on where the others are, beyond what is preferred."""
    return bool(placing.within or placing.spread or placing.per_host or placing.near_required)


class _Seats:
    def __init__(self, state: State, gang: Gang, placing: Placing, desired: int) -> None:
        self._state = state
        self._gang = gang
        self._desired = desired
        near = placing.near_level if placing.near_required else ""
        levels = (placing.within, placing.spread, near)
        self._levels = tuple(level for level in levels if level)
        """In whose domains a rank may not change."""
        self.places: dict[int, Place] = {}
        self.taken: dict[int, str] = {}
        well = [hold for hold in gang.holds if self._well(hold.host)]
        self._kept = [hold for hold in well if not hold.spare]
        self._spare = [hold for hold in well if hold.spare]
        waiting = [state.tasks[key] for key in gang.standbys]
        self._standbys = [task for task in waiting if self._well(task.host)]

    def _well(self, name: str) -> bool:
        return usable(self._state.hosts[name])

    def fill(self) -> None:
        replaced = self._replaced()
        for index in range(self._desired):
            if index != replaced:
                self._take_kept(index, _former(self._gang, index))
        for index in range(len(self._gang.hosts), self._desired):
            self._take_kept(index, "")
        for index in range(self._desired):
            if index not in self.places and not self._take_standby(index):
                self._take_kept(index, _former(self._gang, index))
        for index in range(self._desired):
            if index not in self.places:
                self._take_kept(index, "")
        for index in range(self._desired):
            if index not in self.places:
                self._take_spare(index)

    def _replaced(self) -> int:
        """The rank that failed, if its host is its alone and a standby is up; else -1."""
        gang = self._gang
        rank = gang.burst.rank if gang.incident else -1
        up = any(task.status == TaskStatus.RUNNING for task in self._standbys)
        if not up or not 0 <= rank < min(self._desired, len(gang.hosts)):
            return -1
        return rank if gang.hosts.count(gang.hosts[rank]) == 1 else -1

    def _take_kept(self, index: int, host: str) -> None:
        """A place that was kept for a rank: on that host, or on whichever."""
        if index in self.places:
            return
        hold = next((one for one in self._kept if host in ("", one.host)), None)
        if hold is not None and (host or self._may_stand(index, hold.host)):
            self._kept.remove(hold)
            self.places[index] = Place(hold.host, hold.devices)

    def _take_standby(self, index: int) -> bool:
        fit = [task for task in self._standbys if self._may_stand(index, task.host)]
        if not fit:
            return False
        taken = min(fit, key=lambda task: self._weight(index, task))
        self._standbys.remove(taken)
        self.places[index] = Place(taken.host, taken.devices)
        self.taken[index] = taken.key
        return True

    def _weight(self, index: int, task: Task) -> tuple[bool, int, str]:
        """Who is up first, then who is nearest to where the rank was."""
        return (task.status != TaskStatus.RUNNING, -self._shared(index, task.host), task.key)

    def _take_spare(self, index: int) -> None:
        fit = [hold for hold in self._spare if self._may_stand(index, hold.host)]
        if fit:
            taken = min(fit, key=lambda hold: (-self._shared(index, hold.host), hold.host))
            self._spare.remove(taken)
            self.places[index] = Place(taken.host, taken.devices, True)

    def _shared(self, index: int, name: str) -> int:
        """The narrowest level whose domain holds both; -1 for none."""
        return max(
            (at for at, level in enumerate(LEVELS) if self._same(level, index, name)), default=-1
        )

    def _may_stand(self, index: int, name: str) -> bool:
        return all(self._same(level, index, name) for level in self._levels)

    def _same(self, level: str, index: int, name: str) -> bool:
        former = self._state.hosts.get(_former(self._gang, index))
        if former is None:
            return False
        there = self._state.hosts[name]
        mine = domain(former.place, former.host, level)
        return bool(mine) and mine == domain(there.place, name, level)

    def spares(self) -> tuple[Hold, ...]:
        """What is kept beside it from now on: spares not needed, and what standbys' ranks left."""
        left = self._gang.spares - len(self._gang.standbys) + len(self.taken)
        vacated = [replace(hold, spare=True) for hold in self._kept]
        return tuple([*self._spare, *vacated][: max(left, 0)])
