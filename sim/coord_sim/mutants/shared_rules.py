"""What must hold of a shared fleet, told from its history (`shared_fleet.py`)."""

from __future__ import annotations

from coord.core.placement import Rooms, rooms_of
from coord.core.queueing.preemption import being_freed
from coord.core.queueing.waiting import smallest_now
from coord.core.state import State
from coord.model import care_decisions, decisions, events
from coord.model.care import OUT_OF_FLEET
from coord.model.entities import Gang, GangPhase, TaskStatus
from coord.model.entry import Recorded
from coord.model.recovery import recovery_of
from coord.model.spec import Resources
from coord_sim.core_world.truth import Truth
from coord_sim.core_world.violation import CoreViolation

TOGETHER = "hosts of a silent domain are lost together or not at all"
IN_TIME = "a silent domain is lost when its time is over"
PROTECTED = "nobody is preempted who may not be"
IN_VAIN = "nobody is stopped for a gang that then still has no place"
FENCED = "an old generation publishes no weights"
PATIENT = "a gang that may shrink waits for all of its room first"
ANSWERED = "an answer to an old proposal decides nothing"
SHARE = "evidence alone takes no more of a domain out than its share"
RESERVED = "who comes later does not keep the first that waits from the hosts chosen for it"


class SharedTruth(Truth):
    """What the machines know, and what the newest rules promise besides the invariants."""

    def look_at(self, record: Recorded, true_ms: int) -> None:
        self.saves.look_at(record)
        self.together.look_at(record)
        self.shared.look_at(record)

    @property
    def shared(self) -> SharedRules:
        if not hasattr(self, "_shared"):
            self._shared = SharedRules(self.saves.state)
        return self._shared


class SharedRules:
    """Remembers what was decided before."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.silences: dict[str, int] = {}
        """Host that is silent with its domain -> when that is lost."""
        self.allowed_until_ms = -1
        self.proposals: dict[str, int] = {}
        self.later: dict[str, dict[str, int]] = {}
        """Gang for which room is kept -> who came later and started, with its generation."""

    def look_at(self, record: Recorded) -> None:
        event = record.entry.event
        if record.accepted and not record.duplicate_of:
            if isinstance(event, events.EvictionsAllowed):
                window_ms = self.state.meta.settings.breaker_window_ms
                self.allowed_until_ms = record.now_ms + window_ms
            elif isinstance(event, events.QuarantineAnswered):
                self._look_at_answer(event)
            elif isinstance(event, events.WeightsPublished):
                self._look_at_weights(event)
        self._look_at_losses(record)
        self._look_at_share(record)
        for decision in record.decisions:
            if isinstance(decision, care_decisions.QuarantineProposed):
                self.proposals[decision.host] = decision.version
            elif isinstance(decision, decisions.GangPreempted):
                self._look_at_preemption(decision, record.now_ms)
            elif isinstance(decision, decisions.TasksPlaced):
                self._look_at_size(decision, record.now_ms)
        self._look_at_room(record)

    # Failure domains

    def _look_at_losses(self, record: Recorded) -> None:
        silent = self.silences
        self.silences = {
            name: row.due_ms for row in self.state.silences.values() for name in row.hosts
        }
        heard = any(isinstance(one, care_decisions.DomainHeard) for one in record.decisions)
        lost = [one for one in record.decisions if isinstance(one, care_decisions.DomainLost)]
        named = {name: None for one in lost for name in one.hosts}
        for one in record.decisions:
            alone = isinstance(one, decisions.HostLost) and one.host not in named
            if alone and one.host in silent and not heard:  # type: ignore[union-attr]
                raise CoreViolation(TOGETHER, f"{one}")
        for name in named:
            allowed = record.now_ms <= self.allowed_until_ms
            if not allowed and record.now_ms < silent.get(name, 0):
                raise CoreViolation(IN_TIME, f"{name} at {record.now_ms}, due {silent[name]}")

    # Quarantine

    def _look_at_answer(self, event: events.QuarantineAnswered) -> None:
        if self.proposals.get(event.host) != event.version:
            raise CoreViolation(ANSWERED, f"{event}, newest {self.proposals.get(event.host)}")

    def _look_at_share(self, record: Recorded) -> None:
        taken = [one for one in record.decisions if isinstance(one, decisions.HostQuarantined)]
        if len(taken) != 1:
            return
        state, settings = self.state, self.state.meta.settings.policy.quarantine
        name = taken[0].host
        row, rack = state.quarantines.get(name), state.hosts[name].place.rack
        if row is None or not row.allowed or row.state not in OUT_OF_FLEET:
            return
        others = [one for one in state.hosts.values() if one.place.rack == rack]
        there = [one.host for one in others if one.status != "removed"]
        out = [one for one in state.quarantines.values() if one.state in OUT_OF_FLEET]
        count = sum(1 for one in out if one.host in there)
        share = len(there) * settings.domain_share_permille // 1000
        if count > max(share, settings.free_hosts):
            raise CoreViolation(SHARE, f"{count} of {len(there)} in {rack}: {taken[0]}")

    # Weights

    def _look_at_weights(self, event: events.WeightsPublished) -> None:
        task = self.state.tasks.get(event.task)
        gang = self.state.gangs.get(task.gang) if task is not None else None
        if task is None or gang is None or task.key not in gang.live:
            raise CoreViolation(FENCED, f"{event}")

    # Room

    def _look_at_size(self, decision: decisions.TasksPlaced, now_ms: int) -> None:
        """Of a gang's first start; afterwards all of it is what it had."""
        gang, job = self.state.gangs[decision.gang], self.state.jobs[decision.job]
        wait_ms = recovery_of(job.spec, gang.role).shrink_after_ms
        first = gang.generation == decision.generation and not gang.restarts
        small = len(decision.placements) < gang.desired and gang.index < 0
        if first and small and now_ms < job.submitted_ms + wait_ms:
            raise CoreViolation(PATIENT, f"{decision} at {now_ms}, of {gang.desired}")

    def _look_at_preemption(self, decision: decisions.GangPreempted, now_ms: int) -> None:
        state = self.state
        job, victim = state.jobs[decision.job], state.gangs[decision.gang]
        by = state.gangs[decision.by]
        mine = state.jobs[by.job].spec
        if not job.spec.preemptible:
            raise CoreViolation(PROTECTED, f"{decision}")
        if job.spec.queue == mine.queue and job.spec.priority >= mine.priority:
            raise CoreViolation(PROTECTED, f"{decision}: {job.spec.priority}, {mine.priority}")
        if by.phase == GangPhase.WAITING and victim.key in by.victims:
            leave = [*(state.gangs[key] for key in by.victims), *being_freed(state)]
            if not self._fits(by, leave, now_ms):
                raise CoreViolation(IN_VAIN, f"{by.key} for {by.victims}")

    def _look_at_room(self, record: Recorded) -> None:
        """Of gangs that came after the first that waits, in its queue and with no more priority."""
        state = self.state
        reserving = [gang for gang in state.gangs.values() if gang.reserving]
        self.later = {gang.key: self.later.get(gang.key, {}) for gang in reserving}
        for first in reserving:
            later = self.later[first.key]
            for one in _placed_since(first, record):
                if self._comes_later(first, one):
                    later[one.gang] = one.generation
            still = [state.gangs[key] for key in sorted(later) if key in state.gangs]
            taken = [one for one in still if one.live and one.generation == later[one.key]]
            if taken and self._fits_where_room_is_kept(first, taken, record.now_ms):
                keys = ", ".join(one.key for one in taken)
                raise CoreViolation(RESERVED, f"{first.key} waits for {keys}")

    def _fits_where_room_is_kept(self, gang: Gang, leave: list[Gang], now_ms: int) -> bool:
        """On each of the hosts chosen for it no more of it than is to stand there."""
        rooms = self._left_by(gang, leave)
        need = self._need(gang)
        fit = 0
        for name in dict.fromkeys(gang.reserved):
            room = rooms.get(name)
            if room is not None:
                fit += min(room.kind.replicas(need), gang.reserved.count(name))
        return fit >= smallest_now(self.state, gang, now_ms)

    def _comes_later(self, first: Gang, placed: decisions.TasksPlaced) -> bool:
        """Not on hosts with what cannot be killed: room there is kept for nobody."""
        state = self.state
        gang = state.gangs[placed.gang]
        mine, other = state.jobs[first.job].spec, state.jobs[gang.job].spec
        if gang.restarts or not mine.queue == other.queue == "" or mine.priority < other.priority:
            return False
        beside = [key for one in placed.placements for key in state.hosts[one.host].tasks]
        return all(state.tasks[key].status != TaskStatus.UNKILLABLE for key in beside)

    def _fits(self, gang: Gang, leave: list[Gang], now_ms: int) -> bool:
        """There is room for so much of the gang as it needs, once these have left."""
        rooms = self._left_by(gang, leave)
        return rooms.replicas(self._need(gang)) >= smallest_now(self.state, gang, now_ms)

    def _left_by(self, gang: Gang, leave: list[Gang]) -> Rooms:
        rooms = rooms_of(self.state).copy()
        rooms.free_holds(gang)
        for one in leave:
            for key in one.live:
                rooms.free_task(self.state.tasks[key])
        return rooms

    def _need(self, gang: Gang) -> Resources:
        role = self.state.jobs[gang.job].spec.role(gang.role)
        assert role is not None
        return role.resources


def _placed_since(first: Gang, record: Recorded) -> list[decisions.TasksPlaced]:
    """Who started in this entry once room was kept for that gang."""
    at = -1
    for number, one in enumerate(record.decisions):
        if isinstance(one, decisions.RoomReserved) and one.gang == first.key:
            at = number
    return [one for one in record.decisions[at + 1 :] if isinstance(one, decisions.TasksPlaced)]
