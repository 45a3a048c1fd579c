"""What a search found, each kind once: the smallest example of it, and how often it was met."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from coord.core.machine import apply
from coord.core.state import TABLES, State
from coord.model.entry import Recorded

from .alignment import aligned, first_outcome
from .found import Found
from .incident import Incident
from .run import Run
from .schedule import (
    AgentCrash,
    AnyChange,
    Delay,
    Drop,
    Duplicate,
    Flip,
    LeaderChange,
    LoseHosts,
    Reorder,
    Schedule,
)

SAMPLES = 8
"""Examples of the same property and kinds whose fields are compared; more are only counted."""
DISTINCT = 100
"""Findings kept; what else is met then is only counted."""

_MOVING = ("causes", "cause", "status_cause", "digest")
_BOOKKEEPING = ("requests",)


class Status(enum.StrEnum):
    CANDIDATE = "candidate"
    """The state machine breaks; whether a cluster can come to it was not shown."""
    CONFIRMED = "confirmed"
    """The simulation of a whole cluster came to it too."""


class Key(msgspec.Struct, frozen=True, order=True):
    """What makes two findings the same: the property, what was changed, and what then differed."""

    sentence: str
    """The property that breaks, in words."""
    kinds: tuple[str, ...]
    """Of the inverted pairs (`TaskExited after HostRegistered`) and of the faults
    (`lost LaunchFailed`)."""
    fields: tuple[str, ...]
    """Of the state (`tasks.status`) that the first step that differs writes otherwise."""


class Finding(msgspec.Struct, frozen=True):
    """A schedule under which a property does not hold. `incident` is the log that it varies:
    the one explored, or a smaller one once it was shrunk."""

    key: Key
    detail: str
    incident: Incident
    schedule: Schedule
    run: Run
    strategy: str
    status: Status = Status.CANDIDATE
    count: int = 1
    """How often it was met."""
    schedules_so_far: int = 0
    cpu_s: float = 0.0
    origin: Schedule | None = None
    """The schedule as it was found in the log explored, once `incident` is a smaller one."""
    shrunk: bool = False
    """Nothing more can be taken away."""
    tried: str = ""
    """How the simulation of a whole cluster was led along it, in words."""

    @property
    def sentence(self) -> str:
        """The property that does not hold, in words."""
        return self.key.sentence

    @property
    def size(self) -> tuple[int, int, int, bytes]:
        """Smaller is easier to understand: fewer changes, shorter ones, an earlier end."""
        changes = self.schedule.changes
        at = self.run.violation.at if self.run.violation else 0
        return len(changes), sum(map(_width, changes)), at, msgspec.json.encode(self.schedule)


class Findings:
    """Everything found so far, in the order of discovery."""

    def __init__(self, incident: Incident) -> None:
        self._incident = incident
        self._kept: dict[Key, Finding] = {}
        self._samples: dict[tuple[str, tuple[str, ...]], list[Key]] = {}
        self._met: dict[tuple[str, tuple[str, ...]], int] = {}
        self.beyond = 0
        """Met after `DISTINCT` other findings were kept."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Finding]:
        return iter(tuple(self._kept.values()))

    def add(self, found: Found) -> Finding | None:
        """Count it in. The finding when it is the first of its kind, else None."""
        violation = found.run.violation
        if violation is None:
            raise ValueError("a run that broke nothing is no finding")
        kinds = kinds_of(self._incident, found.schedule)
        rough = (violation.sentence, kinds)
        self._met[rough] = self._met.get(rough, 0) + 1
        samples = self._samples.setdefault(rough, [])
        if self._met[rough] > SAMPLES and samples:
            self._count(samples[0])
            return None
        key = Key(*rough, differing_fields(self._incident, found.run))
        finding = Finding(
            key, violation.detail, self._incident, found.schedule, found.run, found.strategy,
            schedules_so_far=found.schedules_so_far, cpu_s=found.cpu_s,
        )  # fmt: skip
        if key in self._kept:
            self._merge(finding)
            return None
        if len(self._kept) >= DISTINCT:
            self.beyond += 1
            return None
        samples.append(key)
        self._kept[key] = finding
        return finding

    def _count(self, key: Key) -> None:
        kept = self._kept[key]
        self._kept[key] = msgspec.structs.replace(kept, count=kept.count + 1)

    def _merge(self, finding: Finding) -> None:
        self._kept[finding.key] = smaller_of(self._kept[finding.key], finding)


def smaller_of(one: Finding, other: Finding) -> Finding:
    """The smaller of two of a kind, counted for both, with when it was first met."""
    small = min(one, other, key=lambda finding: (len(finding.incident.records), finding.size))
    first = min(one, other, key=lambda finding: finding.schedules_so_far)
    return msgspec.structs.replace(
        small,
        count=one.count + other.count,
        strategy=first.strategy,
        schedules_so_far=first.schedules_so_far,
        cpu_s=first.cpu_s,
    )


def merged(findings: list[Finding]) -> list[Finding]:
    """Each kind once, in order: shrinking may show that two were the same."""
    kept: dict[Key, Finding] = {}
    for finding in findings:
        before = kept.get(finding.key)
        kept[finding.key] = smaller_of(before, finding) if before else finding
    return list(kept.values())


# What was changed


def kinds_of(incident: Incident, schedule: Schedule) -> tuple[str, ...]:
    """The kinds of what a schedule changes, each once, in order."""
    return tuple(sorted({kind for change in schedule.changes for kind in _kinds(incident, change)}))


def inverted_pairs(change: AnyChange) -> tuple[tuple[int, int], ...]:
    """Positions of neighbours in the new order of which the first stood after the second: pairs
    (what comes later now, what it now comes after)."""
    if isinstance(change, Flip):
        return ((change.first, change.second),)
    if isinstance(change, Delay):
        return ((change.at, change.until_after),)
    if isinstance(change, Reorder):
        neighbours = zip(change.order, change.order[1:], strict=False)
        return tuple((late, early) for early, late in neighbours if late < early)
    return ()


def _kinds(incident: Incident, change: AnyChange) -> list[str]:
    pairs = inverted_pairs(change)
    if pairs or isinstance(change, Reorder):
        return [
            f"{event_kind(incident, late)} after {event_kind(incident, early)}"
            for late, early in pairs
        ]
    if isinstance(change, Drop):
        return [f"lost {event_kind(incident, change.at)}"]
    if isinstance(change, Duplicate):
        return [f"repeated {event_kind(incident, change.at)}"]
    if isinstance(change, AgentCrash):
        return ["agent crash" if change.keeps_unsent else "agent crash without unsent reports"]
    if isinstance(change, LeaderChange):
        in_flight = f", {event_kind(incident, change.at)} in flight {change.in_flight}"
        return ["leader change" + ("" if change.in_flight == "none" else in_flight)]
    if isinstance(change, LoseHosts):
        return ["loss of hosts" if len(change.hosts) > 1 else "loss of a host"]
    return [{"Pause": "agent pause", "SnapshotRestore": "snapshot and restore"}.get(
        type(change).__name__, "clock jump"
    )]  # fmt: skip


def event_kind(incident: Incident, position: int) -> str:
    """The name of the event at a position."""
    return type(incident.records[position].entry.event).__name__


def _width(change: AnyChange) -> int:
    if isinstance(change, Reorder):
        return len(change.order)
    if isinstance(change, Flip):
        return change.second - change.first
    if isinstance(change, Delay):
        return change.until_after - change.at
    return 1


# What then differed


def differing_fields(incident: Incident, run: Run) -> tuple[str, ...]:
    """Fields of the state that the first event of another outcome writes otherwise than it did, or
    that the step which broke the property writes; `table.field`, ascending."""
    pairs = aligned(incident.records, run.records)
    outcome = first_outcome(incident.records, run.records, pairs)
    at_bad = outcome.bad
    if at_bad < 0 and run.violation is not None:
        at_bad = run.violation.at
    was = _written(incident, incident.records, outcome.good) if outcome.good >= 0 else {}
    now = _written(incident, run.records, at_bad)
    return tuple(
        sorted(
            {
                f"{table}.{field}"
                for table, key, field in {**was, **now}
                if was.get((table, key, field), _ABSENT) != now.get((table, key, field), _ABSENT)
            }
        )
    )


_ABSENT = object()


def _written(
    incident: Incident, records: tuple[Recorded, ...], at: int
) -> dict[tuple[str, str, str], Any]:
    """What the entry at that offset writes: (table, key, field) -> value."""
    if not 0 <= at < len(records):
        return {}
    state = incident.start_state()
    for record in records[:at]:
        apply(state, record.entry)
    for name in TABLES:
        state.table(name).changed = {}
    before = state.view()
    apply(state, records[at].entry)
    return _changes(before, state)


def _changes(before: State, after: State) -> dict[tuple[str, str, str], Any]:
    changes: dict[tuple[str, str, str], Any] = {}
    for name in TABLES:
        if name in _BOOKKEEPING:
            continue
        for key in after.table(name).changed:
            old, new = before.table(name).get(key), after.table(name).get(key)
            row = new if new is not None else old
            for field in row.__struct_fields__ if row is not None else ():
                if field in _MOVING or field.endswith(("_ms", "_index", "_seq", "_version")):
                    continue
                was, now = getattr(old, field, None), getattr(new, field, None)
                if was != now:
                    changes[name, key, field] = now
    return changes
