"""The training job in truth, beside what the core believes of it."""

from __future__ import annotations

from coord.model import decisions
from coord.model.entities import QueueReason
from coord.model.spec import JobSpec, Resources, RoleSpec
from coord_sim.fleet.agenda import BEATS, Agenda
from coord_sim.fleet.causes import FALSE_VERDICT
from coord_sim.fleet.driving import GANG, Driving
from coord_sim.fleet.hosts import Agents, Process, SimHost
from coord_sim.fleet.leader import Leader
from coord_sim.fleet.ledger import Ledger, Loss, Tally
from coord_sim.fleet.policy import Policy
from coord_sim.fleet.training import Generation, Pace

PLANNED_CAUSES = ("drain", "preemption", "resize")


def job_spec(policy: Policy, hosts: int, gpus: int) -> JobSpec:
    """One gang over all hosts but the spares, a task to a host."""
    name, role = GANG.split("/")
    job = policy.job
    ranks = RoleSpec(
        role,
        ("train",),
        replicas=hosts - job.spares,
        min_replicas=job.min_replicas,
        spares=job.spares,
        resources=Resources(devices=gpus),
        grace_ms=int(job.grace_s * 1_000),
        hang_ms=int(job.hang_s * 1_000),
    )
    return JobSpec(name, (ranks,), policy.budgets.policy(), "/checkpoints")


class Job:
    """One job: its generations as they really go, and the books about its time."""

    def __init__(
        self, agenda: Agenda, leader: Leader, agents: Agents, policy: Policy, desired: int
    ) -> None:
        self._agenda = agenda
        self._leader = leader
        self._agents = agents
        self._policy = policy
        self._desired = desired
        job = policy.job
        self._pace = Pace(
            int(job.checkpoint_interval_s * 1_000),
            int(job.checkpoint_write_s * 1_000),
            max(int(job.step_s * 1_000), 1),
        )
        self._timeout_ms = int(job.collective_timeout_s * 1_000)
        self.driving: Driving
        self.generation: Generation | None = None
        self.ledger = Ledger()
        self.tally = Tally()
        self.over = ""
        """Why it failed, once it has."""
        self.stop_asked_for = ""
        """What an operator's drain is for, while it is asked."""
        self.suspects: list[SimHost] = []
        """Hosts that made this generation hang; who is looked at once it has stopped."""
        self._progress_ms = 0
        self._saved: dict[int, int] = {}
        """Step of a checkpoint -> progress it holds."""
        self._final_step = -1
        """What ranks save before they end, having been told in time."""

    # Who is where

    def process_on(self, host: SimHost) -> Process | None:
        """The rank of the current generation that this host runs or launches."""
        generation = self.generation
        if generation is None or host.name not in generation.members:
            return None
        for process in host.processes.values():
            if process.generation == generation.number and not process.ended:
                return process
        return None

    def member(self, host: SimHost) -> bool:
        """Whether the current generation cannot go on without it."""
        generation = self.generation
        if generation is None or generation.broken_ms >= 0:
            return False
        return host.name in generation.members

    # Truth

    def launched(self, host: SimHost, process: Process) -> None:
        generation = self.generation
        if generation is None or process.generation != generation.number:
            return
        generation.processes += 1
        if generation.processes < len(generation.hosts):
            return
        if generation.broken_ms < 0:
            start_ms = int(self._policy.job.start_s * 1_000)
            self._agenda.after(start_ms, self._begin, generation)
        else:
            self._agenda.after(self._timeout_ms, self._cascade, generation)

    def _begin(self, generation: Generation) -> None:
        """All ranks are connected, and have what they start from."""
        if generation.broken_ms >= 0:
            return
        now_ms = self._agenda.now_ms
        generation.begin(now_ms)
        self.ledger.trains(now_ms)
        self._agenda.at(now_ms + self._pace.step_ms, self._step, generation, order=BEATS)
        self._plan_turn(generation)

    def _step(self, generation: Generation) -> None:
        """The first step, which ends the incident; every other one only where all is told."""
        if generation is not self.generation or not generation.runs:
            return
        before = generation.reported_step
        self.report_progress()
        if self.driving.every_beat or generation.reported_step == before:
            self._agenda.at(
                self._agenda.now_ms + self._pace.step_ms, self._step, generation, order=BEATS
            )

    def _plan_turn(self, generation: Generation) -> None:
        due_ms, whole = generation.next_turn_ms(self._agenda.now_ms)
        if not whole:
            self._report_around(generation, due_ms)
        self._agenda.at(due_ms, self._turn, generation)

    def _report_around(self, generation: Generation, pause_ms: int) -> None:
        """The last steps before a pause: what was done since a report is in the next one."""
        tick_ms = generation.tick_at_or_before(pause_ms)
        self._agenda.at(tick_ms, self._report_of, generation, order=BEATS)
        self._agenda.at(tick_ms + self._pace.step_ms, self._report_of, generation, order=BEATS)

    def _report_of(self, generation: Generation) -> None:
        if generation is self.generation:
            self.report_progress()

    def _turn(self, generation: Generation) -> None:
        """A checkpoint begins or is whole, unless a link made everybody wait meanwhile."""
        if generation is self.generation and generation.runs:
            if self.driving.every_beat:
                self.sync()
            self._plan_turn(generation)

    def stall(self, lasts_ms: int) -> None:
        """A link makes all ranks wait; if it lasts, that looks like a hang."""
        generation = self.generation
        if generation is not None and generation.runs:
            self._report_around(generation, self._agenda.now_ms)
            until_ms = generation.stall(self._agenda.now_ms, lasts_ms)
            pace = self._pace
            self.driving.watch_slow_step(until_ms + pace.write_ms + 2 * pace.step_ms)

    def disturb(self, cause: str) -> None:
        """The current generation cannot go on. Nobody but its ranks knows."""
        generation = self.generation
        if generation is None or generation.broken_ms >= 0:
            return
        now_ms = self._agenda.now_ms
        self._close(generation, cause)
        self.ledger.turn(now_ms, Loss.DETECT, cause)
        self.driving.hung = True
        self.driving.watch_gang()
        self._agenda.after(self._timeout_ms, self._cascade, generation)

    def _close(self, generation: Generation, cause: str) -> None:
        now_ms = self._agenda.now_ms
        running = generation.runs
        generation.end(now_ms, cause)
        if running:
            self.ledger.trained(now_ms, generation)
            self._progress_ms = generation.progress_ms(now_ms)

    def _cascade(self, generation: Generation) -> None:
        """Every rank that still waits for the one that is gone gives up, within a minute."""
        if generation is not self.generation or generation.stopping:
            return
        self.tally.cascades += 1
        for name in generation.hosts:
            host = self._agents.hosts[name]
            process = self.process_on(host)
            if process is not None and process.alive and not process.stuck:
                delay_ms = int(60_000 * host.rng.random())
                self._agenda.after(delay_ms, self._give_up, host, process)

    def _give_up(self, host: SimHost, process: Process) -> None:
        if process.alive and not process.stopping and host.powered:
            self.tally.cascade_exits += 1
            self._agents.end(host, process, 1, 0)

    # What the core is told

    def report_progress(self) -> None:
        """What the first rank said last; the core takes the furthest step of all ranks."""
        generation = self.generation
        if generation is None or not generation.runs or generation.stopping:
            return
        tick_ms = generation.tick_at_or_before(self._agenda.now_ms)
        if tick_ms <= generation.reported_ms:
            return
        generation.reported_ms = tick_ms
        step = generation.step(tick_ms)
        host = self._agents.hosts[generation.hosts[0]]
        process = self.process_on(host)
        if step <= generation.reported_step or process is None:
            return
        if host.reachable(self._agenda.now_ms):
            generation.reported_step = step
            self._agents.progress(host, process, step)

    def sync(self) -> None:
        """The core learns how far the job is: something may end the generation now."""
        generation = self.generation
        if generation is None or not generation.runs or generation.stopping:
            return
        self.report_progress()
        whole = generation.checkpoints(self._agenda.now_ms)
        if whole <= generation.committed:
            return
        now_ms = self._agenda.now_ms
        hosts = [self._agents.hosts[name] for name in generation.hosts]
        if not all(host.reachable(now_ms) for host in hosts):
            return  # Somebody's part is not known to be saved before it can be heard again.
        generation.committed = whole
        step = generation.saved_ms(whole) // self._pace.step_ms
        if step <= self._committed_step():
            return
        self._keep(step, generation.saved_ms(whole))
        # From the last rank to the first: in which order they finish decides nothing.
        for host in reversed(hosts):
            process = self.process_on(host)
            if process is not None:
                self._agents.save(host, process, step)

    def _committed_step(self) -> int:
        newest = self._leader.state.newest_checkpoint(GANG)
        return newest.step if newest else -1

    def _keep(self, step: int, progress_ms: int) -> None:
        self._saved[step] = progress_ms
        for old in sorted(self._saved)[:-8]:
            del self._saved[old]

    def path_of(self, step: int) -> str:
        generation = self.generation.number if self.generation else 0
        return f"/checkpoints/{generation}-{step}"

    def saves_when_stopped(self, process: Process) -> int:
        generation = self.generation
        current = generation is not None and process.generation == generation.number
        return self._final_step if current else -1

    # What the core decided

    def placed(self, decision: decisions.TasksPlaced) -> None:
        now_ms = self._agenda.now_ms
        hosts = tuple(placement.host for placement in decision.placements)
        restored_ms = self._saved[decision.restore_step] if decision.restore else 0
        self.ledger.turn(now_ms, Loss.RESTART)
        self.ledger.rolled_back(self._progress_ms - restored_ms)
        self._progress_ms = restored_ms
        self._final_step = -1
        self.suspects = []
        self.tally.generations += 1
        self.generation = Generation(
            decision.generation, hosts, self._desired, self._pace, restored_ms
        )
        self.driving.hung = False
        # When the entry is done: the rows are not there yet.
        self._agenda.at(now_ms, self.driving.watch_gang)
        self._leader_forgets()
        for host in (self._agents.hosts[name] for name in hosts):
            if host.away:
                # Placed before its silence was noticed: it will never start.
                self.disturb(host.away)

    def _leader_forgets(self) -> None:
        self._agenda.at(self._agenda.now_ms, self._leader.forget_changes)

    def stopping(self, decision: decisions.TasksStopping) -> bool:
        """Whether something was truly wrong, or somebody asked."""
        generation = self.generation
        if generation is None or generation.number != decision.generation:
            return True
        now_ms = self._agenda.now_ms
        cause = generation.broken_by or self.stop_asked_for or FALSE_VERDICT
        if generation.broken_ms < 0:
            healthy = generation.runs
            self._close(generation, cause)
            if healthy and decision.cause in PLANNED_CAUSES:
                self._save_at_the_end(generation)
        generation.stopping = True
        self.ledger.turn(now_ms, Loss.RESTART, cause)
        self.tally.count("restarts", cause)
        self._agenda.at(now_ms, self.driving.watch_gang)
        return cause != FALSE_VERDICT

    def _save_at_the_end(self, generation: Generation) -> None:
        job = self._policy.job
        step = self._progress_ms // self._pace.step_ms
        in_time = job.checkpoint_write_s <= job.grace_s
        if job.checkpoint_on_notice and in_time and step > self._committed_step():
            self._final_step = step
            self._keep(step, self._progress_ms)

    def restart_scheduled(self, decision: decisions.RestartScheduled) -> None:
        self.tally.count("charged", str(decision.cause))
        now_ms = self._agenda.now_ms
        if decision.not_before_ms > now_ms:
            self.driving.look_at(decision.not_before_ms)
        self.driving.look_at(now_ms + self._policy.core.hold_ms)

    def queued(self, decision: decisions.JobQueued) -> None:
        if decision.reason != QueueReason.BACKOFF:
            self.ledger.turn(self._agenda.now_ms, Loss.WAITING)

    def failed(self, decision: decisions.JobFailed) -> None:
        self.over = f"{decision.reason}: {decision.detail}"
        self.ledger.turn(self._agenda.now_ms, Loss.ENDED)
        self.generation = None

    def finish(self) -> None:
        """The run is over: enter what the last generation did."""
        now_ms = self._agenda.now_ms
        if self.generation is not None and self.generation.runs:
            self.ledger.trained(now_ms, self.generation)
        else:
            self.ledger.turn(now_ms, self.ledger.loss)
