"""A cluster that lives through recorded failures at full speed: the core alone, with agents that
answer at once. What is driven is `apply`; nothing of it is left out but beats that decide nothing.

Failures of one minute are one incident: their hosts fall silent together. For each it is checked
that no job restarted more than once, and for a sample of entries that no invariant broke.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

import msgspec

from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.state import LIVE_HOST, TABLES, State, new_state
from coord.model import events as e
from coord.model.care import OUT_OF_FLEET
from coord.model.decision import Decision
from coord.model.entities import GangPhase, TaskStatus
from coord.model.entry import Entry, Origin
from coord.model.place import Place
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

MINUTE_MS = 60_000
LONGEST_STEP_MS = 1_000_000_000
CHECK_EVERY = 2_000
SETTINGS = Settings(max_step_ms=LONGEST_STEP_MS, launch_timeout_ms=LONGEST_STEP_MS)
PATIENCE = 60
"""Verdicts asked for before whoever fell silent must be lost, a domain's grace included."""
UNLIMITED = RestartPolicy(
    user_limit=10**9, infrastructure_limit=10**9, unknown_limit=10**9, backoff_ms=0
)


class Broken(AssertionError):
    """What may never happen did, and after which entry."""


class Machine(msgspec.Struct, frozen=True):
    """A host as recorded. `boot` names the part in it: another one, another boot."""

    host: str
    place: Place
    boot: str = "1"


class Counts(msgspec.Struct):
    failures: int = 0
    bursts: int = 0
    """Of 4 or more hosts at once."""
    entries: int = 0
    checks: int = 0
    restarts: int = 0
    decisions: Counter[str] = Counter()


class Fleet:
    """`machines` register at once; jobs are gangs of `gang` tasks of one device each, on three
    fifths of them."""

    def __init__(self, name: str, machines: list[Machine], gang: int) -> None:
        self.state: State = new_state()
        self.counts = Counts(decisions=Counter())
        self._wall_ms = 1_000_000
        self._seq: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._away: dict[str, None] = {}
        """Hosts that say nothing."""
        self._generations: dict[str, int] = {}
        self._send(e.LeaderElected(1, 1))
        self._send(e.ClusterConfigured(name, SETTINGS, 2))
        for machine in machines:
            self.insert(machine)
        for number in range(max(len(machines) * 3 // 5 // gang, 1)):
            self._submit(f"job{number}", gang)
        self._settle()

    def pass_time(self, duration_ms: int) -> None:
        """Everybody beats who is there, right before the clock looks."""
        while duration_ms > 0:
            step_ms = min(duration_ms, LONGEST_STEP_MS)
            duration_ms -= step_ms
            self._wall_ms += step_ms
            self._beat()
            self._settle()

    def fall_silent(self, names: list[str]) -> None:
        """These at once; until they are lost, by themselves, with their domain, or by the word of
        the operator who is asked."""
        live = [name for name in names if self.state.hosts[name].status in LIVE_HOST]
        self._begin_incident(len(live))
        self._away.update(dict.fromkeys(names))
        for _ in range(PATIENCE):
            self._wall_ms += 1_500
            self._beat()
            if all(self.state.hosts[name].status not in LIVE_HOST for name in live):
                break
            if self.state.meta.frozen:
                self._send(e.EvictionsAllowed("operator", "they are down"))
        else:
            raise Broken(f"{live} are silent and not lost at {self.state.meta.applied_index}")
        self._settle()

    def insert(self, machine: Machine) -> None:
        """It registers, for the first time or again, empty; nothing is held against it any more."""
        self._away.pop(machine.host, None)
        known = self.state.hosts.get(machine.host)
        self._send(
            e.HostRegistered(
                host=machine.host,
                agent=f"agent-{machine.host}",
                boot=machine.boot,
                address=machine.host,
                devices=1,
                cpu_millis=0,
                memory_mib=0,
                place=machine.place,
            )
        )
        if known is not None and known.drain_requested:
            self._send(e.UndrainRequested(machine.host, "operator", "back"))
        row = self.state.quarantines.get(machine.host)
        if row is not None and row.state in OUT_OF_FLEET:
            self._send(e.HostReleaseRequested(machine.host, "operator", "another part", True))
        self._settle()

    def fault(self, host: str, code: int) -> None:
        """The kernel tells of it, and the program on that device fails."""
        self._begin_incident(1)
        self._report(host, e.DeviceFaultSeen, kind="xid", code=code, device="0000:01:00")
        for key in self.state.hosts[host].tasks:
            if self.state.tasks[key].status == TaskStatus.RUNNING:
                self._report(host, e.TaskExited, task=key, exit_code=1, error="CUDA error")
        self._settle()

    def take_out(self, host: str) -> None:
        """As planned: drained, emptied, switched off."""
        self._begin_incident(0)
        self._send(e.DrainRequested(host, "operator", "to be replaced"))
        self._settle()
        self._send(e.HostRemovalRequested(host, "operator", "gone"))
        self._away[host] = None

    def is_live(self, host: str) -> bool:
        row = self.state.hosts.get(host)
        return row is not None and row.status in LIVE_HOST

    def check(self) -> None:
        found = violations(self.state)
        found += [f"{job.name} has ended" for job in self.state.jobs.values() if job.ended]
        self.counts.checks += 1
        if found:
            raise Broken(f"after entry {self.state.meta.applied_index}: {found[:3]}")

    # What agents do

    def _settle(self) -> None:
        """All that is told to end ends, all that is placed starts and finishes a step."""
        for _ in range(PATIENCE):
            phases = (GangPhase.STOPPING, GangPhase.STARTING)
            busy = [gang.key for gang in self.state.gangs.values() if gang.phase in phases]
            if not busy:
                return
            for key in busy:
                self._serve(key)
        raise Broken(f"{busy} never settle")

    def _serve(self, key: str) -> None:
        gang = self.state.gangs[key]
        for name in gang.live:
            task = self.state.tasks.get(name)
            if task is None or task.host in self._away:
                continue
            if task.status == TaskStatus.PLACED:
                self._report(task.host, e.TaskStarted, task=name, pid=1)
            elif task.status in (TaskStatus.STOPPING, TaskStatus.EXITED):
                if task.status == TaskStatus.STOPPING:
                    self._report(task.host, e.TaskExited, task=name, signal=15, expected=True)
                self._report(task.host, e.TaskReaped, task=name)
        gang = self.state.gangs[key]
        if gang.phase == GangPhase.RUNNING and gang.live:
            self._steps[key] += 1
            host = self.state.tasks[gang.live[0]].host
            self._report(host, e.ProgressReported, task=gang.live[0], step=self._steps[key])

    def _submit(self, name: str, size: int) -> None:
        role = RoleSpec("r", ("train",), replicas=size, spares=1, resources=Resources(devices=1))
        self._send(e.JobSubmitted(JobSpec(name, (role,), UNLIMITED), "bench"))

    # One incident

    def _begin_incident(self, hosts: int) -> None:
        self.counts.failures += hosts
        self.counts.bursts += hosts >= 4
        self.end_incident()
        self._generations = {key: gang.restarts for key, gang in self.state.gangs.items()}

    def end_incident(self) -> None:
        """It lasts until the next one begins, so that whatever follows from it later counts too."""
        for key, gang in self.state.gangs.items():
            restarts = gang.restarts - self._generations.get(key, gang.restarts)
            self.counts.restarts += restarts
            if restarts > 1:
                raise Broken(
                    f"{key} restarted {restarts} times for one incident, up to entry "
                    f"{self.state.meta.applied_index}"
                )

    # Entries

    def _beat(self) -> None:
        rows = [self.state.hosts[name] for name in self.state.slots]
        here = [row for row in rows if row.status in LIVE_HOST and row.host not in self._away]
        slots = tuple(row.slot for row in here)
        if slots:
            self._send(e.HeartbeatsSeen("node:1", slots, tuple(row.incarnation for row in here)))
        self._send(e.ClockAdvanced())

    def _report(self, host: str, event_type: type[e.Event], **fields: object) -> None:
        row = self.state.hosts[host]
        event = event_type(host=host, incarnation=row.incarnation, **fields)
        self._send(event, Origin(f"host:{host}", row.incarnation, row.report_seq + 1))

    def _send(self, event: e.Event, origin: Origin | None = None) -> None:
        if origin is None:
            self._seq["all"] += 1
            origin = Origin("client:bench", 0, self._seq["all"])
        index = self.state.meta.applied_index + 1
        entry = Entry(index, 1, self._wall_ms, origin, cast(e.AnyEvent, event))
        record = apply(self.state, entry)
        if record.rejection:
            raise Broken(f"{event} was refused: {record.rejection}")
        self.counts.entries += 1
        if record.decisions:
            self.counts.decisions.update(_kinds(record.decisions))
        if self.counts.entries % CHECK_EVERY == 0:
            self.check()
            for name in TABLES:
                self.state.table(name).changed = {}  # nobody writes them to a disk


def _kinds(decisions: tuple[Decision, ...]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]
