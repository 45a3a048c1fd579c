"""The fleet model: one run of the real core against hosts that fail, over weeks of log time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from coord.model import decisions, events
from coord.model.decisions import Decision
from coord_sim.fleet.agenda import VERDICTS, Agenda
from coord_sim.fleet.driving import Driving
from coord_sim.fleet.hosts import Agents, Process, SimHost
from coord_sim.fleet.job import Job, job_spec
from coord_sim.fleet.leader import Leader
from coord_sim.fleet.policy import Policy
from coord_sim.fleet.results import FleetResult, result_of
from coord_sim.fleet.schedule import MS_PER_DAY, Schedule, draw
from coord_sim.fleet.strikes import Strikes

FORGET_EVERY = 50_000
"""Entries between two times that the model clears what nobody will write to a disk."""


class FleetModel:
    """A fleet, its failures and its coordinator. `run` it, then ask for its `result`.

    `schedule` may be shared by models of the same fleet, to compare policies on the same failures.
    `every_beat` drives the core with everything a real cluster would record (see `driving.py`): it
    is for small fleets. `watch` is told every decision with its log time.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        hosts: int,
        gpus: int,
        days: float,
        seed: int,
        schedule: Schedule | None = None,
        every_beat: bool = False,
        watch: Callable[[int, Decision], None] | None = None,
    ) -> None:
        if hosts - policy.job.spares < max(policy.job.min_replicas, 1):
            raise ValueError(
                f"{hosts} hosts less {policy.job.spares} spares leave "
                f"{hosts - policy.job.spares} for the job, which needs "
                f"{max(policy.job.min_replicas, 1)}"
            )
        self.policy = policy
        self.hosts, self.gpus, self.days, self.seed = hosts, gpus, days, seed
        self.until_ms = int(days * MS_PER_DAY)
        self._watch = watch
        self.schedule = schedule or draw(policy, hosts=hosts, gpus=gpus, days=days, seed=seed)
        self.agenda = Agenda()
        self.leader = Leader(self.agenda, self._decided, self._plans_changed)
        self.agents = Agents(self.agenda, self.leader, policy, gpus, faithful=every_beat)
        for number in range(hosts):
            host = SimHost(number, seed, lemon=number in self.schedule.lemons)
            self.agents.hosts[host.name] = host
        desired = hosts - policy.job.spares
        self.job = Job(self.agenda, self.leader, self.agents, policy, desired)
        self.driving = Driving(
            self.agenda,
            self.leader,
            self.agents,
            policy,
            self.job.report_progress,
            self.job.sync,
            every_beat=every_beat,
        )
        self.job.driving = self.driving
        self.strikes = Strikes(
            self.agenda, self.leader, self.agents, self.driving, self.job, policy
        )
        self.agents.watcher = self
        self._handlers: dict[type[Decision], Callable[[Any], None]] = self._handling()
        self._finished = False

    # Running

    def run(self) -> None:
        """All of it, at once."""
        for _ in self.days_passed():
            pass

    def days_passed(self, per_day: int = 24) -> Iterator[float]:
        """Run, and hand over now and then how many days are done. May be left at any moment; the
        result is then that of the time so far."""
        self._open()
        shown_ms = 0
        forgotten = 0
        while self._advance():
            if self.agenda.now_ms - shown_ms >= MS_PER_DAY // per_day:
                shown_ms = self.agenda.now_ms
                yield shown_ms / MS_PER_DAY
            if self.leader.entries - forgotten > FORGET_EVERY:
                forgotten = self.leader.entries
                self.leader.forget_changes()
        self.agenda.now_ms = self.until_ms
        yield self.days

    def result(self) -> FleetResult:
        """What came out, of the time that was run. Ends the run."""
        if not self._finished:
            self._finished = True
            self.job.finish()
        return result_of(self)

    def _open(self) -> None:
        self.leader.open(self.policy.core.settings())
        for host in self.agents.hosts.values():
            self.agents.register(host)
            self.driving.begin(host)
        self.driving.start()
        for fault in self.schedule.faults:
            self.strikes.foresee(fault)
        spec = job_spec(self.policy, self.hosts, self.gpus)
        self.leader.ask(events.JobSubmitted(spec, "operator"))

    def _advance(self) -> bool:
        """The next thing that happens; False when nothing does before the end."""
        due = self.agenda.next_due()
        if self.driving.every_beat:
            clock_ms = self.leader.next_due_ms()
            now_ms = self.agenda.now_ms
            if clock_ms is not None and (due is None or (clock_ms, VERDICTS) < due):
                if max(clock_ms, now_ms) > self.until_ms:
                    return False
                self.agenda.now_ms = max(clock_ms, now_ms)
                self.driving.verdicts()
                return True
        if due is None or due[0] > self.until_ms:
            return False
        self.agenda.take()
        return True

    # What ranks do

    def launched(self, host: SimHost, process: Process) -> None:
        self.job.launched(host, process)
        self.strikes.launched(host)

    def saves_when_stopped(self, process: Process) -> int:
        return self.job.saves_when_stopped(process)

    def path_of(self, step: int) -> str:
        return self.job.path_of(step)

    # What is decided

    def _plans_changed(self, names: list[str]) -> None:
        self.agents.plans_changed(names)

    def _decided(self, decision: Decision) -> None:
        if self._watch is not None:
            self._watch(self.agenda.now_ms, decision)
        handler = self._handlers.get(type(decision))
        if handler is not None:
            handler(decision)

    def _handling(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {
            decisions.TasksPlaced: self.job.placed,
            decisions.TasksStopping: self._stopping,
            decisions.RestartScheduled: self.job.restart_scheduled,
            decisions.JobQueued: self.job.queued,
            decisions.JobFailed: self.job.failed,
            decisions.SpareActivated: self._spare_used,
            decisions.HangDetected: self._hang,
            decisions.HostSuspected: self._suspected,
            decisions.HostLost: self.strikes.lost,
            decisions.HostDrained: self._drained,
            decisions.HostQuarantined: self.strikes.quarantined,
            decisions.EvictionsFrozen: self._frozen,
        }

    def _stopping(self, decision: decisions.TasksStopping) -> None:
        tally = self.job.tally
        rightly = self.job.stopping(decision)
        if decision.reason.startswith("not started within"):
            tally.launches_given_up += 1
            tally.launches_given_up_falsely += not rightly
        self.strikes.generation_stopped()

    def _spare_used(self, decision: decisions.SpareActivated) -> None:
        self.job.tally.spares_used += 1

    def _hang(self, decision: decisions.HangDetected) -> None:
        """Decided before its consequences, so the generation is still as it truly was."""
        generation = self.job.generation
        self.job.tally.hangs += 1
        self.job.tally.hangs_falsely += generation is not None and generation.broken_ms < 0

    def _suspected(self, decision: decisions.HostSuspected) -> None:
        self.job.tally.hosts_suspected += 1

    def _drained(self, decision: decisions.HostDrained) -> None:
        self.strikes.emptied(decision.host)

    def _frozen(self, decision: decisions.EvictionsFrozen) -> None:
        self.strikes.frozen()
