"""Random histories: a fleet that obeys, all that goes wrong with it, and what must hold anyway."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from coord.core.plans import host_plan
from coord.core.state import LIVE_HOST
from coord.model import decisions, events
from coord.model.entities import ENDED_GANG, FINISHED_JOB, GangPhase, HostStatus
from coord.model.entry import Origin, Recorded
from coord.model.events import AnyEvent
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

from .driver import Driver
from .machines import Machine, Process

SETTINGS = Settings(
    lease_ms=3_000,
    suspect_ms=1_500,
    heartbeat_ms=500,
    fence_ms=2_000,
    launch_timeout_ms=8_000,
    unkillable_ms=2_000,
    hold_ms=10_000,
    breaker_window_ms=3_000,
    request_window=8,
    finished_jobs_kept=2,
)
GRACE_MS = 1_000
LAST_STEP = 12


class World:
    """Machines, clients, a leader and its clock. Everything comes from one seed."""

    def __init__(self, seed: int, *, twin: bool = True) -> None:
        self.rng = Random(seed)
        self.driver = Driver(twin=twin)
        self.state = self.driver.state
        self.true_ms = 0
        self.jumps: list[int] = []
        """True times at which the leader's clock jumped ahead."""
        self.machines: dict[str, Machine] = {}
        self.requests = 0
        self.asked: list[tuple[Origin, AnyEvent]] = []
        self.old_plans: list[Any] = []
        self.jobs = 0
        self.ended: dict[str, str] = {}
        self.generations: Counter[str] = Counter()
        self.restored: dict[str, int] = {}
        self.incarnations: Counter[str] = Counter()
        self.blips: list[tuple[int, Machine]] = []
        self.quiet = False
        self.fault_rate = self.rng.choice((0.05, 0.15, 0.3))
        self.send(events.LeaderElected(1, 1))
        self.send(events.ClusterConfigured("c", SETTINGS))
        for number in range(self.rng.randrange(2, 8)):
            self.add_machine(f"h{number}")
        self.submit()

    # Entries

    def send(self, event: AnyEvent, origin: Origin | None = None) -> Recorded:
        record = self.driver.send(event, origin=origin)
        self.look_at(record)
        return record

    def ask(self, event: AnyEvent) -> Recorded:
        """A client's request, which may be repeated later."""
        self.requests += 1
        origin = Origin("client:me", 0, self.requests)
        self.asked.append((origin, event))
        return self.send(event, origin)

    def pass_time(self, ms: int) -> None:
        self.true_ms += ms
        self.driver.wall_ms += ms
        for over_ms, machine in self.blips:
            machine.connected = machine.connected or self.true_ms >= over_ms
        self.blips = [blip for blip in self.blips if blip[0] > self.true_ms]
        for machine in self.machines.values():
            machine.pass_time(self.true_ms, SETTINGS.lease_ms)
        self.look_at_machines()

    def tick(self) -> None:
        """Beats of everyone who can be heard, then the clock."""
        self.pass_time(self.rng.randrange(50, 500))
        heard = [machine for machine in self.machines.values() if self._beats(machine)]
        pairs = sorted(
            (self.state.hosts[machine.name].slot, machine.incarnation) for machine in heard
        )
        if pairs:
            slots, incarnations = zip(*pairs, strict=True)
            self.send(events.HeartbeatsSeen("node:1", slots, incarnations))
        for machine in heard:
            host = self.state.hosts[machine.name]
            if host.status in LIVE_HOST and host.incarnation == machine.incarnation:
                machine.last_beat_ms = self.true_ms
            else:
                machine.registered = False
        self.send(events.ClockAdvanced())

    def _beats(self, machine: Machine) -> bool:
        return machine.reachable and machine.registered

    # What goes well

    def agents(self) -> None:
        """Every agent that can: registers, obeys the plan, reports."""
        for machine in self.machines.values():
            if machine.reachable and not machine.registered:
                origin, event = machine.registration()
                record = self.send(event, origin)
                assert record.accepted, record
                machine.joined(record.result, self.true_ms)
            if machine.reachable:
                plan = host_plan(self.state, machine.name)
                if self.rng.random() < 0.3:
                    self.old_plans.append(plan)
                machine.obey(plan, self.rng, self.true_ms)
            self.deliver(machine, self.rng.randrange(4) if not self.quiet else 100)

    def deliver(self, machine: Machine, count: int) -> None:
        """Reports arrive: in order mostly, sometimes too early, sometimes again."""
        for _ in range(count):
            ahead = 1 if not self.quiet and self.rng.random() < 0.05 else 0
            report = machine.next_report(ahead)
            if report is None or not machine.reachable or not machine.registered:
                return
            origin, event = report
            machine.sent.append(report)
            record = self.send(event, origin)
            answer_lost = not self.quiet and self.rng.random() < 0.1
            if not ahead and not answer_lost:  # Else it is sent again.
                machine.answered(record)

    def work(self) -> None:
        """Processes make steps, save, and end well when they have made enough."""
        for machine in self.machines.values():
            for process in list(machine.processes.values()):
                if process.alive and machine.agent_up and self.rng.random() < 0.5:
                    self._work(machine, process)

    def _work(self, machine: Machine, process: Process) -> None:
        started = events.TaskStarted(machine.name, machine.incarnation, process.key, process.pid)
        if started in machine.outbox and not self.quiet:
            return
        if process.role == "service" or process.stalled:
            return
        process.step += 1
        if process.step > LAST_STEP:
            machine.crash(process, 0, 0)
            return
        about = (machine.name, machine.incarnation, process.key)
        machine.outbox.append(events.ProgressReported(*about, process.step))
        if process.step % 3 == 0:
            path = f"/c/{process.step}-{process.generation}"
            machine.outbox.append(events.CheckpointBegun(*about, process.step, path))
            digest = f"{process.generation}/{process.step}/{process.index}"
            machine.outbox.append(
                events.ShardSaved(*about, process.step, path, f"{process.index}", digest)
            )

    # What goes wrong

    def add_machine(self, name: str) -> None:
        self.machines[name] = Machine(name, self.rng.randrange(1, 4))

    def submit(self) -> None:
        self.jobs += 1
        roles = [self._role("trainer", gang=True)]
        if self.rng.random() < 0.4:
            roles.append(self._role("sampler", gang=False))
        if self.rng.random() < 0.3:
            roles.append(RoleSpec("service", ("s",), gang=False, service=True, grace_ms=GRACE_MS))
        policy = RestartPolicy(
            user_limit=self.rng.randrange(6),
            infrastructure_limit=self.rng.randrange(2, 12),
            no_progress_limit=self.rng.randrange(0, 5),
            backoff_ms=500,
            backoff_max_ms=2_000,
        )
        name = f"j{self.jobs}" if self.rng.random() < 0.8 else f"j{self.rng.randrange(1, 4)}"
        if name in self.ended and name not in self.state.jobs:
            return  # A forgotten job's name: its history would be mixed up with the new one's.
        self.ask(events.JobSubmitted(JobSpec(name, tuple(roles), policy), "me"))

    def _role(self, name: str, *, gang: bool) -> RoleSpec:
        replicas = self.rng.randrange(1, 4)
        return RoleSpec(
            name,
            ("train",),
            replicas=replicas,
            min_replicas=self.rng.randrange(replicas + 1),
            max_replicas=replicas + self.rng.randrange(3),
            gang=gang,
            exclusive=self.rng.random() < 0.3,
            spares=self.rng.randrange(2) if gang else 0,
            resources=Resources(
                self.rng.choice((0, 1, 1, 2)), self.rng.choice((0, 500, 2_000)), 128
            ),
            grace_ms=GRACE_MS,
            hang_ms=self.rng.choice((0, 3_000, 6_000)),
        )

    def fault(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        running = [process for process in machine.processes.values() if process.alive]
        kind = self.rng.choice(FAULTS)
        if kind in ("crash", "stubborn", "stall"):
            if running:
                self._hurt(kind, machine, self.rng.choice(running))
        elif kind == "agent" and machine.powered:
            if machine.agent_up:
                machine.agent_crash()
            else:
                machine.agent_up = True
        elif kind == "power":
            machine.power_off() if machine.powered else machine.power_on()
        elif kind == "network":
            machine.connected = not machine.connected
        elif kind == "blip" and machine.connected:
            machine.connected = False
            self.blips.append((self.true_ms + 2_000, machine))
        elif kind == "register" and machine.powered:
            machine.registered = False
        elif kind == "leader":
            term = self.state.meta.term + 1
            self.send(events.LeaderElected(self.rng.randrange(1, 4), term))
        elif kind == "clock":
            self._jump()
        else:
            self._disturb(kind, machine)

    def _hurt(self, kind: str, machine: Machine, process: Process) -> None:
        if kind == "crash":
            code, signal = self.rng.choice(((1, 0), (93, 0), (0, 9), (0, 11), (7, 0), (0, 0)))
            machine.crash(process, code, signal)
        elif kind == "stall":
            process.stalled = True
        else:
            # The contract of exclusive tasks is that something ends them: agent, watchdog, power.
            process.stubborn = not process.exclusive

    def _jump(self) -> None:
        if self.rng.random() < 0.5:
            self.driver.wall_ms -= 3_600_000
        elif not self.jumps or self.true_ms - self.jumps[-1] > 10_000:
            self.jumps.append(self.true_ms)
            self.driver.wall_ms += 3_600_000

    def _disturb(self, kind: str, machine: Machine) -> None:
        known = machine.name in self.state.hosts
        if kind == "stale" and machine.sent:
            origin, event = self.rng.choice(machine.sent)
            self.send(event, origin)
        elif kind == "old plan" and self.old_plans:
            plan = self.rng.choice(self.old_plans)
            if self.machines[plan.host].reachable:
                self.machines[plan.host].obey(plan, self.rng, self.true_ms)
        elif kind == "repeat" and self.asked:
            origin, event = self.rng.choice(self.asked)
            before = len(self.state.jobs)
            record = self.send(event, origin)
            assert not record.decisions, "a repeated request took effect twice"
            assert len(self.state.jobs) == before
        elif kind == "operator" and known:
            self._operate(machine)
        elif kind == "job":
            self._about_a_job()

    def _operate(self, machine: Machine) -> None:
        name = machine.name
        host = self.state.hosts[name]
        what = self.rng.randrange(6)
        if what == 0:
            self.ask(events.DrainRequested(name, "me"))
        elif what in (1, 2):
            self.ask(events.UndrainRequested(name, "me"))
        elif what == 3:
            grace_ms = self.rng.randrange(3_000)
            notice = events.PreemptionNoticed(name, host.incarnation, grace_ms)
            self.send(notice, Origin("client:cloud", 0, self.true_ms + 1))
        elif what == 4 and not machine.powered:
            # Who removes a lost host vouches for its end.
            self.ask(events.HostRemovalRequested(name, "me"))
        else:
            self.ask(events.EvictionsAllowed("me", "looked"))

    def _about_a_job(self) -> None:
        what = self.rng.randrange(5)
        names = [name for name, job in self.state.jobs.items() if job.status not in FINISHED_JOB]
        if what < 2 or not names:
            self.submit()
            return
        name = self.rng.choice(names)
        if what == 2:
            self.ask(events.JobCancelRequested(name, "me"))
            return
        role = self.rng.choice(self.state.jobs[name].spec.roles)
        replicas = self.rng.randrange(max(role.smallest, 1), role.largest + 2)
        self.ask(events.JobResizeRequested(name, role.name, replicas, "me"))

    # Running

    def live_through(self, steps: int) -> None:
        for _ in range(steps):
            if self.rng.random() < self.fault_rate:
                self.fault()
            if self.rng.random() < 0.6:
                self.tick()
            if self.rng.random() < 0.6:
                self.agents()
            if self.rng.random() < 0.4:
                self.work()

    def calm_down(self, rounds: int = 240) -> None:
        """Faults stop, agents obey, operators look: whatever fits must run to its end."""
        self.quiet = True
        for machine in self.machines.values():
            machine.connected = True
            if not machine.powered:
                machine.power_on()
            machine.agent_up = True
            for process in machine.processes.values():
                process.stubborn = process.stalled = False
        for _ in range(rounds):
            self.tick()
            self.agents()
            self.work()
            if self.state.meta.frozen:
                self.ask(events.EvictionsAllowed("me", "looked"))
            if all(job.status in FINISHED_JOB for job in self.state.jobs.values()):
                return

    # What must hold

    def look_at(self, record: Recorded) -> None:
        for decision in record.decisions:
            if isinstance(decision, decisions.HostLost):
                self._look_at_loss(decision.host)
            elif isinstance(decision, decisions.HostJoined):
                assert decision.incarnation > self.incarnations[decision.host]
                self.incarnations[decision.host] = decision.incarnation
            elif isinstance(decision, decisions.TasksPlaced):
                assert decision.generation > self.generations[decision.job]
                self.generations[decision.job] = decision.generation
                assert decision.restore_step >= self.restored.get(decision.gang, -1)
                self.restored[decision.gang] = decision.restore_step
            elif isinstance(decision, decisions.CheckpointCommitted):
                self._look_at_checkpoint(decision)
            elif isinstance(
                decision, decisions.JobCompleted | decisions.JobFailed | decisions.JobCancelled
            ):
                assert decision.job not in self.ended, "a finished job stays finished"
                self.ended[decision.job] = type(decision).__name__

    def _look_at_loss(self, name: str) -> None:
        """Only true silence kills, whatever the leader's clock did."""
        machine = self.machines[name]
        jumps = sum(1 for at_ms in self.jumps if at_ms >= machine.last_beat_ms)
        silent_ms = self.true_ms - machine.last_beat_ms
        assert silent_ms >= SETTINGS.lease_ms - jumps * SETTINGS.max_step_ms - 500, name

    def _look_at_checkpoint(self, decision: decisions.CheckpointCommitted) -> None:
        gang = self.state.gangs[decision.gang]
        assert gang.generation == decision.generation, "an old generation commits nothing"
        saved = self.state.newest_checkpoint(decision.gang)
        assert saved is not None
        assert saved.step == decision.step
        for shard in saved.shards:
            assert shard.startswith(f"{decision.generation}/{decision.step}/")

    def look_at_machines(self) -> None:
        for machine in self.machines.values():
            owners: Counter[int] = Counter()
            for process in machine.processes.values():
                if process.alive:
                    owners.update(process.devices)
            assert all(count == 1 for count in owners.values()), f"{machine.name}: {owners}"
        exclusive = Counter(
            (process.job, process.role, process.index)
            for machine in self.machines.values()
            for process in machine.processes.values()
            if process.alive and process.exclusive
        )
        assert all(count == 1 for count in exclusive.values()), exclusive

    def unmet(self) -> list[str]:
        """Gangs that are not done although all is calm and the fleet has room for them."""
        room = [
            host
            for host in self.state.hosts.values()
            if host.status == HostStatus.UP and not host.drain and not host.quarantine
        ]
        found = []
        for gang in self.state.gangs.values():
            job = self.state.jobs[gang.job]
            role = job.spec.role(gang.role)
            assert role is not None
            if gang.phase in ENDED_GANG or (role.service and gang.phase == GangPhase.RUNNING):
                continue
            need, wanted = role.resources, min(role.smallest, gang.desired) if role.gang else 1
            fits = sum(
                min(
                    host.devices // need.devices if need.devices else wanted,
                    host.cpu_millis // need.cpu_millis if need.cpu_millis else wanted,
                    host.memory_mib // need.memory_mib,
                )
                for host in room
            )
            if gang.phase != GangPhase.WAITING or fits >= wanted:
                found.append(f"{gang.key} is {gang.phase} {gang.queue_reason}: {gang.queue_detail}")
        return found


FAULTS = (
    *("crash",) * 5,
    "stubborn",
    *("stall",) * 3,
    *("agent",) * 3,
    *("power",) * 2,
    *("network",) * 3,
    *("blip",) * 2,
    "register",
    *("leader",) * 2,
    "clock",
    *("stale",) * 3,
    *("old plan",) * 2,
    *("repeat",) * 2,
    *("operator",) * 3,
    *("job",) * 3,
)
