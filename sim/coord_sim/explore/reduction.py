"""A smaller log: some events taken out or said more simply, what depended on them taken out too,
everything renumbered as if it had been so, and applied anew.

What is kept of an event stays consistent: a host's reports count up without gaps, heartbeats name
the slots and incarnations that hosts now have, indexes that senders had seen move with the entries.
A report that the log accepted and that would now be refused depended on what was taken out, so it
goes as well. The replay of the smaller log is a true one, made by the real state machine.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from coord.core.machine import apply
from coord.core.state import State
from coord.model.decisions import HostJoined
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import (
    AnyEvent,
    HeartbeatsSeen,
    HostRegistered,
    LaunchFailed,
    TaskExited,
    TaskReaped,
    TaskStarted,
)
from coord.model.roster import RosterChanged, RosterHeard

from .incident import Incident
from .schedule import AnyChange, Delay, Drop, Duplicate, Flip, Reorder, Schedule

ROUNDS = 8
"""Passes until nothing more turns out to depend on what was taken out."""


class Reduced(msgspec.Struct, frozen=True):
    """A smaller incident, and the new position of each old one that was kept."""

    incident: Incident
    positions: Mapping[int, int]


def reduced(
    incident: Incident, kept: tuple[int, ...], said: Mapping[int, AnyEvent] | None = None
) -> Reduced | None:
    """The incident with the events at the positions `kept`, ascending, and of them those in `said`
    with that event instead. None where less than two would be left."""
    said = said or {}
    for _ in range(ROUNDS):
        kept = _closed(incident, kept)
        if len(kept) < 2:
            return None
        records = _Rebuild(incident, kept, said).records()
        fallen = [
            position
            for position, record in zip(kept, records, strict=True)
            if record.rejection and not incident.records[position].rejection
        ]
        if not fallen:
            smaller = replace(incident, records=tuple(records), verified=len(records))
            return Reduced(smaller, {position: at for at, position in enumerate(kept)})
        gone = dict.fromkeys(fallen)
        kept = tuple(position for position in kept if position not in gone)
    return None


def moved(schedule: Schedule, positions: Mapping[int, int]) -> Schedule | None:
    """The schedule for the smaller log. None where an event that it is about is not there."""
    changes = []
    for change in schedule.changes:
        again = _moved(change, positions)
        if again is None:
            return None
        changes.append(again)
    return Schedule(tuple(changes))


def needed_positions(schedule: Schedule) -> tuple[int, ...]:
    """Positions of events without which the schedule would say nothing."""
    needed: list[int] = []
    for change in schedule.changes:
        if isinstance(change, Flip):
            needed += (change.first, change.second)
        elif isinstance(change, Delay):
            needed += (change.at, change.until_after)
        elif isinstance(change, Duplicate):
            needed += (change.at, change.again_after)
        elif isinstance(change, Drop):
            needed.append(change.at)
    return tuple(needed)


def _moved(change: AnyChange, positions: Mapping[int, int]) -> AnyChange | None:
    if isinstance(change, Flip):
        return _placed(change, positions, "first", "second")
    if isinstance(change, Delay):
        return _placed(change, positions, "at", "until_after")
    if isinstance(change, Duplicate):
        return _placed(change, positions, "at", "again_after")
    if isinstance(change, Drop):
        return _placed(change, positions, "at")
    if isinstance(change, Reorder):
        order = tuple(positions[at] for at in change.order if at in positions)
        return Reorder(min(order), order) if len(order) > 1 else None
    after = [at for at in positions if at >= change.at]  # a fault strikes before what comes next
    return replace(change, at=positions[min(after)]) if after else None


def _placed(change: AnyChange, positions: Mapping[int, int], *names: str) -> AnyChange | None:
    places = {name: positions.get(getattr(change, name), -1) for name in names}
    return None if -1 in places.values() else replace(change, **places)


def _closed(incident: Incident, kept: tuple[int, ...]) -> tuple[int, ...]:
    """Without reports of a task whose earlier reports are gone: nothing exits that never started,
    and nothing is reaped that did not end."""
    there = dict.fromkeys(kept)
    began: dict[str, bool] = {}
    ended: dict[str, bool] = {}
    closed = []
    for position, record in enumerate(incident.records):
        event = record.entry.event
        keep = position in there
        task = getattr(event, "task", "")
        if isinstance(event, TaskStarted):
            began[task] = keep
        elif isinstance(event, TaskReaped):
            keep = keep and ended.get(task, True)
        elif task and not isinstance(event, LaunchFailed):
            keep = keep and began.get(task, True)
        if isinstance(event, TaskExited | LaunchFailed):
            ended[task] = keep
        if keep:
            closed.append(position)
    return tuple(closed)


class _Rebuild:
    """One pass: every kept event renumbered and applied."""

    def __init__(
        self, incident: Incident, kept: tuple[int, ...], said: Mapping[int, AnyEvent]
    ) -> None:
        self._incident = incident
        self._kept = kept
        self._said = said
        self._state: State = incident.start_state()
        start = incident.header.start_index
        self._start_index = start
        self._indexes = _counted(len(incident.records), kept, start)
        self._seqs = _seqs(incident, kept, self._state)
        self._slots = {host.slot: host.slot for host in self._state.hosts.values()}
        self._old_slots = {host.host: host.slot for host in self._state.hosts.values()}
        self._incarnations: dict[tuple[str, int], int] = {}
        self._hosts_of_slots = {host.slot: host.host for host in self._state.hosts.values()}
        for record in incident.records:
            for decision in record.decisions:
                if isinstance(decision, HostJoined):
                    self._hosts_of_slots[decision.slot] = decision.host
                    self._old_slots[decision.host] = decision.slot

    def records(self) -> list[Recorded]:
        made = []
        for at, position in enumerate(self._kept):
            before = self._incident.records[position]
            event = self._event(self._said.get(position, before.entry.event))
            entry = Entry(
                self._start_index + at, before.entry.term, before.entry.wall_ms,
                self._origin(position, before.entry.origin), event,
            )  # fmt: skip
            record = apply(self._state, entry)
            if isinstance(event, HostRegistered) and record.accepted and before.accepted:
                self._incarnations[event.host, before.result] = record.result
                slot = self._state.hosts[event.host].slot
                self._slots[self._old_slots[event.host]] = slot
            made.append(record)
        return made

    def _origin(self, position: int, origin: Origin) -> Origin:
        incarnation = origin.incarnation
        seq = origin.seq
        if origin.actor.startswith("host:"):
            incarnation = self._incarnation(origin.actor[5:], incarnation)
            seq = self._seqs[position]
        return Origin(
            origin.actor,
            incarnation,
            seq,
            self._indexes.get(origin.seen_index, origin.seen_index),
            self._indexes.get(origin.seen_plan, origin.seen_plan),
        )

    def _event(self, event: AnyEvent) -> AnyEvent:
        if isinstance(event, HeartbeatsSeen):
            return self._beats(event)
        if isinstance(event, RosterChanged):
            return self._roster(event)
        if isinstance(event, RosterHeard):
            return self._relayed(event)
        host, incarnation = getattr(event, "host", ""), getattr(event, "incarnation", 0)
        if host and incarnation:
            return replace(event, incarnation=self._incarnation(host, incarnation))
        return event

    def _beats(self, event: HeartbeatsSeen) -> HeartbeatsSeen:
        beats = []
        for slot, incarnation in zip(event.slots, event.incarnations, strict=False):
            if slot in self._slots:  # a host that is gone is not heard
                name = self._hosts_of_slots.get(slot, "")
                beats.append((self._slots[slot], self._incarnation(name, incarnation)))
        beats.sort()
        return replace(
            event,
            slots=tuple(slot for slot, _ in beats),
            incarnations=tuple(incarnation for _, incarnation in beats),
        )

    def _roster(self, event: RosterChanged) -> RosterChanged:
        columns = zip(
            event.joined_slots, event.joined_incarnations, event.joined_phases, strict=False
        )
        joined = sorted(
            (
                self._slots[slot],
                self._incarnation(self._hosts_of_slots.get(slot, ""), incarnation),
                phase,
            )
            for slot, incarnation, phase in columns
            if slot in self._slots
        )
        return replace(
            event,
            joined_slots=tuple(slot for slot, _, _ in joined),
            joined_incarnations=tuple(incarnation for _, incarnation, _ in joined),
            joined_phases=tuple(phase for _, _, phase in joined),
            left_slots=tuple(sorted(self._slots[s] for s in event.left_slots if s in self._slots)),
        )

    def _relayed(self, event: RosterHeard) -> RosterHeard:
        columns = zip(event.except_slots, event.except_ages, strict=False)
        excepted = sorted((self._slots[slot], age) for slot, age in columns if slot in self._slots)
        return replace(
            event,
            except_slots=tuple(slot for slot, _ in excepted),
            except_ages=tuple(age for _, age in excepted),
        )

    def _incarnation(self, host: str, before: int) -> int:
        return self._incarnations.get((host, before), before)


def _counted(size: int, kept: tuple[int, ...], start_index: int) -> dict[int, int]:
    """Old index -> new index of the same entry, or of the last kept one before it."""
    there = dict.fromkeys(kept)
    indexes = {}
    newest = start_index - 1
    for position in range(size):
        if position in there:
            newest += 1
        indexes[start_index + position] = newest
    return indexes


def _seqs(incident: Incident, kept: tuple[int, ...], start: State) -> dict[int, int]:
    """Position -> the number of a host's report among those that are kept of its incarnation.

    What the state before the log had counted keeps its number.
    """
    there: dict[tuple[str, int], dict[int, None]] = {}
    for position in kept:
        origin = incident.records[position].entry.origin
        there.setdefault((origin.actor, origin.incarnation), {})[origin.seq] = None
    numbers: dict[tuple[str, int, int], int] = {}
    for (actor, incarnation), seqs in there.items():
        host = start.hosts.get(actor.removeprefix("host:"))
        counted = host.report_seq if host and host.incarnation == incarnation else 0
        number = counted
        for seq in sorted(seqs):
            number += seq > counted
            numbers[actor, incarnation, seq] = number if seq > counted else seq
    origins = {position: incident.records[position].entry.origin for position in kept}
    return {
        position: numbers[origin.actor, origin.incarnation, origin.seq]
        for position, origin in origins.items()
    }
