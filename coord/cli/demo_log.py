"""What the demo reads from the log: how far the job is, and what each incident was and cost."""

from __future__ import annotations

from typing import Protocol, TypeVar

from coord.model.decisions import (
    CheckpointCommitted,
    Decision,
    GenerationStarted,
    HostLost,
    IncidentClosed,
    IncidentOpened,
    JobCompleted,
    JobFailed,
    TasksPlaced,
)
from coord.model.entry import Recorded
from coord.model.events import Event, LeaderElected, ProgressReported

PAGE = 2_000

E = TypeVar("E", bound=Event)
D = TypeVar("D", bound=Decision)


class Page(Protocol):
    @property
    def events(self) -> tuple[Recorded, ...]: ...
    @property
    def next(self) -> int: ...


class Reader(Protocol):
    """The part of the client that is needed here."""

    def events(self, start: int, limit: int) -> Page: ...


class JobLog:
    """The log as far as it was fetched, seen as the story of the one job in it."""

    def __init__(self) -> None:
        self.records: list[Recorded] = []
        self._next = 1

    def fetch(self, reader: Reader) -> None:
        """Read what is new."""
        while True:
            page = reader.events(self._next, PAGE)
            self.records += page.events
            self._next = page.next
            if len(page.events) < PAGE:
                return

    def events(self, kind: type[E]) -> list[E]:
        """Accepted events of this kind, oldest first."""
        return [
            record.entry.event
            for record in self.records
            if isinstance(record.entry.event, kind) and record.accepted
        ]

    def decisions(self, kind: type[D]) -> list[D]:
        """Decisions of this kind, oldest first."""
        return [
            decision
            for record in self.records
            for decision in record.decisions
            if isinstance(decision, kind)
        ]

    @property
    def leader(self) -> int:
        """The server that was elected last, 0 for none."""
        elected = self.events(LeaderElected)
        return elected[-1].node if elected else 0

    @property
    def generation(self) -> int:
        """The one that was placed last, 0 for none."""
        placed = self.decisions(TasksPlaced)
        return placed[-1].generation if placed else 0

    @property
    def step(self) -> int:
        """The furthest that the current generation reported, -1 before its first report."""
        mark = f"#{self.generation}"
        return max(
            (event.step for event in self.events(ProgressReported) if event.task.endswith(mark)),
            default=-1,
        )

    @property
    def checkpoint_step(self) -> int:
        """Of the newest checkpoint that the current generation committed, -1 for none."""
        committed = self.decisions(CheckpointCommitted)
        if committed and committed[-1].generation == self.generation:
            return committed[-1].step
        return -1

    @property
    def in_full_swing(self) -> bool:
        """All ranks run, have saved in this generation, and are some steps past that: a failure now
        costs something and can be recovered from."""
        started = self.decisions(GenerationStarted)
        return bool(
            started
            and started[-1].generation == self.generation
            and 0 <= self.checkpoint_step <= self.step - 3
        )

    @property
    def ended(self) -> str:
        """How the job ended; empty while it goes on."""
        for failed in self.decisions(JobFailed):
            return f"failed: {failed.reason} {failed.detail}".strip()
        return "completed" if self.decisions(JobCompleted) else ""

    @property
    def closed(self) -> list[IncidentClosed]:
        return self.decisions(IncidentClosed)

    def problems(self, incidents: int, lost_hosts: list[str]) -> list[str]:
        """What in the log is not as two failures of the job and one of the coordinator should look.

        Every failure of the job is one incident and one new generation; the leader's death is
        neither, and costs no host its lease.
        """
        found = []
        opened = [
            f"{incident.incident} ({incident.cause}, {incident.subject})"
            for incident in self.decisions(IncidentOpened)
        ]
        if len(opened) != incidents:
            found.append(f"{incidents} incidents were expected, opened were: {', '.join(opened)}")
        found += [
            f"incident {one.incident} was not resolved" for one in self.closed if not one.resolved
        ]
        if self.generation != incidents + 1:
            found.append(
                f"generation {incidents + 1} should be the last, but it is {self.generation}"
            )
        lost = [decision.host for decision in self.decisions(HostLost)]
        if lost != lost_hosts:
            found.append(f"hosts lost should be {lost_hosts}, but are {lost}")
        return found


def cost_text(closed: IncidentClosed) -> str:
    """One line: the phases in seconds, and the steps that have to be done again."""
    phases = (
        ("detected in", closed.detection_ms),
        ("stopped in", closed.stop_ms),
        ("placed in", closed.placement_ms),
        ("running again in", closed.start_ms),
        ("next step after", closed.resume_ms),
    )
    told = [f"{name} {_seconds(value)}" for name, value in phases]
    return f"{', '.join(told)}; {closed.lost_steps} steps lost"


def _seconds(value_ms: int) -> str:
    return "-" if value_ms < 0 else f"{value_ms / 1000:.2f} s"
