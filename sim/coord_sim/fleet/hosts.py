"""Hosts and their agents in truth: they register, obey plans, launch and end ranks, and report.

The core sees nothing of this but what agents report. An agent reports in order and keeps what it
cannot send; when it finds its incarnation over it registers anew, with the processes it still has.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import msgspec

from coord.core.plans import host_plan
from coord.core.state import LIVE_HOST
from coord.model import events
from coord.model.events import AnyEvent, TaskFound
from coord.model.plans import Action, TaskOrder
from coord.model.rejections import Rejection
from coord_sim.fleet.agenda import Agenda
from coord_sim.fleet.leader import Leader
from coord_sim.fleet.policy import Policy
from coord_sim.fleet.schedule import Fault

_OVER = (Rejection.STALE_INCARNATION, Rejection.HOST_NOT_LIVE)


class Leave(msgspec.Struct, frozen=True):
    """Why a host is taken away, and for how long."""

    cause: str
    lasts_ms: int
    repair: bool


class Process(msgspec.Struct):
    """One launch of one rank."""

    key: str
    generation: int
    index: int
    alive: bool = False
    """Launched, and not ended."""
    ended: bool = False
    stopping: bool = False
    stuck: bool = False
    """No signal ends it; only the end of its host does."""
    exit_code: int = 0
    exit_signal: int = 0


class SimHost:
    """A machine and its agent."""

    def __init__(self, number: int, seed: int, *, lemon: bool) -> None:
        self.number = number
        self.name = f"n{number:05d}"
        self.lemon = lemon
        self.rng = Random(f"{seed}/agent/{number}")
        self.powered = True
        self.boot = 1
        self.unlinked_until_ms = 0
        """Nobody can reach it before that."""
        self.away = ""
        """The cause for which it is off or cut off; empty while it works."""
        self.incarnation = 0
        self.reports = 0
        self.outbox: list[AnyEvent] = []
        self.processes: dict[str, Process] = {}
        self.newest_generation = 0
        self.bad: Fault | None = None
        """Whatever runs here will fail, until it is repaired."""
        self.leaving: Leave | None = None
        """It is being emptied, to be taken away."""
        self.stay = 0
        """Counts its goings and comings: what was planned for an earlier stay is off."""
        self.repairs = 0
        self.retired = False

    def linked(self, now_ms: int) -> bool:
        return now_ms >= self.unlinked_until_ms

    def reachable(self, now_ms: int) -> bool:
        return self.powered and self.linked(now_ms)


class Watcher(Protocol):
    """Who is told what ranks do."""

    def launched(self, host: SimHost, process: Process) -> None: ...

    def saves_when_stopped(self, process: Process) -> int:
        """The step that the rank saves before it ends, as it was told in time; -1: none."""
        ...

    def path_of(self, step: int) -> str: ...


class Agents:
    """All agents. `faithful`: they say also what changes nothing, see `driving.py`."""

    def __init__(
        self, agenda: Agenda, leader: Leader, policy: Policy, gpus: int, *, faithful: bool
    ) -> None:
        self._agenda = agenda
        self._leader = leader
        self._policy = policy
        self._gpus = gpus
        self._plan_ms = policy.operations.plan_ms
        self._faithful = faithful
        self.watcher: Watcher
        self.hosts: dict[str, SimHost] = {}

    # Registration

    def register(self, host: SimHost) -> None:
        """Now; the host can be reached."""
        found = tuple(
            TaskFound(process.key, process.index + 1_000, process.alive)
            for process in host.processes.values()
            if process.alive or process.ended
        )
        event = events.HostRegistered(
            host.name,
            f"agent-{host.name}",
            f"boot-{host.boot}",
            f"{host.name}.fleet",
            devices=self._gpus,
            cpu_millis=128_000,
            memory_mib=1_048_576,
            ports=(29_400, 29_401),
            tasks=found,
        )
        record = self._leader.ask(event, f"client:agent-{host.name}")
        if not record.accepted:
            raise AssertionError(f"{host.name} cannot register: {record.rejection}")
        host.incarnation = record.result
        host.reports = 0
        host.outbox = []
        for process in [one for one in host.processes.values() if one.ended]:
            self._report_end(host, process, told=True)

    # Plans

    def plans_changed(self, names: list[str]) -> None:
        """The servers have newer plans; connected agents get them."""
        rows = self._leader.state.hosts
        for name in names:
            host = self.hosts[name]
            if not rows[name].tasks and all(one.ended for one in host.processes.values()):
                continue  # An empty plan for an empty host.
            if host.reachable(self._agenda.now_ms):
                self.fetch_plan(host)

    def fetch_plan(self, host: SimHost) -> None:
        """It arrives as long after the change as any other; one that is outdated by then does not
        arrive: the newer one is on its way."""
        version = self._leader.state.hosts[host.name].plan_version
        self._agenda.after(self._plan_ms, self._plan_arrives, host, version)

    def _plan_arrives(self, host: SimHost, version: int) -> None:
        state = self._leader.state
        row = state.hosts[host.name]
        if row.plan_version != version or not host.reachable(self._agenda.now_ms):
            return
        plan = host_plan(state, host.name)
        if plan.incarnation != host.incarnation or row.status not in LIVE_HOST:
            return
        for order in plan.tasks:
            if order.action == Action.STOP:
                self._stop(host, order)
            elif order.task not in host.processes and order.generation > host.newest_generation:
                self._launch(host, order)
        ordered = [order.task for order in plan.tasks]
        for key in [key for key in host.processes if key not in ordered]:
            self._end_unwanted(host, host.processes[key])

    def _launch(self, host: SimHost, order: TaskOrder) -> None:
        process = Process(order.task, order.generation, order.index)
        host.processes[order.task] = process
        host.newest_generation = order.generation
        delay_ms = self._within(host, self._policy.job.launch_s)
        self._agenda.after(delay_ms, self._launched, host, process)

    def _launched(self, host: SimHost, process: Process) -> None:
        if host.processes.get(process.key) is not process or process.ended:
            return  # Called off, or its machine is gone.
        process.alive = True
        about = (host.name, host.incarnation, process.key)
        self.report(host, events.TaskStarted(*about, process.index + 1_000))
        self.watcher.launched(host, process)

    def _stop(self, host: SimHost, order: TaskOrder) -> None:
        process = host.processes.get(order.task)
        if process is None:
            # Never launched here: there is nothing to end.
            self.report(host, events.TaskReaped(host.name, host.incarnation, order.task))
            host.newest_generation = max(host.newest_generation, order.generation)
        elif not process.alive and not process.ended:
            process.ended = True  # Its launch is called off.
            self._report_end(host, process, told=False)
        elif process.alive and not process.stopping:
            process.stopping = True
            self._signal(host, process, order.grace_ms)

    def _signal(self, host: SimHost, process: Process, grace_ms: int) -> None:
        delay_ms = min(self._within(host, self._policy.job.stop_s), grace_ms)
        if process.stuck:
            self._agenda.after(grace_ms, self._cannot_kill, host, process)
            return
        if self.watcher.saves_when_stopped(process) >= 0:
            write_ms = int(self._policy.job.checkpoint_write_s * 1_000)
            delay_ms = max(delay_ms, write_ms)
        self._agenda.after(delay_ms, self._stopped, host, process)

    def _stopped(self, host: SimHost, process: Process) -> None:
        if not process.alive or host.processes.get(process.key) is not process:
            return
        step = self.watcher.saves_when_stopped(process)
        if step >= 0:
            self.save(host, process, step)
        self.end(host, process, 0, 15)

    def _cannot_kill(self, host: SimHost, process: Process) -> None:
        if process.alive and host.processes.get(process.key) is process:
            about = (host.name, host.incarnation, process.key)
            self.report(host, events.TaskUnkillable(*about, process.index + 1_000))

    def _end_unwanted(self, host: SimHost, process: Process) -> None:
        """The plan does not know it any more."""
        if process.ended or not process.alive:
            process.ended = True
            host.processes.pop(process.key)
        elif not process.stopping:
            process.stopping = True
            self._signal(host, process, 0)

    def _within(self, host: SimHost, most_s: float) -> int:
        """A delay between half of the most and the most."""
        return int(most_s * 1_000 * (0.5 + 0.5 * host.rng.random()))

    # What ranks do

    def end(self, host: SimHost, process: Process, exit_code: int, exit_signal: int) -> None:
        """The process ends, all of its tree with it."""
        process.alive = False
        process.ended = True
        process.exit_code, process.exit_signal = exit_code, exit_signal
        self._report_end(host, process, told=True)

    def save(self, host: SimHost, process: Process, step: int) -> None:
        """The rank's part of a checkpoint is durable."""
        path = self.watcher.path_of(step)
        about = (host.name, host.incarnation, process.key)
        digest = f"{process.generation}/{step}/{process.index}"
        self.report(host, events.ShardSaved(*about, step, path, f"{process.index}", digest))

    def progress(self, host: SimHost, process: Process, step: int) -> None:
        about = (host.name, host.incarnation, process.key)
        self.report(host, events.ProgressReported(*about, step))

    # Reports

    def _report_end(self, host: SimHost, process: Process, *, told: bool) -> None:
        """An end that the plan asked for changes nothing until the task is reaped."""
        about = (host.name, host.incarnation, process.key)
        if told and (self._faithful or not process.stopping):
            exited = events.TaskExited(
                *about,
                exit_code=process.exit_code,
                signal=process.exit_signal,
                expected=process.stopping,
            )
            self.report(host, exited)
        self.report(host, events.TaskReaped(*about))

    def report(self, host: SimHost, event: AnyEvent) -> None:
        """Send it, or keep it until the host can be reached again."""
        if not host.reachable(self._agenda.now_ms) or host.outbox:
            host.outbox.append(event)
            return
        self._send(host, event)

    def flush(self, host: SimHost) -> None:
        """Send what was kept."""
        kept, host.outbox = host.outbox, []
        for event in kept:
            self.report(host, event)

    def _send(self, host: SimHost, event: AnyEvent) -> None:
        record = self._leader.report(host.name, host.incarnation, host.reports + 1, event)
        if record.rejection in _OVER:
            # Its next beat is refused as well, and then it registers.
            host.outbox.append(event)
            return
        host.reports += 1
        if isinstance(event, events.TaskReaped):
            host.processes.pop(event.task, None)
