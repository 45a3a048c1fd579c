"""From recorded entries to the lines that a person on call reads. Pure; memory does not grow with
the number of entries: it keeps open incidents and where the tasks of each gang are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from coord.cli.describe import Said, hosts_and_tasks, said_of_decision, said_of_event
from coord.model import decisions as d
from coord.model import events as e
from coord.model.entities import Incident
from coord.model.entry import Recorded
from coord.model.ids import decision_cause, event_cause

COUNTED = frozenset(
    (
        e.HeartbeatsSeen,
        e.ClockAdvanced,
        e.ProgressReported,
        e.CheckpointBegun,
        e.ShardSaved,
    )
)
"""Listed only when refused or when something was decided upon them."""


def only_counted(recorded: Recorded) -> bool:
    """Routine: nothing was refused and nothing decided upon it."""
    return (
        not recorded.decisions and not recorded.rejection and type(recorded.entry.event) in COUNTED
    )


PHASES = ("detection", "stop", "placement", "start", "resume")


class Line(msgspec.Struct, frozen=True):
    """One event or decision. `ref` is what causes name it by: `17` or `17.0`.

    `at_ms` is log time since the start of the file, `wall_ms` the leader's clock; `rejection` and
    `duplicate_of` are the event's.
    """

    ref: str
    index: int
    at_ms: int
    wall_ms: int
    kind: str
    what: str
    subject: str
    text: str
    causes: tuple[str, ...] = ()
    rejection: str = ""
    duplicate_of: int = 0
    job: str = ""
    hosts: tuple[str, ...] = ()


class IncidentReport(msgspec.Struct, frozen=True):
    """An incident and what it cost. Phases in milliseconds of log time, -1 where not reached.

    `ref` and `at_ms` are those of its closing, or -1 and empty while it is open; `opened` is the
    decision that opened it, empty when that was before the file. `next_generation` is 0 and
    `restored_step` -1 when nothing was placed again.
    """

    kind: str
    incident: int
    job: str
    gang: str
    generation: int
    cause: str
    subject: str
    detail: str
    opened: str
    opened_ms: int
    hosts: tuple[str, ...]
    ref: str = ""
    index: int = 0
    at_ms: int = -1
    detection_ms: int = -1
    stop_ms: int = -1
    placement_ms: int = -1
    start_ms: int = -1
    resume_ms: int = -1
    total_ms: int = -1
    lost_steps: int = 0
    next_generation: int = 0
    restored_step: int = -1
    resolved: bool = False


Item = Line | IncidentReport


class Narrowing(msgspec.Struct, frozen=True):
    """What to tell of. Empty and 0 mean no limit; both ends are included."""

    job: str = ""
    host: str = ""
    first: int = 0
    last: int = 0
    everything: bool = False
    """Heartbeats, clock ticks, progress and shards too."""
    refs: frozenset[str] | None = None
    """Only these events and decisions, as causes name them."""
    nothing: bool = False
    """Only count."""

    def wants_index(self, index: int) -> bool:
        return index >= self.first and (not self.last or index <= self.last)

    def reaches(self, ref: str) -> bool:
        """Whether `ref` stands no later than the last index."""
        return not self.last or int(ref.partition(".")[0] or 0) <= self.last

    def wants(self, job: str, hosts: tuple[str, ...]) -> bool:
        return (not self.job or self.job == job) and (not self.host or self.host in hosts)


EVERYTHING_THAT_MATTERED = Narrowing()


class Totals(msgspec.Struct):
    """Counted over the whole file, however narrow the telling."""

    entries: int = 0
    heartbeats: int = 0
    decisions: int = 0
    refused: int = 0
    duplicates: int = 0
    incidents: int = 0
    events: dict[str, int] = {}
    first_index: int = 0
    last_index: int = 0
    lasted_ms: int = 0


class Timeline:
    """Feed it every entry in order with `add`; it answers with what there is to tell.

    `start_ms` is the log time that counts as zero; None for that of the first entry.
    `task_hosts` and `open_incidents` are what the state before the first entry knows.
    """

    def __init__(
        self,
        narrowing: Narrowing = EVERYTHING_THAT_MATTERED,
        *,
        start_ms: int | None = None,
        task_hosts: Mapping[str, str] | None = None,
        open_incidents: Iterable[Incident] = (),
    ) -> None:
        self.totals = Totals()
        self._narrowing = narrowing
        self._start_ms = start_ms
        self._counts: dict[type[e.Event], int] = {}
        self._gang_tasks: dict[str, dict[str, str]] = {"": dict(task_hosts or {})}
        self._open: dict[int, IncidentReport] = {}
        for incident in open_incidents:
            self._open[incident.incident] = _report_of(incident, start_ms or 0, self._hosts_of)

    def add(self, recorded: Recorded) -> list[Item]:
        """What to tell of this entry: its event, then its decisions; empty for most."""
        event = recorded.entry.event
        event_type = type(event)
        totals = self.totals
        if self._start_ms is None:
            self._start_ms = recorded.now_ms
        if not totals.entries:
            totals.first_index = recorded.entry.index
        totals.entries += 1
        self._counts[event_type] = self._counts.get(event_type, 0) + 1
        if event_type is e.HeartbeatsSeen:
            totals.heartbeats += len(event.slots)  # type: ignore[union-attr]
        totals.last_index = recorded.entry.index
        totals.lasted_ms = recorded.now_ms - self._start_ms
        totals.duplicates += bool(recorded.duplicate_of)
        if not self._narrowing.everything and only_counted(recorded):
            return []
        totals.decisions += len(recorded.decisions)
        totals.refused += bool(recorded.rejection)
        if self._narrowing.nothing:
            self._count_incidents(recorded)
            return []
        return self._tell(recorded)

    @property
    def open_count(self) -> int:
        """Incidents without an end so far, wanted or not."""
        return len(self._open)

    def still_open(self) -> list[IncidentReport]:
        """Incidents without an end so far, oldest first."""
        return [
            report
            for _, report in sorted(self._open.items())
            if self._narrowing.wants(report.job, report.hosts)
            and self._narrowing.reaches(report.opened)
        ]

    def finish(self) -> Totals:
        """The totals, with events by name, most frequent first."""
        by_count = sorted(self._counts.items(), key=lambda item: (-item[1], item[0].__name__))
        self.totals.events = {kind.__name__: count for kind, count in by_count}
        return self.totals

    def _tell(self, recorded: Recorded) -> list[Item]:
        index, wall_ms = recorded.entry.index, recorded.entry.wall_ms
        at_ms = recorded.now_ms - (self._start_ms or 0)
        said = self._with_hosts(said_of_event(recorded.entry.event))
        event_line = Line(
            event_cause(index), index, at_ms, wall_ms, "event", type(recorded.entry.event).__name__,
            said.subject, said.text, (), recorded.rejection, recorded.duplicate_of,
            said.job, said.hosts,
        )  # fmt: skip
        items: list[Item] = []
        for ordinal, decision in enumerate(recorded.decisions):
            self._learn(decision)
            said = self._with_hosts(said_of_decision(decision, recorded.now_ms))
            line = Line(
                decision_cause(index, ordinal), index, at_ms, wall_ms, "decision",
                type(decision).__name__, said.subject, said.text, decision.causes, "", 0,
                said.job, said.hosts,
            )  # fmt: skip
            items.append(line)
            items += self._incident(decision, line)
            self._forget(decision)
        return self._narrowed(event_line, items)

    def _narrowed(self, event: Line, items: list[Item]) -> list[Item]:
        """Those items that are wanted, those of the same entry that caused them, and the event."""
        narrowing = self._narrowing
        if not narrowing.wants_index(event.index):
            return []
        if narrowing.refs is not None:
            kept = [item for item in items if item.ref in narrowing.refs]
            return [event, *kept] if kept or event.ref in narrowing.refs else []
        if not narrowing.job and not narrowing.host:
            return [event, *items]
        wanted = {item.ref for item in items if narrowing.wants(item.job, item.hosts)}
        for item in reversed(items):  # causes stand before what they caused
            if item.ref in wanted and isinstance(item, Line):
                wanted.update(item.causes)
        kept = [item for item in items if item.ref in wanted]
        return [event, *kept] if kept or narrowing.wants(event.job, event.hosts) else []

    # Where tasks are

    def _learn(self, decision: d.Decision) -> None:
        if isinstance(decision, d.TasksPlaced):
            places = {place.task: place.host for place in decision.placements}
            self._gang_tasks[decision.gang] = places

    def _forget(self, decision: d.Decision) -> None:
        if isinstance(decision, d.GangSucceeded | d.GangStopped):
            self._gang_tasks.pop(decision.gang, None)

    def _hosts_of(self, tasks: Iterable[str]) -> tuple[str, ...]:
        hosts: dict[str, None] = {}
        for task in tasks:
            run = task.partition("#")[0]
            role = run.rpartition("/")[0]
            for gang in (role, run, ""):
                host = self._gang_tasks.get(gang, {}).get(task)
                if host:
                    hosts[host] = None
                    break
        return tuple(hosts)

    def _with_hosts(self, said: Said) -> Said:
        more = tuple(host for host in self._hosts_of(said.tasks) if host not in said.hosts)
        return msgspec.structs.replace(said, hosts=said.hosts + more) if more else said

    # Incidents

    def _count_incidents(self, recorded: Recorded) -> None:
        for decision in recorded.decisions:
            if isinstance(decision, d.IncidentOpened | d.IncidentClosed):
                said = said_of_decision(decision, recorded.now_ms)
                line = Line("", recorded.entry.index, 0, 0, "", "", said.subject, "")
                self._incident(decision, line)

    def _incident(self, decision: d.Decision, line: Line) -> list[Item]:
        if isinstance(decision, d.IncidentOpened):
            self._open[decision.incident] = IncidentReport(
                "incident", decision.incident, decision.job, decision.gang, decision.generation,
                decision.cause, decision.subject, decision.detail, line.ref, line.at_ms, line.hosts,
            )  # fmt: skip
            self.totals.incidents += 1
        elif isinstance(decision, d.TasksPlaced):
            self._placed_again(decision, line)
        elif isinstance(decision, d.CauseRevised):
            self._revised(decision, line)
        elif isinstance(decision, d.IncidentClosed):
            return [self._closed(decision, line)]
        return []

    def _placed_again(self, decision: d.TasksPlaced, line: Line) -> None:
        for number, report in self._open.items():
            if report.gang == decision.gang:
                self._open[number] = msgspec.structs.replace(
                    report,
                    next_generation=decision.generation,
                    restored_step=decision.restore_step,
                    hosts=_joined(report.hosts, line.hosts),
                )

    def _revised(self, decision: d.CauseRevised, line: Line) -> None:
        report = self._open.get(decision.incident)
        if report:
            self._open[decision.incident] = msgspec.structs.replace(
                report,
                cause=decision.cause,
                subject=decision.subject,
                detail=decision.detail,
                hosts=_joined(report.hosts, line.hosts),
            )

    def _closed(self, decision: d.IncidentClosed, line: Line) -> IncidentReport:
        report = self._open.pop(decision.incident, None) or IncidentReport(
            "incident", decision.incident, decision.job, decision.gang, decision.generation,
            "", "", "", "", -1, line.hosts,
        )  # fmt: skip
        phases = {f"{phase}_ms": getattr(decision, f"{phase}_ms") for phase in PHASES}
        return msgspec.structs.replace(
            report,
            ref=line.ref,
            index=line.index,
            at_ms=line.at_ms,
            **phases,
            total_ms=sum(duration for duration in phases.values() if duration > 0),
            lost_steps=decision.lost_steps,
            resolved=decision.resolved,
        )


def _joined(hosts: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return hosts + tuple(host for host in more if host not in hosts)


def _report_of(
    incident: Incident, start_ms: int, hosts_of: Callable[[Iterable[str]], tuple[str, ...]]
) -> IncidentReport:
    named, tasks = hosts_and_tasks(incident.subject)
    hosts = named + hosts_of(tasks)
    return IncidentReport(
        "incident", incident.incident, incident.job, incident.gang, incident.generation,
        incident.cause, incident.subject, incident.detail, event_cause(incident.opened),
        incident.opened_ms - start_ms, hosts, restored_step=incident.restored_step,
    )  # fmt: skip
