"""Recorded arrivals, lived through by the state machine at full speed.

Each job comes when it came, runs for as long as it ran once it has all its devices, and goes. A job
that is stopped for another saves its work within its notice and goes on from there; it takes
`SAVING_MS` for that, and no longer than its notice. No agents and no network: the outside world is
a list of what happens next.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from coord.core.invariants import violations
from coord.core.machine import apply, next_due_ms
from coord.core.state import State, new_state
from coord.model.decisions import GangPreempted, TasksPlaced, TasksStopping
from coord.model.entities import GangPhase
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import (
    AnyEvent,
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
    QueueConfigured,
    TaskExited,
    TaskReaped,
    TaskStarted,
)
from coord.model.queue import QueueSpec
from coord.model.settings import LONGEST_MS, Settings
from coord.model.spec import JobSpec

SAVING_MS = 20_000
HOUR_MS = 3_600_000
BEAT_MS = 6 * HOUR_MS
PATIENT = Settings(
    lease_ms=LONGEST_MS,
    suspect_ms=LONGEST_MS - 1,
    heartbeat_ms=BEAT_MS,
    max_step_ms=LONGEST_MS,
    hold_ms=HOUR_MS,
)
"""Minutes pass between two entries, and hosts are only heard now and then."""
CHECK_ONE_IN = 2_000
"""Entries after which the invariants are looked at."""


class Arrival(msgspec.Struct, frozen=True):
    """A job that came at `at_ms` and ran for `runs_ms` on `devices` devices."""

    at_ms: int
    spec: JobSpec
    runs_ms: int
    devices: int


class Lived(msgspec.Struct):
    """What a replay came to."""

    waits_ms: dict[str, int] = {}
    """By job: from its arrival to its first place."""
    devices: dict[str, int] = {}
    busy: int = 0
    """Device-milliseconds in use up to the last arrival."""
    span_ms: int = 0
    capacity: int = 0
    entries: int = 0
    preempted: int = 0
    lost_ms: int = 0
    restarts: int = 0
    finished: int = 0
    most_waiting: int = 0
    checked: int = 0
    broken: list[str] = []
    cpu_s: float = 0.0

    @property
    def utilisation(self) -> float:
        return self.busy / (self.capacity * self.span_ms) if self.span_ms else 0.0


class Replay:
    """A cluster of equal hosts, its queues, and the jobs that come to it."""

    def __init__(
        self,
        hosts: int,
        devices: int,
        queues: Iterable[QueueSpec],
        logic_version: int,
        check_one_in: int = CHECK_ONE_IN,
    ) -> None:
        self._check_one_in = check_one_in
        self.state: State = new_state()
        self.lived = Lived(capacity=hosts * devices)
        self._wall_ms = 1
        self._next: list[tuple[int, int, str, str]] = []
        self._count = 0
        self._left_ms: dict[str, int] = {}
        self._began_ms: dict[str, int] = {}
        self._arrivals: list[Arrival] = []
        self._changes: list[tuple[int, QueueSpec]] = []
        self._used = 0
        self._used_since_ms = 0
        self._last_ms = 0
        self._apply(ClusterConfigured("bench", PATIENT, logic_version))
        self._apply(LeaderElected(1, 1))
        for number in range(hosts):
            name = f"h{number:04}"
            self._apply(HostRegistered(name, name, "b", name, devices=devices, cpu_millis=96_000))
        for queue in queues:
            self._apply(QueueConfigured(queue, "bench"))

    def live(self, arrivals: list[Arrival], changes: Iterable[tuple[int, QueueSpec]] = ()) -> Lived:
        """Until the last job has gone; what was used is counted up to the last arrival."""
        self._arrivals = arrivals
        self._changes = list(changes)
        self._last_ms = max(arrival.at_ms for arrival in arrivals)
        for at, arrival in enumerate(arrivals):
            self._later(arrival.at_ms, "arrival", str(at))
        for at, (at_ms, _) in enumerate(self._changes):
            self._later(at_ms, "queue", str(at))
        self._later(BEAT_MS, "beat", "")
        began_s = time.process_time()
        while self._next:
            at_ms, _, kind, key = heapq.heappop(self._next)
            self._wall_ms = max(self._wall_ms, at_ms + 1)
            getattr(self, f"_{kind}")(key)
        self.lived.cpu_s = time.process_time() - began_s
        self.lived.span_ms = self._last_ms
        return self.lived

    def _later(self, at_ms: int, kind: str, key: str) -> None:
        self._count += 1
        heapq.heappush(self._next, (at_ms, self._count, kind, key))

    # What happens

    def _arrival(self, key: str) -> None:
        arrival = self._arrivals[int(key)]
        self._left_ms[arrival.spec.name] = arrival.runs_ms
        self.lived.devices[arrival.spec.name] = arrival.devices
        record = self._apply(JobSubmitted(arrival.spec, arrival.spec.owner or "bench"))
        assert not record.rejection, (arrival.spec.name, record.rejection)

    def _queue(self, key: str) -> None:
        self._apply(QueueConfigured(self._changes[int(key)][1], "bench"))

    def _beat(self, _: str) -> None:
        if len(self._next) or self.state.waiting:
            count = len(self.state.slots)
            self._apply(HeartbeatsSeen("node:1", tuple(range(count)), (1,) * count))
            self._apply(ClockAdvanced())
            if self._next:
                self._later(self._wall_ms + BEAT_MS, "beat", "")

    def _tick(self, _: str) -> None:
        self._apply(ClockAdvanced())

    def _end(self, key: str) -> None:
        """The generation `job/role#n` has done its work, or has saved it and goes."""
        gang_key, _, generation = key.partition("#")
        gang = self.state.gangs.get(gang_key)
        if gang is None or gang.generation != int(generation) or not gang.live:
            return
        if gang.phase == GangPhase.STOPPING:
            told = {"signal": 15, "expected": True}
        else:
            told = {}
            self.lived.finished += 1
            self._charge(gang.job, -1)
        tasks = [self.state.tasks[task] for task in gang.live]
        for task in tasks:
            self._apply(TaskExited(task.host, 1, task.key, **told))  # type: ignore[arg-type]
        for task in tasks:
            self._apply(TaskReaped(task.host, 1, task.key))

    # What follows

    def _apply(self, event: AnyEvent) -> Recorded:
        state, lived = self.state, self.lived
        lived.entries += 1
        index = state.meta.applied_index + 1
        term = 1 if index > 2 else 0
        entry = Entry(index, term, self._wall_ms, Origin("node:1", 1, index), event)
        record = apply(state, entry)
        for decision in record.decisions:
            if isinstance(decision, TasksPlaced):
                self._placed(decision)
            elif isinstance(decision, TasksStopping):
                self._stopping(decision)
            elif isinstance(decision, GangPreempted):
                lived.preempted += 1
                lived.lost_ms += decision.lost_ms
        lived.most_waiting = max(lived.most_waiting, len(state.waiting))
        if lived.entries % self._check_one_in == 0:
            lived.checked += 1
            lived.broken += violations(state)
        due_ms = next_due_ms(state)
        if due_ms is not None and record.decisions and due_ms < self._wall_ms + HOUR_MS:
            self._later(max(due_ms, self._wall_ms), "tick", "")
        return record

    def _placed(self, decision: TasksPlaced) -> None:
        job = decision.job
        if job not in self.lived.waits_ms:
            arrived_ms = self.state.jobs[job].submitted_ms
            self.lived.waits_ms[job] = self.state.meta.now_ms - arrived_ms
        else:
            self.lived.restarts += 1
        self._began_ms[job] = self._wall_ms
        self._charge(job, 1)
        self._later(self._wall_ms, "started", f"{decision.gang}#{decision.generation}")
        ends_ms = self._wall_ms + self._left_ms[job]
        self._later(ends_ms, "end", f"{decision.gang}#{decision.generation}")

    def _started(self, key: str) -> None:
        gang_key, _, generation = key.partition("#")
        gang = self.state.gangs.get(gang_key)
        if gang is not None and gang.generation == int(generation):
            for task in [self.state.tasks[task] for task in gang.live]:
                self._apply(TaskStarted(task.host, 1, task.key, 7))

    def _stopping(self, decision: TasksStopping) -> None:
        gang = self.state.gangs[decision.gang]
        if gang.stop_final:
            return
        worked_ms = self._wall_ms - self._began_ms[decision.job]
        self._left_ms[decision.job] = max(self._left_ms[decision.job] - worked_ms, 1)
        self._charge(decision.job, -1)
        stop_ms = min(SAVING_MS, self.state.tasks[decision.tasks[0]].stop_grace_ms)
        self._later(self._wall_ms + stop_ms, "end", f"{decision.gang}#{decision.generation}")

    def _charge(self, job: str, sign: int) -> None:
        """Devices come into use or out of it."""
        now_ms = min(self._wall_ms, self._last_ms)
        self.lived.busy += self._used * max(now_ms - self._used_since_ms, 0)
        self._used_since_ms = now_ms
        self._used += sign * self.lived.devices[job]


def waits_by_size(lived: Lived) -> list[tuple[str, list[int]]]:
    """(class of size, waits in ms ascending), small ones first."""
    classes = ((0, "0"), (1, "1"), (4, "2 to 4"), (8, "5 to 8"), (64, "9 to 64"), (1 << 30, "more"))
    found: dict[str, list[int]] = {name: [] for _, name in classes}
    for job, wait_ms in lived.waits_ms.items():
        name = next(name for most, name in classes if lived.devices[job] <= most)
        found[name].append(wait_ms)
    return [(name, sorted(waits)) for name, waits in found.items() if waits]


def never_placed(lived: Lived) -> Counter[int]:
    """Devices of jobs that never got a place, how often."""
    waiting = [count for job, count in lived.devices.items() if job not in lived.waits_ms]
    return Counter(waiting)
