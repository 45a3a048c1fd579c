"""Logs of our own making, by the true rules, and with whatever a test wants wrong in them."""

from __future__ import annotations

import itertools

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.exported import TOKEN_VARIABLE, ExportedLog
from jepsen_lite.judge.verdict import Judgement, Verdict
from jepsen_lite.report.wording import is_bad

from coord.core.machine import apply
from coord.core.state import new_state
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import (
    AnyEvent,
    ClusterConfigured,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
    TaskStarted,
)
from coord.model.spec import JobSpec, Resources, RoleSpec

STEP_MS = 100


class MadeLog:
    """A log that grows by what is said to it."""

    def __init__(self) -> None:
        self.state = new_state()
        self.records: list[Recorded] = []
        self._seq = itertools.count(1)
        self.elect(1, 1)
        self.say(ClusterConfigured("made"))

    def elect(self, term: int, node: int) -> Recorded:
        """The first entry of a term."""
        return self.say(LeaderElected(node, term), Origin(f"node:{node}", term, next(self._seq)))

    def say(self, event: AnyEvent, origin: Origin | None = None) -> Recorded:
        """One entry more, asked for by a client unless `origin` says otherwise."""
        origin = origin or Origin("client:maker", 0, next(self._seq))
        index = len(self.records) + 1
        wall_ms = 1_000_000 + STEP_MS * index
        entry = Entry(index, max(self.state.meta.term, 1), wall_ms, origin, event)
        recorded = apply(self.state, entry)
        self.records.append(recorded)
        return recorded

    def report(self, event: AnyEvent) -> Recorded:
        """What the agent of the event's host reports next."""
        host = self.state.hosts[getattr(event, "host")]  # noqa: B009
        origin = Origin(f"host:{host.host}", host.incarnation, host.report_seq + 1)
        return self.say(event, origin)

    def host(self, name: str, devices: int = 2) -> Recorded:
        event = HostRegistered(name, f"agent-{name}", "boot", "127.0.0.1", devices, 8_000, 8_000)
        return self.say(event, Origin(f"node:{1}", 1, next(self._seq)))

    def submit(self, name: str, ranks: int, *, exclusive: bool = False) -> Recorded:
        """A gang of ranks with a device each."""
        role = RoleSpec(
            name="trainer",
            command=("rank", "truth"),
            replicas=ranks,
            min_replicas=1,
            exclusive=exclusive,
            resources=Resources(devices=1),
            env={TOKEN_VARIABLE: name},
        )
        return self.say(JobSubmitted(JobSpec(name, (role,), checkpoint_dir="/saved"), "maker"))

    def start_all(self) -> None:
        """Every placed task gets a process, of which the pid is 100 and the task's index."""
        for task in [task for task in self.state.tasks.values() if task.status == "placed"]:
            incarnation = self.state.hosts[task.host].incarnation
            self.report(TaskStarted(task.host, incarnation, task.key, 100 + task.index))

    def log(self) -> ExportedLog:
        return ExportedLog(self.records)


class Asked:
    """A history of our own making: operations follow one another unless their times are given."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(
        self,
        action: str,
        *,
        key: str = "k",
        token: str = "",
        outcome: Outcome = Outcome.OK,
        result: object = None,
        index: int = 0,
        at: tuple[int, int] | None = None,
        argument: object = None,
    ) -> Operation:
        number = len(self.operations) + 1
        began, ended = at or (10 * number, 10 * number + 5)
        operation = Operation(
            number,
            "c/1",
            "made",
            key,
            action,
            argument,
            began,
            ended,
            outcome,
            result,
            index,
            token,
        )
        self.operations.append(operation)
        return operation


def verdicts(judgements: list[Judgement]) -> dict[str, Verdict]:
    """Those that do not hold, by the check."""
    return {each.check: each.verdict for each in judgements if is_bad(each)}
