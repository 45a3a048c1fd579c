"""The leader: gives every event its place in the log, applies it, and hands on what was decided.

This is the core as it runs on a server, called as the node calls it: `apply` with an index, a term,
the leader's clock and an origin. What the model needs to know it reads off the records and rows.
"""

from __future__ import annotations

from collections.abc import Callable

from coord.core.machine import apply, next_due_ms
from coord.core.state import TABLES, State, new_state
from coord.model.decisions import Decision
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent, ClusterConfigured, LeaderElected
from coord.model.settings import Settings
from coord_sim.fleet.agenda import Agenda

START_WALL_MS = 1_700_000_000_000
TERM = 1
OPERATOR = "client:operator"
NODE = "node:1"

Watch = Callable[[Decision], None]


class Leader:
    """`decided` gets each decision; `plans_changed` the names of hosts with a newer plan. Neither
    may send anything before it returns: what follows is put on the agenda."""

    def __init__(
        self, agenda: Agenda, decided: Watch, plans_changed: Callable[[list[str]], None]
    ) -> None:
        self.state: State = new_state()
        self.entries = 0
        self.rejections: dict[str, int] = {}
        self._agenda = agenda
        self._decided = decided
        self._plans_changed = plans_changed
        self._seq: dict[str, int] = {}
        self._versions: dict[str, int] = {}

    def open(self, settings: Settings) -> None:
        """The first two entries of a cluster."""
        self.own(LeaderElected(1, TERM))
        self.own(ClusterConfigured("fleet", settings))

    def own(self, event: AnyEvent) -> Recorded:
        """What the leader itself records."""
        return self._apply(Origin(NODE, TERM, self._next(NODE)), event)

    def ask(self, event: AnyEvent, actor: str = OPERATOR) -> Recorded:
        """A request, by a person or by an agent that has no incarnation yet."""
        return self._apply(Origin(actor, 0, self._next(actor)), event)

    def report(self, host: str, incarnation: int, seq: int, event: AnyEvent) -> Recorded:
        """An agent's report, the `seq`-th of its incarnation."""
        return self._apply(Origin(f"host:{host}", incarnation, seq), event)

    def next_due_ms(self) -> int | None:
        """When the core wants to be told the time."""
        return next_due_ms(self.state)

    def forget_changes(self) -> None:
        """Nobody writes the rows of this state to a disk."""
        for name in TABLES:
            self.state.table(name).changed = {}

    def _next(self, actor: str) -> int:
        self._seq[actor] = self._seq.get(actor, 0) + 1
        return self._seq[actor]

    def _apply(self, origin: Origin, event: AnyEvent) -> Recorded:
        state = self.state
        wall_ms = START_WALL_MS + self._agenda.now_ms
        record = apply(state, Entry(state.meta.applied_index + 1, TERM, wall_ms, origin, event))
        self.entries += 1
        if record.rejection:
            self.rejections[record.rejection] = self.rejections.get(record.rejection, 0) + 1
        if state.hosts.changed:
            self._look_for_plans()
        for decision in record.decisions:
            self._decided(decision)
        return record

    def _look_for_plans(self) -> None:
        hosts, versions = self.state.hosts, self._versions
        newer = []
        for name in hosts.changed:
            version = hosts[name].plan_version
            if versions.get(name) != version:
                versions[name] = version
                newer.append(name)
        hosts.changed = {}
        if newer:
            self._plans_changed(newer)
