"""Who must give way, so that a gang may start: as few as possible, and of these the cheapest.

A gang of a queue that may preempt can stop two kinds of others. Within its queue's quota it takes
back what other queues have borrowed, as long as they use more than their quotas, and of a device
type no more than its quota of that; only if that is
not enough, and always beyond the quota, it stops jobs of its own queue with a lower priority. Never
those that are not preemptible, nor those that are stopping anyway: what is being freed is counted
before anybody is stopped. Nobody is stopped for a gang that then still has no place.

Victims are whole gangs. Of all sets that make room the smallest is taken; of these the one with the
lowest priorities, then the least work lost since its newest checkpoint, then the youngest. Up to
`SETS_TRIED` sets are compared; where there are more, victims are collected host by host, the host
that takes the fewest first, and whoever turns out not to be needed is let go.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable

import msgspec

from coord.core.placement import Plan, Room, Rooms, place
from coord.core.queueing.claims import DEVICE, charge_of, each_of
from coord.core.queueing.shares import Shares, free_in, narrowed
from coord.core.state import State
from coord.model.entities import Gang, GangPhase, Hold, Task, TaskStatus
from coord.model.spec import Placing, Resources

SETS_TRIED = 1_500
"""Sets of victims that are compared before the search turns to collecting."""
PLACINGS_TRIED = 60
"""Real placements that are tried for a gang with constraints."""

ACTIVE = (GangPhase.STARTING, GangPhase.RUNNING)


class Victim(msgspec.Struct, frozen=True):
    """A gang that may be stopped, and what that would cost and free."""

    gang: Gang
    priority: tuple[int, int]
    """Of its queue, and its own."""
    lost_ms: int
    """Device-milliseconds since its newest checkpoint."""
    placed_ms: int
    charge: int
    queue: str
    most: int
    """No more replicas than this can find room because of it."""


class Way(msgspec.Struct, frozen=True):
    """A way to make room: whom to stop, and where the gang will stand then."""

    victims: tuple[Victim, ...]
    plan: Plan


def cost_of(victims: Iterable[Victim]) -> tuple[object, ...]:
    """Sort key of a set of victims: fewest, then cheapest."""
    chosen = tuple(victims)
    return (
        len(chosen),
        sorted((victim.priority for victim in chosen), reverse=True),
        sum(victim.lost_ms for victim in chosen),
        sorted(-victim.placed_ms for victim in chosen),
        sorted(victim.gang.key for victim in chosen),
    )


def make_way(
    state: State,
    shares: Shares,
    rooms: Rooms,
    gang: Gang,
    smallest: int,
    now_ms: int,
    runners: Runners | None = None,
) -> Way | None:
    """Whom to stop so that `smallest` replicas of the gang have a place; None when that cannot be,
    or when it has one as soon as what is being freed is free: then nobody need be stopped.

    `runners`: of this very state, where they are known.
    """
    runners = Runners(state) if runners is None else runners
    borrowers, own = runners.below(shares, gang, smallest)
    if not borrowers and not own:
        return None
    search = _Search(state, shares, rooms, gang, smallest, now_ms)
    if search.plan(()) is not None:
        return None
    lenders, below = search.victims(borrowers), search.victims(own)
    lenders = [victim for victim in lenders if victim.most]
    for candidates in (lenders, [*lenders, *below]) if below else (lenders,):
        if candidates:
            way = search.cheapest(candidates)
            if way is not None:
                return way
    return None


class Runners:
    """Who may be stopped at all, by queue. Right until somebody starts or stops."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_queue: dict[str, list[Gang]] = {}
        self._freed: dict[str, int] = {}
        """By queue: what gangs that end by themselves give back."""
        for key in sorted(state.claims.of):
            gang = state.gangs[key]
            if is_preemptible(state, gang):
                self._by_queue.setdefault(state.jobs[gang.job].spec.queue, []).append(gang)
        for ending in being_freed(state):
            claim = state.claims.of[ending.key]
            self._freed[claim.queue] = self._freed.get(claim.queue, 0) + claim.amount

    def below(self, shares: Shares, gang: Gang, smallest: int) -> tuple[list[Gang], list[Gang]]:
        """(borrowers that the gang may claim its queue's quota from, gangs of its own queue below
        it). Neither is asked whether that would help."""
        state = self._state
        spec = state.jobs[gang.job].spec
        own = [
            other
            for other in self._by_queue.get(spec.queue, ())
            if other.job != gang.job and state.jobs[other.job].spec.priority < spec.priority
        ]
        freed = self._freed.get(spec.queue, 0)
        freed += sum(charge_of(other, state.jobs[other.job]) for other in own)
        if not shares.is_entitled(gang, smallest, freed):
            return [], own
        borrowers = [
            other
            for queue, running in self._by_queue.items()
            if queue != spec.queue and shares.borrowed(queue)
            for other in running
            if other.job != gang.job
        ]
        return sorted(borrowers, key=lambda other: other.key), own


def lost_ms_of(state: State, gang: Gang, now_ms: int) -> int:
    """Device-milliseconds of work that end with this generation: since its newest checkpoint where
    it reports steps, else since its start."""
    placed_ms = _placed_ms(state, gang)
    each = each_of(state.jobs[gang.job].spec.role(gang.role).resources)  # type: ignore[union-attr]
    worked_ms = gang.claim * each * (now_ms - placed_ms) // DEVICE
    begun = max(gang.restore_step, 0)
    done = gang.step - begun
    if done <= 0:
        return worked_ms
    newest = state.newest_checkpoint(gang.key)
    saved = max(newest.step if newest is not None else 0, begun)
    return worked_ms * max(gang.step - saved, 0) // done


def is_preemptible(state: State, gang: Gang) -> bool:
    """It runs, is not about to end, and its job allows it."""
    job = state.jobs[gang.job]
    return (
        gang.phase in ACTIVE
        and gang.succeeded < gang.size
        and job.spec.preemptible
        and not job.ending
    )


def _placed_ms(state: State, gang: Gang) -> int:
    return min((state.tasks[key].placed_ms for key in gang.live), default=0)


class _Search:
    """For one gang: who may be stopped, and which sets of them make room."""

    def __init__(
        self,
        state: State,
        shares: Shares,
        rooms: Rooms,
        gang: Gang,
        smallest: int,
        now_ms: int,
    ) -> None:
        self._state = state
        self._shares = shares
        self._gang = msgspec.structs.replace(gang, desired=smallest)
        self._smallest = smallest
        self._now_ms = now_ms
        job = state.jobs[gang.job]
        self._queue = job.spec.queue
        self._priority = job.spec.priority
        role = job.spec.role(gang.role)
        assert role is not None
        self._role = role
        self._need: Resources = role.resources
        self._free = free_in(rooms)
        self._placings = PLACINGS_TRIED
        self._soon = rooms.copy()
        self._soon.free_holds(gang)
        self._gang = msgspec.structs.replace(self._gang, holds=())
        self._freed_soon = 0
        """Of its queue, by gangs that end."""
        for ending in being_freed(state):
            if state.jobs[ending.job].spec.queue == self._queue:
                self._freed_soon += charge_of(ending, state.jobs[ending.job])
            for key in ending.live:
                if state.tasks[key].status != TaskStatus.UNKILLABLE:
                    self._soon.free_task(state.tasks[key])
        self._counts: dict[str, int] = {}
        for kind, orders in self._soon.kinds.items():
            count = kind.replicas(self._need)
            for order in orders:
                self._counts[order[-1]] = count
        self._count = sum(self._counts.values())

    # Who

    def victims(self, gangs: Iterable[Gang]) -> list[Victim]:
        return [self._victim(gang) for gang in gangs]

    def _entitled(self, victims: Iterable[Victim]) -> bool:
        """Once these have gone, the gang is within its queue's quota."""
        freed = self._freed_soon + self._charges(victims, self._queue)
        return self._shares.is_entitled(self._gang, self._smallest, freed)

    def _victim(self, gang: Gang) -> Victim:
        state = self._state
        spec = state.jobs[gang.job].spec
        most = 0
        for key in gang.processes:
            task = state.tasks[key]
            if task.host in self._counts:
                most += _replicas_at_most(task, self._need)
        return Victim(
            gang,
            (self._shares.spec(spec.queue).priority, spec.priority),
            lost_ms_of(state, gang, self._now_ms),
            _placed_ms(state, gang),
            charge_of(gang, state.jobs[gang.job]),
            spec.queue,
            most,
        )

    # Whether

    def plan(self, victims: tuple[Victim, ...]) -> Plan | None:
        """Where the gang will stand once these have gone; None when that is not enough."""
        if not self._allowed(victims) or not self._counts_fit(victims):
            return None
        if self._role.placement != Placing():
            if not self._placings:
                return None
            self._placings -= 1
        freed = self._freed_soon + self._charges(victims, self._queue)
        free = self._free + sum(victim.charge for victim in victims)
        claiming = any(victim.queue != self._queue for victim in victims)
        grant = self._shares.grant(self._gang, self._smallest, free, freed, claiming=claiming)
        if grant.replicas < self._smallest:
            return None
        rooms = self._soon.copy()
        for victim in victims:
            rooms.free_holds(victim.gang)
            for key in victim.gang.processes:
                rooms.free_task(self._state.tasks[key])
        role = narrowed(self._role, rooms, grant)
        return place(self._state, rooms, self._gang, role, self._smallest) if role else None

    def _charges(self, victims: Iterable[Victim], queue: str) -> int:
        return sum(victim.charge for victim in victims if victim.queue == queue)

    def _allowed(self, victims: tuple[Victim, ...]) -> bool:
        """Stopped one after the other, the largest of each queue last, every victim of another
        queue ran on what was borrowed until then, and the gang only claims its quota."""
        of_queue: dict[str, list[int]] = {}
        for victim in victims:
            if victim.queue != self._queue:
                of_queue.setdefault(victim.queue, []).append(victim.charge)
        return not of_queue or (
            self._entitled(victims)
            and all(
                sum(charges) - max(charges) < self._shares.borrowed(queue)
                for queue, charges in of_queue.items()
            )
        )

    def _counts_fit(self, victims: tuple[Victim, ...]) -> bool:
        """Replicas counted host by host; constraints are left to `place`."""
        count = self._count
        if count >= self._smallest:
            return True
        touched: dict[str, list[tuple[Task | Hold, str]]] = {}
        for victim in victims:
            tasks = [self._state.tasks[key] for key in victim.gang.processes]
            takers: list[Task | Hold] = [*tasks, *victim.gang.holds]
            for taker in takers:
                if taker.host in self._counts:
                    touched.setdefault(taker.host, []).append((taker, victim.gang.key))
        for name, left in touched.items():
            room = self._soon[name]
            for taker, whose in left:
                room = room.give_back(taker, whose)
            count += room.kind.replicas(self._need) - self._counts[name]
            if count >= self._smallest:
                return True
        return False

    # Which

    def cheapest(self, candidates: list[Victim]) -> Way | None:
        """The least set by `cost_of`, as far as so many sets can be compared."""
        tried = 0
        for size in range(self._fewest(candidates), len(candidates) + 1):
            tried += math.comb(len(candidates), size)
            if tried > SETS_TRIED:
                return self._collected(candidates)
            sets = itertools.combinations(candidates, size)
            fitting = [one for one in sets if self._allowed(one) and self._counts_fit(one)]
            for victims in sorted(fitting, key=cost_of):
                plan = self.plan(victims)
                if plan is not None:
                    return Way(victims, plan)
        return None

    def _fewest(self, candidates: list[Victim]) -> int:
        """No fewer of them can be enough."""
        missing = self._smallest - self._count
        size = 0
        for most in sorted((victim.most for victim in candidates), reverse=True):
            if missing <= 0:
                break
            missing -= most
            size += 1
        return max(size, 1) if missing <= 0 else len(candidates) + 1

    def _collected(self, candidates: list[Victim]) -> Way | None:
        """Host by host, those first that take the fewest further victims, until there is room."""
        by_host: dict[str, list[Victim]] = {}
        for victim in sorted(candidates, key=lambda victim: cost_of((victim,))):
            for name in self._hosts(victim):
                by_host.setdefault(name, []).append(victim)
        rooms = self._soon.copy()
        count = self._count
        chosen: dict[str, Victim] = {}
        offers = []
        for name in sorted(by_host):
            needed = self._needed_on(rooms[name], by_host[name])
            if needed:
                offers.append((cost_of(needed), name))
        heapq.heapify(offers)
        while offers:
            cost, name = heapq.heappop(offers)
            left = [victim for victim in by_host[name] if victim.gang.key not in chosen]
            needed = self._needed_on(rooms[name], left)
            if not needed or not self._allowed((*chosen.values(), *needed)):
                continue
            if cost_of(needed) == cost:
                for victim in needed:
                    chosen[victim.gang.key] = victim
                    count += self._free_up(rooms, victim)
                plan = self.plan(tuple(chosen.values())) if count >= self._smallest else None
                if plan is not None:
                    return self._pruned(list(chosen.values()), plan)
                left = [victim for victim in left if victim.gang.key not in chosen]
                needed = self._needed_on(rooms[name], left)
            if needed:
                heapq.heappush(offers, (cost_of(needed), name))
        # Room on single hosts is not what is short.
        return self._one_by_one(candidates)

    def _hosts(self, victim: Victim) -> tuple[str, ...]:
        """Those it runs on that suit the gang."""
        names = dict.fromkeys(self._state.tasks[key].host for key in victim.gang.processes)
        return tuple(name for name in names if name in self._counts)

    def _free_up(self, rooms: Rooms, victim: Victim) -> int:
        """As if it had gone; returns how many replicas more there is room for."""
        names = self._hosts(victim)
        before = sum(rooms[name].kind.replicas(self._need) for name in names)
        for key in victim.gang.processes:
            rooms.free_task(self._state.tasks[key])
        return sum(rooms[name].kind.replicas(self._need) for name in names) - before

    def _needed_on(self, room: Room, victims: list[Victim]) -> tuple[Victim, ...]:
        """The first of these, in their order, that make room for another replica on the host."""
        name, count = room.host.host, room.kind.replicas(self._need)
        for at, victim in enumerate(victims):
            for key in victim.gang.processes:
                if self._state.tasks[key].host == name:
                    room = room.give_back(self._state.tasks[key], victim.gang.key)
            if room.kind.replicas(self._need) > count:
                return tuple(victims[: at + 1])
        return ()

    def _one_by_one(self, candidates: list[Victim]) -> Way | None:
        """In the order of their costs, largest rooms first."""
        chosen: list[Victim] = []
        for victim in sorted(candidates, key=lambda one: (-one.most, cost_of((one,)))):
            if self._allowed((*chosen, victim)):
                chosen.append(victim)
                plan = self.plan(tuple(chosen))
                if plan is not None:
                    return self._pruned(chosen, plan)
        return None

    def _pruned(self, chosen: list[Victim], plan: Plan) -> Way:
        """Without those that are not needed, the dearest let go first."""
        for victim in sorted(chosen, key=lambda one: cost_of((one,)), reverse=True):
            rest = [other for other in chosen if other is not victim]
            found = self.plan(tuple(rest)) if rest else None
            if found is not None:
                chosen, plan = rest, found
        return Way(tuple(chosen), plan)


def being_freed(state: State) -> list[Gang]:
    """Gangs that end by themselves and leave their places to everybody."""
    found = []
    for key in sorted(state.claims.of):
        gang = state.gangs[key]
        ending = gang.phase == GangPhase.STOPPING and gang.stop_final
        if ending or (gang.phase in ACTIVE and gang.succeeded == gang.size):
            found.append(gang)
    return found


def _replicas_at_most(task: Task, need: Resources) -> int:
    """By how many the replicas on its host can grow when the task goes."""
    devices = (len(task.devices), need.devices)
    if need.device_millis:
        part = need.device_millis
        devices = (len(task.devices) * (DEVICE // part), 1)
    parts = (
        devices,
        (task.cpu_millis, need.cpu_millis),
        (task.memory_mib, need.memory_mib),
    )
    return max((-(-freed // each) for freed, each in parts if each), default=0)
