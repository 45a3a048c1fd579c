"""The invariants of the core after every entry, but only those that the entry can have broken.

Each row that an entry wrote is compared with the one before; what changed of it tells which
invariants to look at. One that is not listed here is looked at every time. Where other executions
were before, nothing is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from coord.core.invariants import INVARIANTS, Check
from coord.core.state import State

from .fork import RowKey
from .judge import Broken
from .marks import Marks, derived, mark_of

WATCHED = (
    "hosts", "jobs", "gangs", "tasks", "checkpoints", "queues", "quarantines", "silences",
    "maintenances", "weights", "rosters",
)  # fmt: skip

SOUND_LIMIT = 200_000
"""States that are remembered."""

_READS: dict[str, tuple[str, ...]] = {
    "_devices": ("task place", "holds"),
    "_capacity": ("task place", "holds", "host"),
    "_host_tasks": ("task place", "host tasks", "host"),
    "_dead_hosts": ("host", "host tasks", "task status", "task place"),
    "_live_tasks": ("live", "gang", "task status", "task place"),
    "_planned_tasks": ("task status", "task place", "gang"),
    "_whole_gangs": ("gang", "live", "task status", "task place"),
    "_exclusive": ("task status", "task place", "host", "gang", "jobs"),
    "_generations": ("gang", "jobs"),
    "_job_gangs": ("gang", "jobs"),
    "_ended_jobs": ("gang", "jobs"),
    "_restores": ("gang", "checkpoints"),
    "_checkpoints": ("gang", "checkpoints"),
    "_holds": ("holds", "host"),
    "_slots": ("host",),
    "_derived": ("gang", "host", "jobs", "checkpoints"),
    "_incidents": ("gang",),
    "_drained": ("host", "host tasks"),
    "_quarantine_share": ("any",),
    "_quarantine_kept": ("any",),
    "_maintenance_limit": ("any",),
    "_silences": ("any",),
    "_quotas": ("any",),
    "_giving_way": ("any",),
    "_reserving": ("any",),
    "_claims": ("any",),
    "_spares": ("any",),
    "_weights": ("any",),
    "_together": ("any",),
    "_standbys": ("any",),
    "_rosters": ("rosters", "host"),
    "_last_seen": ("any",),
}
"""Check -> what of the rows it reads. Names of checks, for sentences may be put better. "any":
looked at whatever changes in a row that is watched."""


class Watch:
    """Remembers the rows as they were when the invariants were looked at last."""

    def __init__(self, state: State) -> None:
        self._rows: dict[str, dict[str, Any]] = {name: dict(state.table(name)) for name in WATCHED}

    def fork(self) -> Watch:
        copy = Watch.__new__(Watch)
        copy._rows = {name: rows.copy() for name, rows in self._rows.items()}
        return copy

    def look(
        self, state: State, changed: list[RowKey], marks: Marks, sound: dict[int, None]
    ) -> Broken | None:
        """The first invariant that does not hold any more. `sound` are marks of states in which
        all of them held; this one's is added."""
        written = self._written(state, changed)
        if not written:
            return None
        checks = _checks(_aspects(written))
        if not checks:
            return None
        mark = mark_of((marks.rows(state), derived(state)))
        if mark in sound:
            return None
        for sentence, check in checks:
            for offender in check(state):
                return sentence, offender
        if len(sound) < SOUND_LIMIT:
            sound[mark] = None
        return None

    def _written(self, state: State, changed: list[RowKey]) -> list[tuple[str, Any, Any]]:
        """(table, row before, row now) of rows that are not the same, None for one that is not
        there."""
        written = []
        for name, key in changed:
            rows = self._rows.get(name)
            if rows is None:
                continue
            before, after = rows.get(key), state.table(name).get(key)
            if before is after:
                continue
            if after is None:
                del rows[key]
            else:
                rows[key] = after
            written.append((name, before, after))
        return written


def _aspects(written: list[tuple[str, Any, Any]]) -> frozenset[str]:
    aspects: dict[str, None] = {}
    for name, before, after in written:
        whole = before is None or after is None
        for aspect, fields in _ASPECTS[name]:
            if aspect not in aspects and (whole or fields(before) != fields(after)):
                aspects[aspect] = None
    return frozenset(aspects)


@cache
def _checks(aspects: frozenset[str]) -> tuple[tuple[str, Check], ...]:
    """What to look at after rows changed in these ways, in the order of declaration."""
    if not aspects:
        return ()
    return tuple(
        (sentence, check)
        for sentence, check in INVARIANTS.items()
        if not aspects.isdisjoint(_READS.get(check.__name__, aspects))
    )


def _whole(row: Any) -> Any:
    return row


_ANY = ("any", _whole)
_ASPECTS: dict[str, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    **dict.fromkeys(WATCHED, (_ANY,)),
    "hosts": (
        _ANY,
        ("host tasks", attrgetter("tasks")),
        (
            "host",
            attrgetter(
                "status", "incarnation", "slot", "drain", "quarantine", "fenced", "devices",
                "cpu_millis", "memory_mib",
            ),
        ),
    ),
    "jobs": (_ANY, ("jobs", attrgetter("status", "generation", "gangs", "spec")),),
    "gangs": (
        _ANY,
        ("holds", attrgetter("holds")),
        ("live", attrgetter("live", "succeeded")),
        (
            "gang",
            attrgetter(
                "phase", "generation", "size", "restore_step", "incident", "awaits_fence", "job"
            ),
        ),
    ),
    "tasks": (
        _ANY,
        ("task place", attrgetter("host", "devices", "cpu_millis", "memory_mib", "generation")),
        ("task status", attrgetter("status")),
    ),
    "rosters": (_ANY, ("rosters", _whole)),
    "checkpoints": (_ANY, ("checkpoints", attrgetter("committed", "shards", "step", "gang")),),
}  # fmt: skip
