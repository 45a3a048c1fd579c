"""A finding as a script for a whole cluster: what befalls it when, and which messages are late.

Only what nobody in the cluster decides is scripted: machines and their power, requests of people,
processes that end by themselves, elections, clocks, silence. What agents do of their own accord
they do by themselves. An act waits until the reports that stood before it in the bad order were
seen, so that a cluster with a pace of its own comes to the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from coord.core.state import State
from coord.model.decisions import HostJoined, HostLost
from coord.model.entry import Recorded
from coord.model.events import (
    AnyEvent,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    JobSubmitted,
    LaunchFailed,
    LeaderElected,
    PreemptionNoticed,
    ShardSaved,
    TaskExited,
    TaskStarted,
    TaskUnkillable,
)
from coord.model.settings import Settings

from .alignment import identity
from .findings import Finding, inverted_pairs
from .incident import Incident
from .relayed import Rosters
from .schedule import (
    AgentCrash,
    AnyChange,
    ClockJump,
    Drop,
    Duplicate,
    LeaderChange,
    LoseHosts,
    Pause,
    SnapshotRestore,
)

FOREVER_S = 3_600


class Act(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """Base of all acts: `at_ms` after the beginning, and once each of `after` was seen so often."""

    at_ms: int
    after: tuple[tuple[str, int], ...]


class PowerOn(Act, frozen=True):
    host: str


class PowerOff(Act, frozen=True):
    host: str


class PowerCycle(Act, frozen=True):
    host: str


class CutOff(Act, frozen=True):
    """Nothing arrives from or at the host, and nobody is told."""

    host: str


class Reconnect(Act, frozen=True):
    host: str


class AgentRestart(Act, frozen=True):
    host: str


class AgentPause(Act, frozen=True):
    host: str
    ms: int


class EndRank(Act, frozen=True):
    """The process of `job/role/index` ends by itself, whatever its generation."""

    task: str
    exit_code: int
    signal: int
    oom: bool


class Ask(Act, frozen=True):
    """A person asks."""

    event: AnyEvent


class Preempt(Act, frozen=True):
    host: str
    grace_ms: int


class FailLaunch(Act, frozen=True):
    """The next launch on the host fails."""

    host: str
    error: str
    user_error: bool


class NewLeader(Act, frozen=True):
    """Leadership goes to another server."""


class RestartServers(Act, frozen=True):
    """Every server writes a snapshot and starts from it."""


class JumpClock(Act, frozen=True):
    """Of the leader."""

    ms: int


class StallLeader(Act, frozen=True):
    """Its own events are late."""

    ms: int


class Hold(msgspec.Struct, frozen=True):
    """The first report of this kind about `task` (without generation; empty for a host's own) takes
    `ms` longer, and with it all that its host sends after it."""

    host: str
    kind: str
    task: str
    ms: int


class HostOffer(msgspec.Struct, frozen=True):
    host: str
    devices: int
    cpu_millis: int
    memory_mib: int


class Scenario(msgspec.Struct, frozen=True):
    """`beyond` names what of the finding no script can bring about; such a one is not tried."""

    hosts: tuple[HostOffer, ...]
    settings: Settings
    servers: int
    acts: tuple[Act, ...]
    holds: tuple[Hold, ...]
    lasts_ms: int
    beyond: tuple[str, ...] = ()


def scenario_of(finding: Finding) -> Scenario:
    """The script that leads a cluster along the finding's bad order."""
    return _Script(finding).scenario()


def seat_of(event: AnyEvent) -> str:
    """`job/role/index` of the task that an event is about; empty for none."""
    return str(getattr(event, "task", "")).partition("#")[0]


def report_name(event: AnyEvent) -> str:
    """What acts wait for: `TaskStarted digits/trainer/0`."""
    return f"{type(event).__name__} {seat_of(event) or getattr(event, 'host', '')}".rstrip()


AWAITED = (HostRegistered, TaskStarted, LaunchFailed)
"""Reports that an act waits for."""


When = tuple[int, tuple[tuple[str, int], ...]]
"""The fields that every act has."""


class _Script:
    def __init__(self, finding: Finding) -> None:
        self._finding = finding
        self._incident: Incident = finding.incident
        violation = finding.run.violation
        last = violation.at if violation else len(finding.run.records) - 1
        self._records = finding.run.records[: last + 1]
        self._begin_ms = self._records[0].entry.wall_ms
        self._seen: dict[str, int] = {}
        self._acts: list[Act] = []
        self._beyond: list[str] = []
        self._boots: dict[str, str] = {}
        self._offers: dict[str, HostOffer] = {}
        self._slots: dict[int, str] = {}
        self._rosters = Rosters(State())
        self._heard_ms: dict[str, int] = {}
        self._away: dict[str, None] = {}
        self._settings = Settings()
        self._elections = 0
        self._late = dict.fromkeys(self._late_reports())

    def scenario(self) -> Scenario:
        if self._incident.header.start_index > 1:
            self._beyond.append("its log begins in the middle of a history")
        for record in self._records:
            self._add(record)
        holds = tuple(hold for change in self._changes() for hold in self._holds(change))
        for change in self._changes():
            self._fault(change)
        several = self._elections > 1 or any(isinstance(act, NewLeader) for act in self._acts)
        return Scenario(
            hosts=tuple(self._offers.values()),
            settings=self._settings,
            servers=3 if several else 1,
            acts=tuple(sorted(filter(self._is_there, self._acts), key=lambda act: act.at_ms)),
            holds=holds,
            lasts_ms=self._records[-1].entry.wall_ms - self._begin_ms,
            beyond=tuple(self._beyond),
        )

    def _is_there(self, act: Act) -> bool:
        """A change may name hosts whose registration the smallest log does not need."""
        host = getattr(act, "host", None)
        return host is None or host in self._offers

    def _changes(self) -> tuple[AnyChange, ...]:
        return self._finding.schedule.changes

    # What the log tells of the outside

    def _add(self, record: Recorded) -> None:
        event = record.entry.event
        at_ms = record.entry.wall_ms - self._begin_ms
        for decision in record.decisions:
            if isinstance(decision, HostJoined):
                self._slots[decision.slot] = decision.host
            elif isinstance(decision, HostLost):
                self._silence(decision.host)
        self._hear(record, at_ms)
        self._act(record, at_ms)
        if isinstance(event, AWAITED) and record.accepted:
            name = report_name(event)
            self._seen[name] = self._seen.get(name, 0) + 1

    def _act(self, record: Recorded, at_ms: int) -> None:
        event = record.entry.event
        when = (at_ms, self._after())
        if isinstance(event, ClusterConfigured):
            self._settings = event.settings
        elif isinstance(event, LeaderElected):
            self._elections += 1
            if self._elections > 1:
                self._acts.append(NewLeader(*when))
        elif isinstance(event, HostRegistered):
            self._registered(event, when)
        elif record.entry.origin.actor.startswith("host:"):
            self._reported(event, when)
        elif record.entry.origin.actor.startswith("client:"):
            self._acts.append(Ask(*when, self._asked(event)))

    def _reported(self, event: AnyEvent, when: When) -> None:
        """Of what agents report, whatever they did not do themselves."""
        if isinstance(event, TaskExited) and not event.expected:
            ended = EndRank(*when, seat_of(event), event.exit_code, event.signal, event.oom)
            self._acts.append(ended)
        elif isinstance(event, LaunchFailed):
            asked = max((act.at_ms for act in self._acts if isinstance(act, Ask)), default=0)
            self._acts.append(FailLaunch(asked, (), event.host, event.error, event.user_error))
        elif isinstance(event, PreemptionNoticed):
            self._acts.append(Preempt(*when, event.host, event.grace_ms))
        elif isinstance(event, TaskUnkillable):
            self._beyond.append("a process that survives SIGKILL")

    def _after(self) -> tuple[tuple[str, int], ...]:
        return tuple(self._seen.items())

    def _registered(self, event: HostRegistered, when: When) -> None:
        host = event.host
        if host not in self._offers:
            self._offers[host] = HostOffer(host, event.devices, event.cpu_millis, event.memory_mib)
            self._acts.append(PowerOn(*when, host))
        elif self._boots.get(host) != event.boot:
            self._acts.append(PowerCycle(*when, host))
        elif host in self._away:
            self._acts.append(Reconnect(*when, host))
        else:
            self._acts.append(AgentRestart(*when, host))
        self._away.pop(host, None)
        self._boots[host] = event.boot

    def _asked(self, event: AnyEvent) -> AnyEvent:
        if not isinstance(event, JobSubmitted):
            return event
        roles = tuple(
            replace(role, env={**role.env, **self._habits(event.spec.name)})
            for role in event.spec.roles
        )
        return replace(event, spec=replace(event.spec, roles=roles))

    def _habits(self, job: str) -> dict[str, str]:
        """Ranks run until they are ended, and save as often as the log says."""
        saved = [
            record.entry.event.step
            for record in self._records
            if isinstance(record.entry.event, ShardSaved)
            and record.entry.event.task.startswith(f"{job}/")
        ]
        return {
            "SIM_LAST_STEP": "0",
            "SIM_STEP_S": "0.5",
            "SIM_CHECKPOINT_EVERY": str(min(saved, default=0)),
            "SIM_COLLECTIVE_S": str(FOREVER_S),
            "SIM_ON_SIGTERM": "die",
        }

    def _hear(self, record: Recorded, at_ms: int) -> None:
        event = record.entry.event
        relayed = self._rosters.heard(record)
        if relayed or isinstance(event, HeartbeatsSeen):
            for slot in event.slots if isinstance(event, HeartbeatsSeen) else relayed:
                if slot in self._slots:
                    self._heard_ms[self._slots[slot]] = at_ms
        elif record.entry.origin.actor.startswith("host:"):
            host = record.entry.origin.actor[5:]
            if host in self._away:
                self._acts.append(Reconnect(at_ms, self._after(), host))
                del self._away[host]
            self._heard_ms[host] = at_ms
        elif isinstance(event, HostRegistered):
            self._heard_ms[event.host] = at_ms

    def _silence(self, host: str) -> None:
        """It was lost: from when it was last heard on, nothing came from it."""
        starts = tuple(
            (name, count) for name, count in self._seen.items() if name not in self._late
        )
        self._acts.append(CutOff(self._heard_ms.get(host, 0) + 1, starts, host))
        self._away[host] = None

    # What the schedule changes

    def _late_reports(self) -> Iterator[str]:
        for change in self._changes():
            late = [pair[0] for pair in inverted_pairs(change)]
            for at in [change.at] if isinstance(change, Drop) else late:
                yield report_name(self._incident.records[at].entry.event)

    def _holds(self, change: AnyChange) -> Iterator[Hold]:
        if isinstance(change, Drop):
            yield from self._sent_again(change.at)
        for late, early in inverted_pairs(change):
            record = self._incident.records[late]
            event, actor = record.entry.event, record.entry.origin.actor
            ms = max(self._incident.records[early].entry.wall_ms - record.entry.wall_ms, 1)
            if actor.startswith("host:") or isinstance(event, HostRegistered):
                host = str(getattr(event, "host", ""))
                yield Hold(host, type(event).__name__, seat_of(event), ms)
            elif actor.startswith("node:"):
                at_ms = record.entry.wall_ms - self._begin_ms
                self._acts.append(StallLeader(at_ms, (), ms))
            # A person who asks later asks where the bad order has it.

    def _sent_again(self, at: int) -> Iterator[Hold]:
        """On a connection that keeps its order, a message that is lost is one that comes late."""
        lost = self._incident.records[at]
        event = lost.entry.event
        again_ms = [
            record.entry.wall_ms
            for record in self._records
            if identity(record) == identity(lost) and record.entry.wall_ms > lost.entry.wall_ms
        ]
        if again_ms and lost.entry.origin.actor.startswith("host:"):
            ms = again_ms[0] - lost.entry.wall_ms
            yield Hold(lost.entry.origin.actor[5:], type(event).__name__, seat_of(event), ms)
        else:
            self._beyond.append("a message that is lost and not sent again")

    def _fault(self, change: AnyChange) -> None:
        at = getattr(change, "at", 0)
        records = self._incident.records
        wall_ms = records[min(at, len(records) - 1)].entry.wall_ms
        when: When = (max(wall_ms - self._begin_ms - 1, 0), ())
        if isinstance(change, AgentCrash):
            self._acts.append(AgentRestart(*when, change.host))
            if not change.keeps_unsent:
                self._beyond.append("an agent that loses its notes")
        elif isinstance(change, Pause):
            self._acts.append(AgentPause(*when, change.host, change.ms))
        elif isinstance(change, LeaderChange):
            self._acts.append(NewLeader(*when))
        elif isinstance(change, SnapshotRestore):
            self._acts.append(RestartServers(*when))
        elif isinstance(change, ClockJump):
            self._acts.append(JumpClock(*when, change.ms))
        elif isinstance(change, LoseHosts):
            self._acts += [PowerOff(*when, host) for host in change.hosts]
        elif isinstance(change, Duplicate):
            self._beyond.append("one message that arrives twice")
