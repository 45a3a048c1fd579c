"""What an incident's log tells about those who wrote it: who was heard when, what they did upon
what, and how long that took. Read once, used by every execution.

Simulated time is log time, which neither jumps nor goes back.
"""

from __future__ import annotations

from bisect import bisect_right
from statistics import median_low

import msgspec

from coord.agent.reconcile import Fact
from coord.core.rosters import relay_of_actor
from coord.core.state import State
from coord.model.decisions import HostJoined
from coord.model.entry import Recorded
from coord.model.events import HeartbeatsSeen, HostRegistered, TaskFound

from .agents import fact_of
from .incident import Incident
from .order import PartialOrder
from .relayed import Rosters
from .working import paces

LATENCIES_MS = {Fact.STARTED: 100, Fact.EXITED: 100, Fact.REAPED: 20}
"""From an order to what comes of it, where the log shows none."""
REGISTRATION_MS = 500
RETRY_MS = 1_000
"""Until whoever waits for an answer sends again."""
TICK_MS = 100
"""From a deadline to the leader's noticing it."""

Awaited = tuple[str, Fact]
"""A task and what is told of it."""


class Frame(msgspec.Struct, frozen=True):
    """What a recorded frame of heartbeats says beside its slots."""

    absent: tuple[str, ...] = ()
    """Hosts that could not have been in it, for they were not registered then."""
    stale: tuple[tuple[int, int], ...] = ()
    """(slot, incarnation) of beats that did not count."""


class Recording:
    """The log, looked at as a whole. Positions count from 0."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.records = incident.records
        self.size = len(incident.records)
        self.order = PartialOrder(incident)
        self.times_ms = [record.now_ms for record in incident.records]
        self.told: dict[Awaited, list[int]] = {}
        """Positions at which a fact is told."""
        self.registrations: dict[str, list[int]] = {}
        self.decided: dict[tuple[str, int, int], int] = {}
        """(actor, incarnation, number) of a request or report -> where it took effect."""
        self.has_frames = False
        self._slots: dict[int, str] = {
            host.slot: host.host for host in incident.start_state().hosts.values()
        }
        self._signs: dict[str, list[int]] = {}
        """Host -> when there was a sign of life of it."""
        self.relayed: dict[int, tuple[int, ...]] = {}
        """By position of a relay's frame: slots that it vouched for."""
        self._rosters = Rosters(incident.start_state())
        for position, record in enumerate(incident.records):
            self._index(position, record)
        self.paces = paces(self.records)
        # What follows is filled in while the log is replayed once (`stage.Stage`).
        self.latency_ms: dict[Awaited, int] = {}
        self.asked_ms: dict[Awaited, int] = {}
        """When a launch, a stop or a burial was asked for, ..."""
        self.asked_of: dict[Awaited, str] = {}
        """... and of which host."""
        self.unexplained: dict[int, None] = {}
        """Positions of reports of what was over already, or never was."""
        self.upon_request: dict[int, None] = {}
        """Positions of exits that somebody had asked for."""
        self.abrupt: dict[int, None] = {}
        """Positions at which a task is reaped of which no exit was told."""
        self.noise: dict[int, None] = {}
        """Positions of reports that came late, twice or too early, or under an old name."""
        self.restarts: dict[int, None] = {}
        """Positions of registrations for which the agent had no reason but its own restart."""
        self.announced: dict[int, tuple[TaskFound, ...]] = {}
        """By position of a registration: what its agent had to say of tasks, had it said all."""
        self.frames: dict[int, Frame] = {}
        self.sound: dict[int, None] = {}
        """Marks of states in which every invariant held (`watching.Watch`)."""
        self.quiet_ms = 0
        """A host of which there was no sign for longer was cut off."""
        self.late_ms = TICK_MS
        """The longest that a deadline stood before the clock was advanced."""
        self.typical_ms = dict(LATENCIES_MS)

    def _index(self, position: int, record: Recorded) -> None:
        event = record.entry.event
        origin = record.entry.origin
        actor = origin.actor
        now_ms = record.now_ms
        relayed = self._rosters.heard(record)
        if record.accepted and not record.duplicate_of and not actor.startswith("node:"):
            self.decided[actor, origin.incarnation, origin.seq] = position
        for decision in record.decisions:
            if isinstance(decision, HostJoined):
                self._slots[decision.slot] = decision.host
        if isinstance(event, HeartbeatsSeen):
            self.has_frames = True
            for slot in event.slots:
                self._sign(self._slots.get(slot, ""), now_ms)
        elif relay_of_actor(actor):
            self.relayed[position] = relayed
            for slot in relayed:
                self._sign(self._slots.get(slot, ""), now_ms)
        elif isinstance(event, HostRegistered):
            self._sign(event.host, now_ms)
            if record.accepted and not record.duplicate_of:
                self.registrations.setdefault(event.host, []).append(position)
        elif actor.startswith("host:"):
            self._sign(actor[5:], now_ms)
            about = fact_of(event)
            if about is not None:
                task, fact = about
                fact = Fact.STARTED if fact is Fact.LAUNCH_FAILED else fact
                self.told.setdefault((task, fact), []).append(position)

    def host_at(self, slot: int) -> str:
        """The host that has this slot in the log."""
        return self._slots.get(slot, "")

    def _sign(self, host: str, now_ms: int) -> None:
        signs = self._signs.setdefault(host, [])
        if not signs or signs[-1] != now_ms:
            signs.append(now_ms)

    def ask(self, host: str, task: str, fact: Fact, now_ms: int) -> None:
        """Note that a host was told to bring this about."""
        if (task, fact) not in self.asked_ms:
            self.asked_ms[task, fact] = now_ms
            self.asked_of[task, fact] = host

    def settle(self, state: State) -> None:
        """Once all was replayed: what is typical."""
        settings = state.meta.settings
        self.quiet_ms = min(2 * settings.heartbeat_ms, settings.suspect_ms - 1)
        by_fact: dict[Fact, list[int]] = {}
        for (_, fact), latency_ms in self.latency_ms.items():
            by_fact.setdefault(fact, []).append(latency_ms)
        for fact, found in by_fact.items():
            self.typical_ms[fact] = median_low(found)

    def silent(self, host: str, now_ms: int) -> bool:
        """Whether the log shows that host to be cut off at that time."""
        return self.silent_until_ms(host, now_ms) != now_ms

    def silent_until_ms(self, host: str, now_ms: int) -> int:
        """When it is heard again; `now_ms` when it is heard now, -1 when never again."""
        signs = self._signs.get(host)
        if not self.has_frames or not signs:
            return now_ms
        at = bisect_right(signs, now_ms)
        last_ms = signs[at - 1] if at else signs[0]
        if last_ms == now_ms:
            return now_ms
        if at < len(signs):
            return signs[at] if at and signs[at] - last_ms > self.quiet_ms else now_ms
        return -1 if self.times_ms[-1] - last_ms > self.quiet_ms else now_ms

    def cut_short(self, host: str, task: str, fact: Fact) -> bool:
        """Whether nothing was told because the host could not be heard when that was due: it may
        well have come true. Otherwise it never did, or not before the log ends."""
        asked_ms = self.asked_ms.get((task, fact))
        if asked_ms is None:
            return False
        due_ms = asked_ms + self.typical_ms.get(fact, TICK_MS)
        return due_ms < self.times_ms[-1] and self.silent(host, due_ms)

    def latency(self, task: str, fact: Fact) -> int:
        found = self.latency_ms.get((task, fact))
        return found if found is not None else self.typical_ms.get(fact, TICK_MS)
