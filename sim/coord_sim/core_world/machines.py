"""Ground truth for random histories: machines, their processes, and agents that obey plans.

The state machine sees none of this. It sees what agents report, late, twice, or never.
"""

from __future__ import annotations

from random import Random

import msgspec

from coord.model import events
from coord.model.entry import Origin, Recorded
from coord.model.events import AnyEvent, TaskFound
from coord.model.plans import STANDBY, Action, HostPlan, TaskOrder
from coord.model.rejections import Rejection

from .violation import CoreViolation

LACKED = "no task gets a device that its host lacks"


def _restored(order: TaskOrder) -> int:
    return int(order.env.get("COORD_RESTORE_STEP") or 0)


class Process(msgspec.Struct):
    """One launch of one task. `alive` while anything of its process tree exists."""

    key: str
    job: str
    role: str
    index: int
    generation: int
    pid: int
    devices: tuple[int, ...]
    exclusive: bool
    alive: bool = True
    exit_code: int = 0
    exit_signal: int = 0
    exit_seen: bool = False
    """The agent saw how it ended."""
    reaped: bool = False
    dies_at_ms: int = 0
    """True time at which a SIGTERM or SIGKILL takes effect; 0 while it was not told to end."""
    stubborn: bool = False
    """SIGKILL does nothing, as long as the fault lasts."""
    called_unkillable: bool = False
    stalled: bool = False
    """It lives, but makes no step any more."""
    step: int = 0
    held_step: int = 0
    """A step whose shard takes longer than that of the next; 0 for none."""
    exited: bool = False
    """Its main process ended; what it left behind may live."""
    linger_ms: int = 0
    """How much longer than the main process something of it lives."""
    gone_at_ms: int = 0
    standby: bool = False
    """It waits for a rank, and does nothing else."""


class Machine:
    """A host and its agent. Reports leave in order, each until it is known to be decided."""

    def __init__(self, name: str, devices: int) -> None:
        self.name = name
        self.devices = devices
        self.boot = 1
        self.powered = True
        self.agent_up = True
        self.connected = True
        self.incarnation = 0
        self.registered = False
        self.requests = 0
        self.seen = (0, 0)
        """(incarnation, version) of the newest plan obeyed."""
        self.processes: dict[str, Process] = {}
        self.done: dict[str, None] = {}
        """Tasks launched once and gone since, remembered on disk: never launched again."""
        self.outbox: list[AnyEvent] = []
        """Reports not known to be decided, oldest first."""
        self.decided = 0
        """Reports of this incarnation known to be decided."""
        self.failed: dict[str, tuple[str, bool]] = {}
        """Launches that failed, until their end is known to be decided: (error, user error)."""
        self.out_ms = 0
        """True time at which it was last not beating."""
        self.reconnected_ms = 0
        """True time from which it has found the leader again."""
        self.fence_late_ms = 0
        """How long after its deadline the fence takes effect, well within what is waited for it."""
        self.now_ms = 0
        """True time."""
        self.last_beat_ms = 0
        """True time of the last beat that was recorded."""
        self.sent: list[tuple[Origin, AnyEvent]] = []
        """What may still linger in the network."""

    @property
    def reachable(self) -> bool:
        return self.powered and self.agent_up and self.connected

    def heard(self, true_ms: int) -> bool:
        """What it sends arrives at the leader."""
        return self.reachable and true_ms >= self.reconnected_ms

    # Registration

    def registration(self) -> tuple[Origin, events.HostRegistered]:
        self.requests += 1
        found = tuple(
            TaskFound(process.key, process.pid, not process.exited)
            for process in self.processes.values()
        )
        event = events.HostRegistered(
            self.name,
            f"agent-{self.name}",
            f"boot-{self.boot}",
            f"{self.name}.lan",
            devices=self.devices,
            cpu_millis=4_000,
            memory_mib=4_096,
            ports=(20_000, 20_001),
            tasks=found,
        )
        return Origin(f"client:agent-{self.name}", 0, self.requests), event

    def joined(self, incarnation: int, true_ms: int) -> None:
        self.incarnation = incarnation
        self.registered = True
        self.decided = 0
        self.last_beat_ms = true_ms
        self.outbox = []
        for process in list(self.processes.values()):
            if process.exited:
                self._report_exit(process)
            if not process.alive:
                self._report_reaped(process)
        for key in self.failed:
            self._report_failure(key)

    # What the agent does

    def obey(self, plan: HostPlan, rng: Random, true_ms: int) -> None:
        """Reconcile to the plan, unless a newer one was seen (races.md 18)."""
        if plan.incarnation != self.incarnation:
            return
        if (plan.incarnation, plan.version) < self.seen:
            return
        self.seen = (plan.incarnation, plan.version)
        ordered = {order.task: order for order in plan.tasks}
        for order in plan.tasks:
            if order.action == Action.RUN:
                self._launch(order, rng)
            else:
                self._stop(order.task, order.grace_ms, rng, true_ms)
        for key in list(self.processes):
            if key not in ordered:
                self._stop(key, 0, rng, true_ms)

    def _launch(self, order: TaskOrder, rng: Random) -> None:
        if order.task in self.processes:
            self._promote(self.processes[order.task], order)
            return
        if order.task in self.done:
            return
        missing = [device for device in order.devices if device >= self.devices]
        if missing:
            raise CoreViolation(LACKED, f"{order.task} on {self.name}")
        if rng.random() < 0.04:
            self.done[order.task] = None
            self.failed[order.task] = ("no such file", rng.random() < 0.2)
            self._report_failure(order.task)
            return
        process = Process(
            order.task,
            order.job,
            order.role,
            order.index,
            order.generation,
            rng.randrange(2, 30_000),
            order.devices,
            order.exclusive,
            step=_restored(order),
            standby=STANDBY in order.env,
            linger_ms=rng.choice((0, 0, 0, 400, 1_500)),
        )
        self.processes[order.task] = process
        self.outbox.append(
            events.TaskStarted(self.name, self.incarnation, process.key, process.pid)
        )

    def _promote(self, process: Process, order: TaskOrder) -> None:
        """A process that waited is told its rank."""
        if process.standby and STANDBY not in order.env:
            process.standby = False
            process.index, process.generation = order.index, order.generation
            process.step = _restored(order)

    def _report_failure(self, key: str) -> None:
        error, user_error = self.failed[key]
        self.outbox.append(events.LaunchFailed(self.name, self.incarnation, key, error, user_error))
        self.outbox.append(events.TaskReaped(self.name, self.incarnation, key))

    def _stop(self, key: str, grace_ms: int, rng: Random, true_ms: int) -> None:
        process = self.processes.get(key)
        if process is None:
            reaped = events.TaskReaped(self.name, self.incarnation, key)
            self.done[key] = None
            if reaped not in self.outbox:
                self.outbox.append(reaped)
        elif not process.exited and not process.dies_at_ms:
            process.dies_at_ms = true_ms + rng.randrange(max(grace_ms, 1) + 1)

    # What happens to processes

    def pass_time(self, true_ms: int, lease_ms: int) -> None:
        """Signals take effect, and an agent that hears nothing fences its exclusive tasks."""
        self.now_ms = true_ms
        if not (self.reachable and self.registered):
            self.out_ms = true_ms
        if not self.powered:
            return
        unheard = true_ms - self.last_beat_ms >= lease_ms + self.fence_late_ms - 200
        for process in list(self.processes.values()):
            if not process.alive:
                continue
            if process.exclusive and unheard:
                self._die(process, 0, 9)
                self._gone(process)
            elif process.exited:
                if true_ms >= process.gone_at_ms:
                    self._end_of(process)
            elif process.dies_at_ms and true_ms >= process.dies_at_ms:
                self._end_of(process)

    def _end_of(self, process: Process) -> None:
        """SIGKILL for all that is left."""
        if process.stubborn:
            if self.agent_up and not process.called_unkillable:
                process.called_unkillable = True
                self.outbox.append(
                    events.TaskUnkillable(self.name, self.incarnation, process.key, process.pid)
                )
        elif process.exited:
            self._gone(process)
        else:
            self._die(process, 0, 15)

    def crash(self, process: Process, exit_code: int, exit_signal: int) -> None:
        """The process ends by itself."""
        self._die(process, exit_code, exit_signal)

    def _die(self, process: Process, exit_code: int, exit_signal: int) -> None:
        if process.exited:
            return
        process.exited = True
        process.exit_code, process.exit_signal = exit_code, exit_signal
        process.exit_seen = self.agent_up
        process.gone_at_ms = self.now_ms + process.linger_ms
        if self.agent_up:
            self._report_exit(process)
        if not process.linger_ms:
            self._gone(process)

    def _gone(self, process: Process) -> None:
        if process.alive:
            process.alive = False
            if self.agent_up:
                self._report_reaped(process)

    def _report_exit(self, process: Process) -> None:
        self.outbox.append(
            events.TaskExited(
                self.name,
                self.incarnation,
                process.key,
                exit_code=process.exit_code if process.exit_seen else 0,
                signal=process.exit_signal if process.exit_seen else 0,
                observed=process.exit_seen,
                expected=bool(process.dies_at_ms),
            )
        )

    def _report_reaped(self, process: Process) -> None:
        process.reaped = True
        self.outbox.append(events.TaskReaped(self.name, self.incarnation, process.key))

    def power_off(self) -> None:
        self.powered = False
        self.agent_up = False
        self.registered = False
        self.outbox = []
        for process in self.processes.values():
            process.alive, process.exited = False, True

    def power_on(self) -> None:
        """After a boot nothing of before runs, and the agent knows it by the boot id."""
        self.powered = self.agent_up = True
        self.boot += 1
        self.done.update(dict.fromkeys(self.processes))
        self.processes = {}
        self.failed = {}

    def agent_crash(self) -> None:
        """Its processes run on. What it had not sent is lost; what is on disk is found again."""
        self.agent_up = False
        self.registered = False
        self.outbox = []

    # Reports

    def next_report(self, ahead: int = 0) -> tuple[Origin, AnyEvent] | None:
        if ahead >= len(self.outbox):
            return None
        origin = Origin(f"host:{self.name}", self.incarnation, self.decided + 1 + ahead)
        return origin, self.outbox[ahead]

    def answered(self, record: Recorded) -> None:
        """The oldest report was decided, or this incarnation is over."""
        if record.rejection in (Rejection.STALE_INCARNATION, Rejection.HOST_NOT_LIVE):
            self.registered = False
            return
        if record.rejection == Rejection.REPORT_GAP:
            return
        event = self.outbox.pop(0)
        self.decided += 1
        if isinstance(event, events.TaskReaped):
            self.processes.pop(event.task, None)
            self.failed.pop(event.task, None)
            self.done[event.task] = None
