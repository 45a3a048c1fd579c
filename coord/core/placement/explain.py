"""Why a job waits, or where it went: what was asked of the hosts, and what excluded each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from coord.core.fleet import usable
from coord.core.placement.candidates import Candidates, Pool
from coord.core.placement.free import rooms_of
from coord.core.placement.never import never_fits
from coord.core.placement.placing import Layout, most, place
from coord.core.placement.room import Kind, Room
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.entities import ENDED_GANG, Gang, GangPhase, Host, HostStatus, Job
from coord.model.place import LEVELS
from coord.model.spec import Resources, RoleSpec
from coord.model.why import GangWhy, JobWhy, Sieve, Standing

One = TypeVar("One")

EXAMPLES = 3
STANDINGS = 4
DOMAINS = 8
EXPLAINED = 16
"""Gangs of one job that are looked at closely, waiting ones first."""


def explain_job(state: State, job: Job) -> JobWhy:
    gangs = [state.gangs[key] for key in job.gangs if key in state.gangs]
    waiting = [gang.key for gang in gangs if gang.phase == GangPhase.WAITING]
    close = dict.fromkeys([*waiting, *(gang.key for gang in gangs)][:EXPLAINED])
    never = never_fits(state, job.spec) if waiting else []
    return JobWhy(
        job.name,
        job.status,
        tuple(explain(state, gang) if gang.key in close else _briefly(gang) for gang in gangs),
        tuple(f"{problem.path} {problem.message}" for problem in never),
    )


def _briefly(gang: Gang) -> GangWhy:
    hosts: dict[str, int] = {}
    for name in gang.hosts:
        hosts[name] = hosts.get(name, 0) + 1
    reason, detail = str(gang.queue_reason), gang.queue_detail
    if gang.awaits_fence and gang.phase != GangPhase.WAITING:
        reason, detail = reason or "fencing", detail or ", ".join(gang.awaits_fence)
    return GangWhy(gang.key, gang.phase, reason, detail, hosts=hosts)


def explain(state: State, gang: Gang) -> GangWhy:
    """The state is read only. What the gang itself has counts as free for it."""
    role = state.jobs[gang.job].spec.role(gang.role)
    if gang.phase in ENDED_GANG or role is None:
        return _briefly(gang)
    rooms = rooms_of(state)
    rooms.free_holds(gang)
    for key in gang.processes:
        rooms.free_task(state.tasks[key])
    return _Sifting(state, rooms, gang, role).told()


class _Sifting:
    def __init__(self, state: State, rooms: Rooms, gang: Gang, role: RoleSpec) -> None:
        self.state = state
        self.rooms = rooms
        self.gang = gang
        self.role = role
        self.smallest = min(role.smallest if gang.index < 0 else 1, gang.desired)
        self.candidates = Candidates(state, rooms, gang, role)
        self.pool = self.candidates.pool()
        self.sieves: list[Sieve] = []

    def told(self) -> GangWhy:
        state, gang = self.state, self.gang
        layout = Layout.find(self.candidates, self.smallest)
        fits = self._domains()
        in_domains = self._level_asked() and max(fits.values(), default=0)
        fit = sum(share.size for share in layout.shares) if layout else in_domains or self.pool.fit
        self._sift(layout)
        chosen = self._chosen(state)
        best = sorted(fits.items(), key=lambda item: (-item[1], item[0]))[:DOMAINS]
        briefly = _briefly(gang)
        return GangWhy(
            gang.key,
            gang.phase,
            briefly.reason,
            briefly.detail,
            tuple(self.sieves),
            gang.desired,
            self.smallest,
            min(fit, gang.desired),
            dict(best),
            briefly.hosts,
            tuple(self._standing(self.rooms[name]) for name in chosen[:STANDINGS]),
            self._best_other(chosen),
        )

    # What excluded each

    def _sift(self, layout: Layout | None) -> None:
        need = self.role.resources
        known = [host for host in self.state.hosts.values() if host.status != HostStatus.REMOVED]
        self.sieves.append(Sieve("known", len(known)))
        up = self._sieve("up", known, _unusable, lambda host: host.host)
        rooms = [self.rooms[host.host] for host in up if host.host in self.rooms]

        def asked(name: str, left: Iterable[Room], why: Callable[[Room], str]) -> list[Room]:
            return self._sieve(name, list(left), why, lambda room: room.host.host)

        if need.device_types:
            rooms = asked("device type", rooms, lambda room: _wrong_type(room, need))
        if need.rails:
            rooms = asked("rails", rooms, lambda room: _missing_rails(room, need))
        rooms = asked("free", rooms, lambda room: _lacking(room.kind, need))
        rooms = asked("company", rooms, self._unwelcome)
        placing = self.role.placement
        if placing.within or placing.spread:
            ground = layout.ground if layout else None
            asked("domain", rooms, lambda room: _outside(room, ground, self.smallest))

    def _sieve(
        self, name: str, left: list[One], why: Callable[[One], str], named: Callable[[One], str]
    ) -> list[One]:
        counts: dict[str, int] = {}
        examples: list[str] = []
        kept: list[One] = []
        for one in sorted(left, key=named):
            reason = why(one)
            if not reason:
                kept.append(one)
                continue
            kind, _, detail = reason.partition(": ")
            if counts.get(kind, 0) < 1 or len(examples) < EXAMPLES:
                examples.append(f"{named(one)}: {detail or kind}")
            counts[kind] = counts.get(kind, 0) + 1
        excluded = len(left) - len(kept)
        if excluded or name != "company":
            self.sieves.append(Sieve(name, len(kept), excluded, counts, tuple(examples)))
        return kept

    def _unwelcome(self, room: Room) -> str:
        placing = self.role.placement
        why = self.candidates.objection(room)
        if why == "near":
            return f"not in the {placing.near_level} of role {placing.near}"
        if why == "probation":
            largest = self.candidates.probation_gang
            return f"on probation: only for preemptible gangs of up to {largest} tasks"
        if why:
            return f"{_COMPANY[why]}: {', '.join(sorted(room.takers))}"
        if placing.per_host and not self.candidates.limit(room):
            return f"{placing.per_host} replicas there already"
        return ""

    # Domains and standings

    def _level_asked(self) -> str:
        placing = self.role.placement
        return placing.within or placing.spread or placing.prefer_within

    def _domains(self) -> dict[str, int]:
        level = self._level_asked()
        if not level:
            return {}
        domains, _ = self.pool.split(LEVELS.index(level))
        if level == self.role.placement.within:
            return {name: most(self.candidates, pool) for name, pool in domains.items()}
        return {name: pool.fit for name, pool in domains.items()}

    def _chosen(self, state: State) -> list[str]:
        """The worst first."""
        if self.gang.live:
            hosts = [state.tasks[key].host for key in self.gang.live]
        else:
            free = self.rooms.copy()
            plan = place(state, free, _without_holds(self.gang), self.role, self.smallest)
            hosts = [place.host for place in plan.places] if plan else []
        there = [name for name in dict.fromkeys(hosts) if name in self.rooms]
        return sorted(there, key=lambda name: _rank(self._standing(self.rooms[name])), reverse=True)

    def _standing(self, room: Room) -> Standing:
        kind = room.kind
        return Standing(
            room.host.host,
            min(self.candidates.fit(room), self.gang.desired),
            self.candidates.distance(room.order),
            self.candidates.weighing.of(kind)[1],
            (kind.free_millis, kind.cpu_millis, kind.memory_mib),
        )

    def _best_other(self, chosen: list[str]) -> Standing | None:
        taken = dict.fromkeys(chosen)
        best: Standing | None = None
        for orders in self.pool.groups.values():
            other = next((order[-1] for order in orders if order[-1] not in taken), None)
            if other is not None:
                standing = self._standing(self.rooms[other])
                if best is None or _rank(standing) < _rank(best):
                    best = standing
        return best if chosen else None


_COMPANY = {
    "whole_hosts": "used by others",
    "kept_away": "used by others that want no company",
    "apart_from": "used by whom it stands apart from",
}


def _rank(standing: Standing) -> tuple[int, int, tuple[int, int, int], str]:
    return (standing.distance, standing.wasted, standing.left, standing.host)


def _without_holds(gang: Gang) -> Gang:
    return msgspec.structs.replace(gang, holds=())


def _unusable(host: Host) -> str:
    if usable(host):
        return ""
    if host.status != HostStatus.UP:
        return str(host.status)
    if host.quarantine or host.drain:
        return host.drain or f"quarantined: {host.quarantine}"
    return f"broken: {host.withheld}"


def _wrong_type(room: Room, need: Resources) -> str:
    found = room.host.device_type
    return "" if found in need.device_types else f"other type: {found or 'type not known'}"


def _missing_rails(room: Room, need: Resources) -> str:
    found = len(room.host.rails)
    return "" if found >= need.rails else f"too few rails: {found} of {need.rails}"


def _lacking(kind: Kind, need: Resources) -> str:
    if kind.replicas(need):
        return ""
    if kind.whole < need.devices:
        return f"devices: {kind.whole} free of {need.devices} needed"
    if need.device_millis and not kind.replicas(Resources(device_millis=need.device_millis)):
        largest = kind.parts[-1] if kind.parts else 0
        return f"device_millis: {largest} free of {need.device_millis} needed"
    if kind.cpu_millis < need.cpu_millis:
        return f"cpu_millis: {kind.cpu_millis} free of {need.cpu_millis} needed"
    return f"memory_mib: {kind.memory_mib} free of {need.memory_mib} needed"


def _outside(room: Room, ground: Pool | None, smallest: int) -> str:
    if ground is None:
        return f"in no domain with room for {smallest} replicas"
    return "" if ground.has(room.order) else "in another domain than the one chosen"
