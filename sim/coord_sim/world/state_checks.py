"""What must hold of the state machine: every invariant after every entry, one history on all nodes.

Each entry is applied a second time here, by itself, on a state that belongs to no node. Nodes agree
with it in the digest of every entry they apply, and now and then in every row. So an invariant need
be looked at once an index, and only when a row it reads has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.state import State, Table, new_state, state_digest
from coord.model import decisions as d
from coord.model.entry import Recorded
from coord.model.events import JobSubmitted
from coord_sim.core_world.restore_points import SENTENCE, RestorePoints
from coord_sim.world.outcome import Violation

READ_TABLES = ("hosts", "jobs", "gangs", "tasks", "checkpoints", "incidents")
"""What invariants look at. Requests, and when hosts were heard, are in none."""
UNREAD_FIELDS = {
    "gangs": ("best_step", "progress_ms", "step"),
    "hosts": ("report_index", "report_seq"),
    "tasks": ("progress_ms", "step"),
}
"""Of rows of these tables no invariant looks at these: most entries report progress alone."""
COMPARED_EVERY = 128
"""Entries of a node between two comparisons of all rows."""

Look = Callable[[Recorded, State], None]


class StateChecks:
    """Fed with what each node applies, in its order. Raises Violation."""

    def __init__(self) -> None:
        self.state = new_state()
        """After `self.records`, applied here."""
        self.records: list[Recorded] = []
        """Entry 1 first: what any node has applied."""
        self.looks: list[Look] = []
        """Called after each new entry, once, with the state right after it."""
        self.checked = 0
        """Entries after which the invariants were looked at."""
        self.compared = 0
        self._compared_at: dict[int, int] = {}
        self._rows: dict[str, dict[str, Any]] = {name: {} for name in READ_TABLES}
        """As of the last look."""
        self._decided = _Decided()

    def applied(self, node: int, records: tuple[Recorded, ...], state: State) -> None:
        """A node applied these; `state` is its own, after the last of them."""
        for record in records:
            index = record.entry.index
            if index == len(self.records) + 1:
                self._first_seen(node, record)
            elif index > len(self.records) + 1:
                raise Violation(
                    "every entry is applied by a node that applied the one before",
                    f"node {node} applied {index}, the newest anywhere was {len(self.records)}",
                )
            elif self.records[index - 1].digest != record.digest:
                raise _difference(node, record, self.records[index - 1])
        if records:
            self._compare_now_and_then(node, records[-1].entry.index, state)

    def compare(self, node: int, state: State) -> None:
        """All rows of a node with those here; nothing when it is behind."""
        if state.meta.applied_index != len(self.records):
            return
        self.compared += 1
        self._compared_at[node] = len(self.records)
        if state_digest(state) != state_digest(self.state):
            raise Violation(
                "nodes that applied the same entries hold the same rows",
                f"node {node} at {len(self.records)}: {_differing_tables(state, self.state)}",
            )

    def _first_seen(self, node: int, record: Recorded) -> None:
        index = record.entry.index
        derived = apply(self.state, record.entry)
        self.records.append(derived)
        if derived.digest != record.digest:
            raise _difference(node, record, derived)
        if self._take_changed():
            self.checked += 1
            found = violations(self.state)
            if found:
                raise Violation(
                    found[0].partition(": ")[0],
                    f"after entry {index} ({type(record.entry.event).__name__}): "
                    + "; ".join(found),
                )
        new = not (derived.rejection or derived.duplicate_of)
        if new and isinstance(record.entry.event, JobSubmitted):
            self._decided.submitted(record.entry.event.spec.name)
        if derived.decisions:
            self._decided.look(derived)
        for look in self.looks:
            look(derived, self.state)

    def _take_changed(self) -> bool:
        """Whether a row has changed, since the last call, in what an invariant may look at."""
        found = False
        for name in READ_TABLES:
            table = self.state.table(name)
            if table.changed:
                found = _changed(table, self._rows[name], UNREAD_FIELDS.get(name, ())) or found
                table.changed = {}
        self.state.requests.changed = {}
        return found

    def _compare_now_and_then(self, node: int, index: int, state: State) -> None:
        if index - self._compared_at.get(node, 0) >= COMPARED_EVERY:
            self.compare(node, state)


class _Decided:
    """What no decision may take back."""

    def __init__(self) -> None:
        self._incarnations: Counter[str] = Counter()
        self._generations: Counter[tuple[str, int]] = Counter()
        self._restore_points = RestorePoints()
        self._submissions: Counter[str] = Counter()
        self._ended: dict[tuple[str, int], str] = {}

    def look(self, record: Recorded) -> None:
        for decision in record.decisions:
            self._restore_points, wrong = self._restore_points.after(decision)
            if wrong:
                raise Violation(SENTENCE, f"{wrong}, {_told(record, decision)}")
            if isinstance(decision, d.HostJoined):
                if decision.incarnation <= self._incarnations[decision.host]:
                    raise Violation("incarnations only grow", _told(record, decision))
                self._incarnations[decision.host] = decision.incarnation
            elif isinstance(decision, d.TasksPlaced):
                self._placed(record, decision)
            elif isinstance(decision, d.JobCompleted | d.JobFailed | d.JobCancelled):
                job = self._job(decision.job)
                if job in self._ended:
                    raise Violation("a finished job stays finished", _told(record, decision))
                self._ended[job] = type(decision).__name__

    def _placed(self, record: Recorded, decision: d.TasksPlaced) -> None:
        job = self._job(decision.job)
        if job in self._ended:
            raise Violation("nothing of a finished job is placed", _told(record, decision))
        if decision.generation <= self._generations[job]:
            raise Violation("generations only grow", _told(record, decision))
        self._generations[job] = decision.generation

    def _job(self, name: str) -> tuple[str, int]:
        """A name and which job of that name it is: one that is forgotten frees its name."""
        return name, self._submissions[name]

    def submitted(self, name: str) -> None:
        self._submissions[name] += 1
        self._restore_points = self._restore_points.without(name)


def _changed(table: Table[Any], known: dict[str, Any], unread: tuple[str, ...]) -> bool:
    """Bring what is known up to date; whether more has changed than those fields."""
    found = False
    for key in table.changed:
        before, now = known.get(key), table.get(key)
        if now is None:
            known.pop(key, None)
        else:
            known[key] = now
        if before is None or now is None or not unread:
            found = found or before is not now
            continue
        same = replace(now, **{field: getattr(before, field) for field in unread})
        found = found or same != before
    return found


def _told(record: Recorded, decision: d.Decision) -> str:
    return f"entry {record.entry.index}: {decision}"


def _difference(node: int, record: Recorded, other: Recorded) -> Violation:
    same = record.entry == other.entry
    what = "the same entry led to other decisions" if same else "another entry stands there"
    return Violation(
        "digests are equal at equal index",
        f"node {node} at {record.entry.index}: {what}\n  here: {record}\n  elsewhere: {other}",
    )


def _differing_tables(one: State, other: State) -> str:
    found = []
    for name in (*READ_TABLES, "requests"):
        here, there = one.table(name), other.table(name)
        keys = sorted(key for key in {**here, **there} if here.get(key) != there.get(key))
        if keys:
            found.append(f"{name} {', '.join(keys[:4])}")
    if one.last_seen_ms != other.last_seen_ms:
        found.append("when hosts were heard")
    return "; ".join(found) or "what is derived of the whole"
