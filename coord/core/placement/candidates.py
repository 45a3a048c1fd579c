"""Which hosts would do for a gang, and how many of its replicas each could take."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from coord.core.placement.fragmentation import Weighing, typical_shapes
from coord.core.placement.room import Kind, Order, Room, order_of
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.care import QuarantineState
from coord.model.entities import Gang, GangPhase
from coord.model.place import LEVELS
from coord.model.spec import RoleSpec

FAR = len(LEVELS)

PROBATION_SINCE = 2
"""The logic version from which on a host on probation gets cheap work alone."""


class Group(NamedTuple):
    """Hosts that are all alike to a gang: how far from where it should be, of which kind, for how
    many replicas."""

    distance: int
    kind: Kind
    fit: int


class Pool:
    """Hosts by group, each group along the topology. `inside`: all of them, and no others that
    would do, are in these domains (number of the level, name)."""

    def __init__(self, inside: tuple[tuple[int, str], ...] = ()) -> None:
        self.inside = inside
        self.groups: dict[Group, list[Order]] = {}

    @property
    def fit(self) -> int:
        return sum(group.fit * len(orders) for group, orders in self.groups.items())

    @property
    def distance(self) -> int:
        return min((group.distance for group in self.groups), default=FAR)

    def has(self, order: Order) -> bool:
        return all(order[level] == name for level, name in self.inside)

    def split(self, level: int) -> tuple[dict[str, Pool], Pool]:
        """(by domain of the level, hosts that are in none)."""
        parts: dict[str, Pool] = {}
        rest = Pool((*self.inside, (level, "")))
        for group, orders in self.groups.items():
            for order in orders:
                name = order[level]
                if name not in parts and name:
                    parts[name] = Pool((*self.inside, (level, name)))
                (parts[name] if name else rest).groups.setdefault(group, []).append(order)
        return parts, rest

    def beside(self, order: Order, level: int) -> Iterator[tuple[Group, Order]]:
        """Hosts of the same domain of a level."""
        prefix = order[: level + 1]
        for group, orders in self.groups.items():
            start = bisect_left(orders, prefix)
            end = bisect_right(orders, prefix, lo=start, key=lambda one: one[: level + 1])
            for at in range(start, end):
                yield group, orders[at]


class Candidates:
    """The hosts that would do for one gang, whatever others of it get."""

    def __init__(self, state: State, rooms: Rooms, gang: Gang, role: RoleSpec) -> None:
        self.rooms = rooms
        self.gang = gang
        self.role = role
        self.need = role.resources
        self.placing = role.placement
        self.weighing: Weighing = rooms.weighing(self.need, typical_shapes(state))
        self.siblings: tuple[Order, ...] = ()
        """Where the role's other tasks are, if each is placed on its own."""
        if gang.index >= 0 and (role.placement.spread or role.placement.within):
            self.siblings = _orders_of(state, gang.job, role.name, gang.key)
        self.anchored = False
        """The role to be near has places."""
        self.anchors: dict[tuple[int, str], None] = {}
        """Its domains: (number of the level, name)."""
        self.waits_for = ""
        """The role that has no place yet, where this one must be near it."""
        self._grounds: dict[int, dict[str, Order]] = {}
        self.near_level = LEVELS.index(self.placing.near_level)
        if self.placing.near:
            self._find_anchors(state)
        self._one_by_one = bool(
            self.placing.near
            or self.placing.per_host
            or self.placing.whole_hosts
            or self.placing.apart_from
            or rooms.guarded
        )
        self.probation_gang = _too_dear_for_probation(state, gang)
        """Of a gang that may not go to hosts on probation: how large one may be there; else 0."""
        self._one_by_one = self._one_by_one or bool(self.probation_gang)

    def _find_anchors(self, state: State) -> None:
        orders = _orders_of(state, self.gang.job, self.placing.near, "")
        self.anchored = bool(orders)
        if not orders and self.placing.near_required:
            self.waits_for = self.placing.near
        for order in orders:
            for level in range(self.near_level + 1):
                if order[level]:
                    self.anchors[level, order[level]] = None

    def is_nowhere(self) -> bool:
        """The role to be near has places, but none in a domain of the level to be near at."""
        return self.anchored and all(level != self.near_level for level, _ in self.anchors)

    def distance(self, order: Order) -> int:
        """From the role to be near: 0 in its domain, one more for each level that is wider."""
        if not self.anchored:
            return 0
        for level in range(self.near_level, -1, -1):
            if (level, order[level]) in self.anchors:
                return self.near_level - level
        return FAR

    def objection(self, room: Room, *, empty: bool = False) -> str:
        """Why the gang must not go there although there may be room; empty when it may. `empty`:
        as if there were nobody whom it could wait for to leave, but those who keep it away."""
        placing = replace(self.placing, whole_hosts=False) if empty else self.placing
        why = room.objection(self.gang, placing)
        if why:
            return why
        if self.probation_gang and room.host.probation:
            return "probation"
        if placing.near_required and (self.waits_for or self.distance(room.order)):
            return "near"
        return ""

    def limit(self, room: Room) -> int:
        """What `per_host` leaves, before this gang takes anything."""
        others = room.count_of(self.gang.job, self.gang.role, self.gang.key)
        return max(self.placing.per_host - others, 0)

    def fit(self, room: Room) -> int:
        """How many replicas the host could take."""
        fit = self.weighing.of(room.kind)[0]
        if not fit or not self._one_by_one:
            return fit
        if self.placing.per_host:
            fit = min(fit, self.limit(room))
        return 0 if fit and self.objection(room) else fit

    def pool(self) -> Pool:
        """Every host that could take one at least."""
        pool = Pool()
        for kind, orders in self.rooms.enough_for(self.need):
            fit = self.weighing.of(kind)[0]
            if not fit:
                continue
            if not self._one_by_one:
                pool.groups[Group(0, kind, fit)] = orders
                continue
            for order in orders:
                fit = self.fit(self.rooms[order[-1]])
                if fit:
                    group = Group(self.distance(order), kind, fit)
                    pool.groups.setdefault(group, []).append(order)
        return pool

    def grounds(self, level: int, inside: tuple[tuple[int, str], ...]) -> dict[str, int]:
        """Domains over which the role is spread, full or not, and how many of its other tasks each
        has: those with a host that takes work, has what the role needs, and keeps it not away."""
        if level not in self._grounds:
            self._grounds[level] = self._look_for_grounds(level)
        found = {
            name: 0
            for name, order in self._grounds[level].items()
            if all(order[at] == wider for at, wider in inside)
        }
        for order in self.siblings:
            if order[level] in found:
                found[order[level]] += 1
        return found

    def _look_for_grounds(self, level: int) -> dict[str, Order]:
        """Each with one of its hosts, which tells what it is inside of."""
        found: dict[str, Order] = {}
        for kind, orders in self.rooms.kinds.items():
            if not self.could(kind):
                continue
            for order in orders:
                name = order[level]
                if name and name not in found:
                    room = self.rooms[order[-1]]
                    if not self._one_by_one or not self.objection(room, empty=True):
                        found[name] = order
        return found

    def could(self, kind: Kind) -> bool:
        """Its devices are of a type that will do, and it is on enough rails."""
        types = self.need.device_types
        return (not types or kind.device_type in types) and kind.rails >= self.need.rails


def _too_dear_for_probation(state: State, gang: Gang) -> int:
    largest = state.meta.settings.policy.quarantine.probation_gang
    if not largest or state.meta.logic_version < PROBATION_SINCE:
        return 0
    if all(row.state != QuarantineState.PROBATION for row in state.quarantines.values()):
        return 0
    job = state.jobs.get(gang.job)
    cheap = gang.desired <= largest and (job is None or job.spec.preemptible)
    return 0 if cheap else largest


def _orders_of(state: State, job: str, role: str, but: str) -> tuple[Order, ...]:
    """Where a role of the job is: its live tasks, else what is kept for it, else where it ended."""
    row = state.jobs.get(job)
    keys = row.gangs if row is not None else ()
    gangs = [state.gangs[key] for key in keys if key != but and key in state.gangs]
    found: list[str] = []
    for gang in gangs:
        if gang.role != role:
            continue
        tasks = [state.tasks[key].host for key in gang.live if key in state.tasks]
        kept = [hold.host for hold in gang.holds if not hold.spare]
        ended = gang.hosts if gang.phase == GangPhase.SUCCEEDED and not but else ()
        found += tasks or kept or ended
    return tuple(order_of(state.hosts[name]) for name in found if name in state.hosts)
