"""A state machine under test, and beside it a twin that forgets whatever is derived.

The twin is rebuilt from its rows before every entry, and gets entries that have travelled as bytes.
If it ever decides anything else, then a server that restarted would part from the others: something
depends on what the rows do not hold.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from coord.codec import UnencodableMessage, decode_batch, encode_batch
from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.plans import host_plan
from coord.core.state import TABLES, State, new_state, state_digest, state_from_rows, state_rows
from coord.model.entry import Batch, Entry, Origin, Recorded, Submission
from coord.model.events import AnyEvent, LeaderElected
from coord.model.plans import HostPlan

from .violation import CoreViolation

START_WALL_MS = 1_000_000
VERSIONED = "a plan never changes under the same version, and versions never go back"
RELOADED = "a machine reloaded from its rows decides the same"


class Driver:
    """Gives each event its place in the log: index, term, clock, origin."""

    def __init__(self, *, twin: bool = True, check: bool = True) -> None:
        self.state: State = new_state()
        self.twin: State | None = new_state() if twin else None
        self.check = check
        self.wall_ms = START_WALL_MS
        self.entries: list[Entry] = []
        self.records: list[Recorded] = []
        self._sequences: dict[tuple[str, int], int] = {}
        self._plans: dict[str, HostPlan] = {}
        self._known: dict[str, None] = {}
        """Ids of everything that may be a cause by now."""

    def origin_of(self, event: AnyEvent) -> Origin:
        """As the sender would number it: reports by their host, requests by a client."""
        host = getattr(event, "host", "")
        incarnation = getattr(event, "incarnation", None)
        if host and incarnation is not None:
            known = self.state.hosts.get(host)
            if known is not None and known.incarnation == incarnation:
                return Origin(f"host:{host}", incarnation, known.report_seq + 1)
            return Origin(f"host:{host}", incarnation, 1)
        if type(event).__name__ in NODE_EVENTS:
            return Origin("node:1", self.state.meta.term, self._next("node:1", 0))
        return Origin("client:test", 0, self._next("client:test", 0))

    def _next(self, actor: str, incarnation: int) -> int:
        self._sequences[actor, incarnation] = self._sequences.get((actor, incarnation), 0) + 1
        return self._sequences[actor, incarnation]

    def send(
        self, event: AnyEvent, *, origin: Origin | None = None, term: int | None = None
    ) -> Recorded:
        """Apply one event now, on the machine and its twin, and check what must hold."""
        if term is None:
            term = event.term if isinstance(event, LeaderElected) else self.state.meta.term
        entry = Entry(
            self.state.meta.applied_index + 1,
            term,
            self.wall_ms,
            origin or self.origin_of(event),
            event,
        )
        return self.apply(entry)

    def apply(self, entry: Entry) -> Recorded:
        self.entries.append(entry)
        before = _rows(self.state) if self.check else {}
        record = apply(self.state, entry)
        self.records.append(record)
        if self.check:
            self._look_at(record, before)
        self._apply_to_twin(entry, record)
        return record

    def _look_at(self, record: Recorded, before: dict[str, dict[str, object]]) -> None:
        entry = record.entry
        found = violations(self.state)
        if found:
            invariant, _, offender = found[0].partition(": ")
            raise CoreViolation(invariant, f"{offender} after {entry}")
        if record.rejection or record.duplicate_of:
            if record.decisions:
                raise CoreViolation("a rejection decides nothing", f"{record}")
            if _rows(self.state) != before:
                raise CoreViolation(
                    "a rejection changes nothing", f"{record.rejection} changed it: {entry}"
                )
        self._look_at_plans()
        self._known[str(entry.index)] = None
        for ordinal, decision in enumerate(record.decisions):
            if not decision.causes:
                raise CoreViolation("every decision has a cause", f"{decision} has none")
            for cause in decision.causes:
                if cause not in self._known:
                    raise CoreViolation("every cause is there", f"{cause} of {decision} is not")
            self._known[f"{entry.index}.{ordinal}"] = None

    def _look_at_plans(self) -> None:
        """A plan never changes under the same version, and versions never go back (races.md 18)."""
        for name in self.state.hosts:
            plan, before = host_plan(self.state, name), self._plans.get(name)
            if before is not None and plan != before:
                was, now = _version(before), _version(plan)
                if now <= was:
                    raise CoreViolation(VERSIONED, f"{name} at {was}, then at {now}: {plan}")
            self._plans[name] = plan

    def _apply_to_twin(self, entry: Entry, record: Recorded) -> None:
        if self.twin is None:
            return
        self.twin = state_from_rows(state_rows(self.twin))
        again = apply(self.twin, travelled(entry))
        if again != record:
            raise CoreViolation(RELOADED, f"{again} for {record}")
        if state_digest(self.twin) != state_digest(self.state):
            raise CoreViolation(RELOADED, f"its state differs after {entry}")
        for host in self.state.hosts:
            if host_plan(self.twin, host) != host_plan(self.state, host):
                raise CoreViolation(RELOADED, f"the plan of {host} differs after {entry}")


def _version(plan: HostPlan) -> tuple[int, int]:
    return (plan.incarnation, plan.version)


def _rows(state: State) -> dict[str, dict[str, object]]:
    """All but what remembers that something was asked: a rejection must leave this as it was."""
    hosts = {
        name: replace(host, report_seq=0, report_index=0) for name, host in state.hosts.items()
    }
    others = {name: dict(state.table(name)) for name in TABLES if name not in ("hosts", "requests")}
    return {"hosts": hosts, **others}


def travelled(entry: Entry) -> Entry:
    """The same entry, encoded for the log and decoded again: equal, and nowhere the same.

    What protobuf cannot hold, and so never enters a log, goes through JSON.
    """
    submission = Submission(entry.origin, entry.event)
    try:
        batch = decode_batch(encode_batch(Batch(entry.term, 1, entry.wall_ms, (submission,))))
    except UnencodableMessage:
        return msgspec.json.decode(msgspec.json.encode(entry), type=Entry)
    (again,) = batch.submissions
    return Entry(entry.index, batch.term, batch.wall_ms, again.origin, again.event)


NODE_EVENTS = ("ClusterConfigured", "LeaderElected", "ClockAdvanced", "HeartbeatsSeen")
