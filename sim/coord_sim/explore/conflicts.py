"""Which events of the log could make a difference to each other: pairs that nothing orders, that
touch the same, and that lead elsewhere when they come the other way round.

What an event touches is read off the rows that it changed and the names it carries. Only events
that share something are ever looked at as a pair, so the cost grows with the pairs that conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from coord.core.machine import apply
from coord.core.rosters import relay_of_actor
from coord.core.state import State
from coord.model.decisions import (
    HostCleared,
    HostDraining,
    HostJoined,
    HostLost,
    HostQuarantined,
    HostReturned,
    HostSuspected,
    JobQueued,
    RestartScheduled,
    TasksPlaced,
)
from coord.model.entry import Entry, Recorded
from coord.model.events import (
    ClockAdvanced,
    HeartbeatsSeen,
    JobResizeRequested,
    JobSubmitted,
    LeaderElected,
    TaskReaped,
)
from coord.model.roster import RosterChanged, RosterHeard

from .execute import Explored
from .fork import RowKey, changed_rows, differing, fork

FARTHEST = 64
"""Events between the two of a pair up to which it is checked whether they commute."""
NEAREST = 12
"""Of each sender's events that touch the same, those that an event is paired with: many events upon
one row would have all their pairs otherwise."""
PAIRS_LIMIT = 200_000
"""Pairs kept of one incident, the nearest ones of each event first."""

_PLACES = (
    HostCleared, HostDraining, HostJoined, HostLost, HostQuarantined, HostReturned, HostSuspected,
    JobQueued, RestartScheduled, TasksPlaced,
)  # fmt: skip
"""After these, other gangs may find a place, or find it gone."""


class Footprint:
    """Names of what an event wrote, and of what its outcome may depend on."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes: dict[str, None] = {}
        self.reads: dict[str, None] = {}


class Conflicts:
    """The pairs of an incident that are worth being flipped."""

    def __init__(self, explored: Explored) -> None:
        self._explored = explored
        self._records = explored.recording.records
        self._gangs: dict[str, str] = {}
        self.looked_at = 0
        """Pairs whose order was asked for: what finding them cost."""
        self.commuting = 0
        """Pairs left out because both orders lead to the same."""
        self.footprints = [self._footprint(at) for at in range(explored.recording.size)]

    def pairs(self) -> list[tuple[int, int]]:
        """Concurrent pairs that touch the same, one of them writing; the nearest first."""
        touching: dict[str, dict[int, list[int]]] = {}
        found: dict[tuple[int, int], None] = {}
        for second, footprint in enumerate(self.footprints):
            for name in {**footprint.writes, **footprint.reads}:
                chains = touching.setdefault(name, {})
                for first in self._unordered(chains, second):
                    if len(found) >= PAIRS_LIMIT:
                        break
                    if name in footprint.writes or name in self.footprints[first].writes:
                        found[first, second] = None
                chains.setdefault(self._explored.order.chain(second), []).append(second)
        return sorted(found, key=lambda pair: (pair[1] - pair[0], pair))

    def _unordered(self, chains: dict[int, list[int]], second: int) -> list[int]:
        """Of these positions by chain those that nothing orders before `second`, the nearest first.
        Of a chain that holds for its last ones, so no more than one too many is looked at; and no
        more than `NEAREST` are taken."""
        found: list[int] = []
        for chain in chains.values():
            for first in reversed(chain[-NEAREST:]):
                self.looked_at += 1
                if self._explored.order.before(first, second):
                    break
                found.append(first)
        return sorted(found, reverse=True)

    def flips(self) -> Iterator[tuple[int, int]]:
        """Those of `pairs` that do not commute."""
        for first, second in self.pairs():
            if second - first <= FARTHEST and self._known_to_commute(first, second):
                self.commuting += 1
            else:
                yield first, second

    def _known_to_commute(self, first: int, second: int) -> bool:
        """An order on which applying raises is for an execution to show."""
        try:
            return self.commute(first, second)
        except Exception:
            return False

    def commute(self, first: int, second: int) -> bool:
        """Whether both orders lead to the same state and the same answers, from the state before
        `first` with what must come before `second`."""
        order = self._explored.order
        base = self._explored.baseline.before(first).state
        for position in range(first + 1, second):
            if order.before(position, second):
                self._apply(base, position)
        changed_rows(base)
        one, other = base, fork(base)
        stamp = max(self._records[at].entry.wall_ms for at in (first, second))
        then = [self._apply(one, at, stamp) for at in (first, second)]
        otherwise = [self._apply(other, at, stamp) for at in (second, first)]
        if any(_answer(a) != _answer(b) for a, b in zip(then, reversed(otherwise), strict=True)):
            return False
        rows: dict[RowKey, None] = dict.fromkeys((*changed_rows(one), *changed_rows(other)))
        same_heard = one.last_seen_ms == other.last_seen_ms and one.slots == other.slots
        return same_heard and not differing(one, other, rows)

    def _apply(self, state: State, position: int, wall_ms: int | None = None) -> Recorded:
        entry = self._records[position].entry
        stamp = entry.wall_ms if wall_ms is None else wall_ms
        index = state.meta.applied_index + 1
        return apply(state, Entry(index, entry.term, stamp, entry.origin, entry.event))

    # Footprints

    def _footprint(self, position: int) -> Footprint:
        record = self._records[position]
        event: Any = record.entry.event
        print_ = Footprint()
        for table, key in self._explored.baseline.changed[position]:
            if table != "requests":
                print_.writes[f"{table}/{key}"] = None
        for decision in record.decisions:
            if isinstance(decision, TasksPlaced):
                for place in decision.placements:
                    self._gangs[place.task] = decision.gang
            if isinstance(decision, _PLACES):
                print_.writes["places"] = None
        if isinstance(event, TaskReaped | JobSubmitted | JobResizeRequested):
            print_.writes["places"] = None
        self._reads(print_, event, record, position)
        return print_

    def _reads(self, print_: Footprint, event: Any, record: Recorded, position: int) -> None:
        recording = self._explored.recording
        if isinstance(event, HeartbeatsSeen):
            for slot in event.slots:
                print_.writes[f"beat/{recording.host_at(slot)}"] = None
            return
        if isinstance(event, RosterChanged | RosterHeard):
            self._of_relay(print_, event, record, position)
            return
        if isinstance(event, LeaderElected):
            print_.writes["leases"] = None
        elif isinstance(event, ClockAdvanced):
            if record.decisions:
                print_.reads["leases"] = None
            for name in list(print_.writes):
                if name.startswith("hosts/"):
                    print_.reads[f"beat/{name[6:]}"] = None
            return
        host = getattr(event, "host", "")
        if host:
            print_.reads[f"hosts/{host}"] = None
        task = getattr(event, "task", "")
        if task:
            print_.reads[f"tasks/{task}"] = None
            print_.reads[f"gangs/{self._gangs.get(task, '')}"] = None
        job = getattr(event, "job", "")
        if job:
            print_.reads[f"jobs/{job}"] = None

    def _of_relay(
        self, print_: Footprint, event: RosterChanged | RosterHeard, record: Recorded, position: int
    ) -> None:
        recording = self._explored.recording
        print_.reads[f"rosters/{relay_of_actor(record.entry.origin.actor)}"] = None
        for slot in recording.relayed.get(position, ()):
            print_.writes[f"beat/{recording.host_at(slot)}"] = None
        for slot in event.joined_slots if isinstance(event, RosterChanged) else ():
            print_.reads[f"hosts/{recording.host_at(slot)}"] = None


def _answer(record: Recorded) -> tuple[Any, ...]:
    """What its sender and the fleet are told, without the numbers of entries."""
    decisions = tuple(replace(decision, causes=()) for decision in record.decisions)
    return (record.rejection, bool(record.duplicate_of), record.result, decisions)
