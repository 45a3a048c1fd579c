"""The queue: who waits, in which order, and what happens when a place is found.

By the rules of version 1 the first who was submitted is looked at first, and whoever fits starts.
From version 2 on, turns go by queues, priorities and shares (`turns.py`); a gang may have no more
than its queue may use (`shares.py`); the first that lacks room gets it by having others stopped
where its queue may do so (`preemption.py`), or has it kept from those behind it (`backfill.py`).
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.placement import (
    Plan,
    Refusal,
    Room,
    Rooms,
    Wish,
    place,
    refusal,
    rooms_of,
    wish_of,
)
from coord.core.queueing.backfill import keep_from_others, reserved_hosts
from coord.core.queueing.order import starts_after
from coord.core.queueing.preemption import Runners, Way, make_way
from coord.core.queueing.queues import QUEUES_SINCE
from coord.core.queueing.shares import Shares, free_in, narrowed
from coord.core.queueing.starting import start
from coord.core.queueing.turns import Turns, rank_of
from coord.core.queueing.waiting import reason_of, smallest_now
from coord.core.recovery import standbys
from coord.core.recovery.promotion import promotion
from coord.core.recovery.scope import awaits_others
from coord.core.recovery.spares import refill
from coord.core.step import Step
from coord.core.stopping import role_of
from coord.model.decisions import GangPreempted, JobQueued, RoomReserved
from coord.model.entities import Gang, Hold, QueueReason
from coord.model.spec import RoleSpec

SEARCHES_A_PASS = 16
"""For victims. Who comes after so many that found none waits until one of these has started."""


def schedule(step: Step) -> None:
    """Start every waiting gang whose turn it is and that has a place."""
    by_shares = step.state.meta.logic_version >= QUEUES_SINCE
    standbys.review(step)
    while step.state.waiting and (_Pass(step).run() if by_shares else _first_come(step)):
        pass
    refill(step)


def _first_come(step: Step) -> bool:
    """Look at the queue once. True when a gang left places that it had kept: whoever waits for
    longer than the gang then comes first again."""
    state = step.state
    rooms: Rooms | None = None
    refused: dict[Wish, Refusal] = {}
    for key in sorted(state.waiting, key=lambda key: rank_of(state, state.gangs[key])):
        gang = state.gangs[key]
        if _backs_off(step, gang):
            continue
        rooms = rooms_of(state) if rooms is None else rooms
        role = role_of(step, gang)
        smallest = smallest_now(state, gang, step.now_ms)
        # Until somebody leaves a kept place, room only shrinks: what found none finds none now.
        wish = wish_of(gang, role, smallest)
        why = None if gang.holds else refused.get(wish)
        plan = None if why else place(state, rooms, gang, role, smallest)
        if plan is not None:
            start(step, gang, plan)
            if gang.holds:
                return True
            continue
        why = why or refusal(state, rooms, gang, role, smallest)
        if not gang.holds:
            refused[wish] = why
        why = reason_of(step, gang, why)
        _queue(step, gang, why.reason, why.detail)
    return False


class _Pass:
    """One look at all that wait, in the order of their turns."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._state = step.state
        self._rooms = Rooms()
        self._kept: Rooms | None = None
        """What would be free if nothing were kept for the first that lacks room."""
        self._first = ""
        """That one."""
        self._shares = Shares(step.state)
        self._free = 0
        self._refused: dict[Wish, Refusal] = {}
        self._searched: dict[tuple[str, int, Wish], None] = {}
        self._runners: Runners | None = None

    def run(self) -> bool:
        """True when a gang left what was kept for it: then all are looked at once more."""
        step, state = self._step, self._state
        waiting = [state.gangs[key] for key in state.waiting]
        ready = [gang for gang in waiting if not _backs_off(step, gang)]
        if not ready:
            return False
        self._rooms = rooms_of(state)
        self._free = free_in(self._rooms)
        turns = Turns(state, self._shares, ready)
        while (gang := turns.next()) is not None:
            if self._look_at(gang):
                return True
        for gang in [state.gangs[key] for key in state.waiting]:
            if gang.reserving and gang.key != self._first:
                state.put_gang(replace(gang, reserving=False, reserved=()))
        return False

    def _look_at(self, gang: Gang) -> bool:
        smallest = smallest_now(self._state, gang, self._step.now_ms)
        grant = self._shares.grant(gang, smallest, self._free)
        role = narrowed(role_of(self._step, gang), self._rooms, grant)
        if not grant.replicas or role is None:
            if not self._make_way(gang, smallest):
                detail = grant.detail or f"its queue may use no more {', '.join(grant.closed)}"
                self._wait(gang, Refusal(QueueReason.QUOTA, detail))
            return False
        if gang.standbys:
            if self._promote(gang, role, grant.replicas, smallest):
                return True
            # They are spares, too.
            role = replace(role, spares=max(role.spares - len(gang.standbys), 0))
        wish = wish_of(gang, role, smallest)
        why = None if gang.holds else self._refused.get(wish)
        wanted = replace(gang, desired=grant.replicas)
        plan = None if why else place(self._state, self._rooms, wanted, role, smallest)
        if plan is not None:
            self._start(gang, plan)
            return bool(gang.holds or gang.claim)
        if gang.standbys:
            # Their places may be what it lacks: it is looked at again when they have left them.
            why = self._why(gang, role, smallest)
            gang = standbys.let_go_all(self._step, gang, "its gang needs the place", gang.cause)
            self._state.put_gang(gang)
            self._wait(gang, why)
            return False
        if self._make_way(gang, smallest):
            return False
        why = why or self._why(gang, role, smallest)
        if not gang.holds:
            self._refused[wish] = why
        self._wait(gang, why)
        if self._kept is None:
            self._reserve(gang, role, smallest)
        return False

    def _start(self, gang: Gang, plan: Plan) -> None:
        self._runners = None
        self._shares.charge(gang, -1)
        start(self._step, gang, plan)
        started = self._state.gangs[gang.key]
        self._shares.charge(started, 1)
        self._free = free_in(self._rooms)
        if self._kept is not None:
            placing = role_of(self._step, gang).placement
            for key in started.live:
                task = self._state.tasks[key]
                self._kept.put(self._kept[task.host].take(task, gang.key, placing))
            self._kept.take_holds(started, placing)

    def _promote(self, gang: Gang, role: RoleSpec, desired: int, smallest: int) -> bool:
        """True when it starts with standbys in some of its ranks."""
        found = promotion(self._state, self._rooms, gang, role, desired, smallest)
        if found is None:
            return False
        start(self._step, gang, found.plan, found.taken)
        return True

    def _why(self, gang: Gang, role: RoleSpec, smallest: int) -> Refusal:
        """What is short; or who comes first, where there is room."""
        kept = self._kept
        if (
            kept is not None
            and kept.replicas(role.resources) >= smallest
            and place(self._state, kept.copy(), gang, role, smallest) is not None
        ):
            detail = f"there is room, but {self._first} comes first"
            return Refusal(QueueReason.RESERVED, detail)
        return refusal(self._state, self._rooms, gang, role, smallest)

    def _reserve(self, gang: Gang, role: RoleSpec, smallest: int) -> None:
        """Keep what it could use of the hosts chosen for it from all that come after it."""
        step, state = self._step, self._state
        gang = state.gangs[gang.key]
        hosts = reserved_hosts(state, self._rooms, gang, role, smallest)
        if hosts is None:
            return
        if not gang.reserving:
            step.decide(RoomReserved((step.cause,), gang.job, gang.key))
        if not gang.reserving or gang.reserved != hosts:
            gang = replace(gang, reserving=True, reserved=hosts)
            state.put_gang(gang)
        left = keep_from_others(state, self._rooms, gang, role, smallest)
        assert left is not None
        self._kept, self._rooms = self._rooms, left
        self._first = gang.key
        self._free = free_in(left)
        self._refused = {}

    # Victims

    def _make_way(self, gang: Gang, smallest: int) -> bool:
        """True while others stop for it."""
        state = self._state
        if gang.victims:
            self._wait(gang, _preempting(gang.victims))
            return True
        spec = state.jobs[gang.job].spec
        if not self._shares.spec(spec.queue).may_preempt:
            return False
        searched = (spec.queue, spec.priority, wish_of(gang, role_of(self._step, gang), smallest))
        if searched in self._searched or len(self._searched) >= SEARCHES_A_PASS:
            return False
        if self._runners is None:
            self._runners = Runners(state)
        now_ms, runners = self._step.now_ms, self._runners
        way = make_way(state, self._shares, self._rooms, gang, smallest, now_ms, runners)
        if way is None:
            self._searched[searched] = None
            return False
        self._stop_victims(gang, way)
        return True

    def _stop_victims(self, gang: Gang, way: Way) -> None:
        """Give them notice, and keep for the gang what is free already of where it will stand."""
        step, state, shares = self._step, self._state, self._shares
        self._runners = None
        queue = shares.spec(state.jobs[gang.job].spec.queue)
        victims = tuple(victim.gang.key for victim in way.victims)
        shares.charge(gang, -1)
        self._rooms.free_holds(gang)
        placing = role_of(step, gang).placement
        hold_ms = queue.notice_ms + state.meta.settings.hold_ms
        gang = replace(
            gang,
            claim=len(way.plan.places),
            hosts=tuple(place.host for place in way.plan.places),
            victims=victims,
            holds=(),
            holds_until_ms=step.now_ms + hold_ms,
        )
        state.put_gang(gang)
        state.timers.arm("gang", gang.key, gang.holds_until_ms)
        for victim in way.victims:
            self._stop(victim.gang, victim.lost_ms, gang, queue.notice_ms)
        gang = state.gangs[gang.key]
        free = _free_parts(self._rooms, gang, way.plan, role_of(step, gang))
        gang = replace(gang, holds=(*gang.holds, *free))
        state.put_gang(gang)
        shares.charge(gang, 1)
        self._rooms.take_holds(gang, placing)
        self._free = free_in(self._rooms)
        self._wait(gang, _preempting(victims))

    def _stop(self, victim: Gang, lost_ms: int, gang: Gang, notice_ms: int) -> None:
        step = self._step
        self._shares.charge(victim, -1)
        self._rooms.free_holds(victim)
        causes = (step.cause, gang.cause) if gang.cause != step.cause else (step.cause,)
        decided = step.decide(
            GangPreempted(
                causes,
                victim.job,
                victim.key,
                victim.generation,
                gang.key,
                self._state.jobs[gang.job].spec.queue,
                notice_ms,
                lost_ms,
            )
        )
        gangs.give_way(step, victim.key, gang.key, notice_ms, decided)

    def _wait(self, gang: Gang, why: Refusal) -> None:
        """Say why, once for each reason. The detail is that of when the reason began: to keep it
        up to date would rewrite the rows of all that wait whenever something ends."""
        current = self._state.gangs[gang.key]
        why = reason_of(self._step, current, why)
        if current.queue_reason != why.reason:
            _queue(self._step, current, why.reason, why.detail)


def _free_parts(rooms: Rooms, gang: Gang, plan: Plan, role: RoleSpec) -> tuple[Hold, ...]:
    """What is free now of the places that a gang will have."""
    need = role.resources
    found: list[Hold] = []
    left: dict[str, Room] = {}
    for spot in plan.places:
        room = left.get(spot.host) or rooms.get(spot.host)
        if room is None:
            continue
        parts = dict(room.parts)
        devices = tuple(
            device
            for device in spot.devices
            if device in room.devices or 0 < need.device_millis <= parts.get(device, 0)
        )
        cpu_millis = max(min(room.cpu_millis, need.cpu_millis), 0)
        memory_mib = max(min(room.memory_mib, need.memory_mib), 0)
        if devices or cpu_millis or memory_mib:
            millis = need.device_millis if devices else 0
            hold = Hold(spot.host, False, devices, cpu_millis, memory_mib, millis)
            found.append(hold)
            left[spot.host] = room.take(hold, gang.key, role.placement)
    return tuple(found)


def _preempting(victims: tuple[str, ...]) -> Refusal:
    return Refusal(QueueReason.PREEMPTING, f"{', '.join(victims)} must stop first")


def _backs_off(step: Step, gang: Gang) -> bool:
    """It may not start yet. Says so."""
    if awaits_others(step.state, gang):
        _queue(step, gang, QueueReason.TOGETHER, "others of its job that restart with it still run")
        return True
    if missing := starts_after(step.state, gang):
        _queue(step, gang, QueueReason.AFTER, f"not started yet: {', '.join(missing)}")
        return True
    if gang.not_before_ms <= step.now_ms:
        return False
    _queue(step, gang, QueueReason.BACKOFF, f"until {gang.not_before_ms} ms of log time")
    return True


def _queue(step: Step, gang: Gang, reason: QueueReason, detail: str) -> None:
    """Say why it waits, once for each reason; the detail in its row is always the newest."""
    if gang.queue_reason != reason:
        causes = (step.cause, gang.cause) if gang.cause != step.cause else (step.cause,)
        step.decide(JobQueued(causes, gang.job, gang.key, reason, detail))
    if gang.queue_reason != reason or gang.queue_detail != detail:
        step.state.put_gang(replace(gang, queue_reason=reason, queue_detail=detail))
