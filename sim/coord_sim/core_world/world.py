"""Random histories: a fleet that obeys, all that goes wrong with it, and what must hold anyway."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from coord.core.plans import host_plan
from coord.core.state import LIVE_HOST
from coord.model import events
from coord.model.entities import FINISHED_JOB
from coord.model.entry import Origin, Recorded
from coord.model.events import AnyEvent
from coord.model.recovery import RoleRecovery
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

from .driver import Driver
from .faults import fault
from .machines import Machine, Process
from .truth import Truth, unmet
from .violation import CoreViolation

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
    finished_jobs_kept=1,
)
GRACE_MS = 1_000
LAST_STEP = 12


class World:
    """Machines, clients, a leader and its clock. Everything comes from one seed. With `recovery`,
    roles of jobs recover in ways drawn at random, and tell of weights. With `hot`, gangs have
    spares whose processes wait, under the rules of version 2."""

    def __init__(
        self, seed: int, *, twin: bool = True, recovery: bool = False, hot: bool = False
    ) -> None:
        self.rng = Random(seed)
        self.recovery_rng = Random(f"recovery {seed}") if recovery else None
        """Of its own, so that the other draws of a seed stay what they were."""
        self.hot_rng = Random(f"hot spares {seed}") if hot else None
        self.driver = Driver(twin=twin)
        self.state = self.driver.state
        self.true_ms = 0
        self.machines: dict[str, Machine] = {}
        self.truth = Truth(self.state, self.machines, SETTINGS)
        self.requests = 0
        self.notices = 0
        self.asked: list[tuple[Origin, AnyEvent]] = []
        self.old_plans: list[Any] = []
        self.jobs = 0
        self.blips: list[tuple[int, Machine]] = []
        self.quiet = False
        self.fault_rate = self.rng.choice((0.05, 0.15, 0.3))
        self.send(events.LeaderElected(1, 1))
        self.send(events.ClusterConfigured("c", SETTINGS, 2 if hot else 1))
        for number in range(self.rng.randrange(2, 8)):
            self.add_machine(f"h{number}")
        self.submit()

    # Entries

    def send(
        self, event: AnyEvent, origin: Origin | None = None, *, term: int | None = None
    ) -> Recorded:
        record = self.driver.send(event, origin=origin, term=term)
        self.truth.look_at(record, self.true_ms)
        return record

    def ask(self, event: AnyEvent) -> Recorded:
        """A client's request, which may be repeated later."""
        self.requests += 1
        origin = Origin("client:me", 0, self.requests)
        self.asked.append((origin, event))
        return self.send(event, origin)

    def notice(self, event: events.PreemptionNoticed) -> Recorded:
        """Of the cloud, which takes a machine away."""
        self.notices += 1
        return self.send(event, Origin("client:cloud", 0, self.notices))

    def pass_time(self, ms: int) -> None:
        self.true_ms += ms
        self.driver.wall_ms += ms
        for over_ms, machine in self.blips:
            machine.connected = machine.connected or self.true_ms >= over_ms
        self.blips = [blip for blip in self.blips if blip[0] > self.true_ms]
        for machine in self.machines.values():
            machine.pass_time(self.true_ms, SETTINGS.lease_ms)
        self.truth.look_at_machines()

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
        return machine.heard(self.true_ms) and machine.registered

    # What goes well

    def agents(self) -> None:
        """Every agent that can: registers, obeys the plan, reports."""
        for machine in self.machines.values():
            if not machine.heard(self.true_ms):
                continue
            if not machine.registered:
                origin, event = machine.registration()
                record = self.send(event, origin)
                if not record.accepted:
                    raise CoreViolation("an agent may always register again", f"{record}")
                machine.joined(record.result, self.true_ms)
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
                if not process.exited and machine.agent_up and self.rng.random() < 0.5:
                    self._work(machine, process)

    def _work(self, machine: Machine, process: Process) -> None:
        started = events.TaskStarted(machine.name, machine.incarnation, process.key, process.pid)
        if started in machine.outbox and not self.quiet:
            return
        if process.role == "service" or process.stalled or process.standby:
            return
        process.step += 1
        if process.step > LAST_STEP:
            machine.crash(process, 0, 0)
            return
        about = (machine.name, machine.incarnation, process.key)
        if self.recovery_rng is not None:
            machine.outbox += self._weights(about, process)
        machine.outbox.append(events.ProgressReported(*about, process.step))
        if process.step % 3 == 0:
            begun = events.CheckpointBegun(*about, process.step, f"/c/{process.step}")
            machine.outbox.append(begun)
            held, process.held_step = process.held_step, 0
            if not held and process.step < LAST_STEP and self.rng.random() < 0.2:
                process.held_step = process.step
                return
            for step in (process.step, held) if held else (process.step,):
                digest = f"{process.generation}/{step}/{process.index}"
                shard = events.ShardSaved(*about, step, f"/c/{step}", f"{process.index}", digest)
                machine.outbox.append(shard)

    def _weights(self, about: tuple[str, int, str], process: Process) -> list[AnyEvent]:
        known = self.state.weights.get(process.job)
        version = known.version if known is not None else 0
        if process.role == "trainer" and process.step % 2 == 0:
            uri = f"/w/{process.generation}/{process.step}"
            return [events.WeightsPublished(*about, version + 1, process.step, uri)]
        if process.role == "sampler" and version:
            return [events.WeightsLoaded(*about, version)]
        return []

    # Who is there

    def add_machine(self, name: str) -> None:
        machine = Machine(name, self.rng.randrange(1, 4))
        machine.fence_late_ms = self.rng.choice((0, 0, 600))
        self.machines[name] = machine

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
        if name in self.truth.recoveries.ended and name not in self.state.jobs:
            return  # A forgotten job's name: its history would be mixed up with the new one's.
        recovery = self._recovery(roles)
        self.ask(events.JobSubmitted(JobSpec(name, tuple(roles), policy, recovery=recovery), "me"))

    def _recovery(self, roles: list[RoleSpec]) -> tuple[RoleRecovery, ...]:
        rng = self.recovery_rng
        if rng is None:
            if self.hot_rng is None:
                return ()
            return tuple(self._hot(RoleRecovery(role.name), role) for role in roles)
        return tuple(
            self._hot(
                RoleRecovery(
                    role.name,
                    rng.choice(("own", "role", "job", "job")),
                    role.name == "trainer" or rng.random() < 0.5,
                    rng.choice((0, 1_000, 4_000)) if role.gang else 0,
                    rng.choice((0, 1, 5_000)),
                ),
                role,
            )
            for role in roles
            if rng.random() < 0.8
        )

    def _hot(self, recovery: RoleRecovery, role: RoleSpec) -> RoleRecovery:
        hot = self.hot_rng.randrange(role.spares + 1) if self.hot_rng is not None else 0
        return replace(recovery, hot_spares=hot)

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
            spares=self._spares() if gang else 0,
            resources=Resources(
                self.rng.choice((0, 1, 1, 2)), self.rng.choice((0, 500, 2_000)), 128
            ),
            grace_ms=GRACE_MS,
            hang_ms=self.rng.choice((0, 3_000, 6_000)),
        )

    def _spares(self) -> int:
        warm = self.rng.randrange(2)
        return warm if self.hot_rng is None else self.hot_rng.randrange(3)

    # Running

    def live_through(self, steps: int) -> None:
        for _ in range(steps):
            if self.rng.random() < self.fault_rate:
                fault(self)
            if self.rng.random() < 0.6:
                self.tick()
            if self.rng.random() < 0.6:
                self.agents()
            if self.rng.random() < 0.4:
                self.work()

    def calm_down(self, rounds: int = 240) -> None:
        """Faults stop, agents obey, operators look: whatever fits must run to its end. A queue for
        the one host that is left takes up to three times as many rounds."""
        self.quiet = True
        for machine in self.machines.values():
            machine.connected = True
            machine.reconnected_ms = 0
            if not machine.powered:
                machine.power_on()
            machine.agent_up = True
            for process in machine.processes.values():
                process.stubborn = process.stalled = False
        for number in range(3 * rounds):
            if number >= rounds and not self.unmet():
                return
            self.tick()
            self.agents()
            self.work()
            if self.state.meta.frozen:
                self.ask(events.EvictionsAllowed("me", "looked"))
            if all(job.status in FINISHED_JOB for job in self.state.jobs.values()):
                return

    def unmet(self) -> list[str]:
        """Gangs that are not done although all is calm and the fleet has room for them."""
        return list(unmet(self.state))
