"""Random histories of a fleet that is shared, under the newest rules.

As `core_world`, and besides: hosts stand in racks, jobs wait in queues with quotas and may be
preempted, roles recover as drawn (`World(recovery=True)`), devices fail, racks fall silent, and
operators quarantine, approve and release.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.model import events
from coord.model.care import OUT_OF_FLEET, QuarantineState
from coord.model.entry import Origin, Recorded
from coord.model.events import AnyEvent
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.place import Place
from coord.model.queue import QueueSpec
from coord.model.settings import Policy, QuarantineSettings, SilenceSettings
from coord.model.spec import JobSpec
from coord_sim.core_world.machines import Machine
from coord_sim.core_world.run import Outcome
from coord_sim.core_world.run import run as run_world
from coord_sim.core_world.world import SETTINGS, World
from coord_sim.mutants.shared_rules import SharedTruth

NEWEST = 2
"""Logic version."""
RACKS = ("r0", "r1", "r2")
QUEUES = ("p", "q")
POLICY = Policy(
    quarantine=QuarantineSettings(
        free_hosts=1,
        share_permille=400,
        evidence_ms=20_000,
        drain_ms=3_000,
        test_ms=3_000,
        probation_ms=8_000,
        memory_ms=60_000,
    ),
    silence=SilenceSettings(grace_ms=3_000),
)
SHARED = replace(SETTINGS, breaker_min_hosts=2, breaker_share_permille=800, policy=POLICY)
FELL_OFF_THE_BUS = 79


class SharedFleet(World):
    """Everything comes from one seed."""

    def __init__(self, seed: int, *, twin: bool = True) -> None:
        super().__init__(seed, twin=twin, recovery=True)
        for number in range(len(self.machines), self.rng.randrange(4, 9)):
            self.add_machine(f"h{number}")
        for name in QUEUES:
            self.configure(name)

    # Entries

    def send(
        self, event: AnyEvent, origin: Origin | None = None, *, term: int | None = None
    ) -> Recorded:
        if isinstance(event, events.ClusterConfigured):
            self.truth = SharedTruth(self.state, self.machines, SHARED)
            event = events.ClusterConfigured(event.cluster, SHARED, NEWEST)
        return super().send(event, origin, term=term)

    def ask(self, event: AnyEvent) -> Recorded:
        if isinstance(event, events.JobSubmitted):
            event = replace(event, spec=self._shared(event.spec))
        return super().ask(event)

    def _shared(self, spec: JobSpec) -> JobSpec:
        """The job with its place among others."""
        return replace(
            spec,
            queue=self.rng.choice((*QUEUES, "")),
            priority=self.rng.randrange(3),
            preemptible=self.rng.random() < 0.7,
        )

    # What goes well

    def agents(self) -> None:
        super().agents()
        for machine in self.machines.values():
            host = self.state.hosts.get(machine.name)
            if host is None or not host.test or not self._beats(machine):
                continue
            outcome = HealthOutcome.PASSED if self.rng.random() < 0.7 else HealthOutcome.FAILED
            told = events.HealthChecked(
                machine.name,
                machine.incarnation,
                "gpu",
                outcome,
                CheckOccasion.ON_REQUEST,
                test=host.test,
            )
            if told not in machine.outbox and self.rng.random() < 0.3:
                machine.outbox.append(told)
        if self.quiet:
            self._put_right()

    def _put_right(self) -> None:
        """What operators do once all is calm: every host is taken back."""
        for name in sorted(self.state.quarantines):
            row = self.state.quarantines[name]
            if row.state == QuarantineState.PROPOSED:
                self.ask(events.QuarantineAnswered(name, row.version, False, "me"))
            elif row.state != QuarantineState.NONE:
                self.ask(events.HostReleaseRequested(name, "me", repaired=True))

    def calm_down(self, rounds: int = 240) -> None:
        """Nobody waits for a quota any more."""
        for name in QUEUES:
            self.ask(events.QueueConfigured(QueueSpec(name, 100), "me"))
        super().calm_down(rounds)

    # Who is there

    def add_machine(self, name: str) -> None:
        super().add_machine(name)
        machine = self.machines[name]
        placed = PlacedMachine(name, machine.devices, self.rng.choice(RACKS))
        placed.fence_late_ms = machine.fence_late_ms
        self.machines[name] = placed

    def configure(self, queue: str) -> None:
        """A quota and the right to borrow and to preempt, drawn anew."""
        spec = QueueSpec(
            queue,
            self.rng.randrange(6),
            borrowing_limit=self.rng.choice((-1, 0, 2)),
            lendable_permille=self.rng.choice((1_000, 500)),
            priority=self.rng.randrange(2),
            may_preempt=self.rng.random() < 0.6,
            notice_ms=self.rng.choice((500, 3_000)),
        )
        self.ask(events.QueueConfigured(spec, "me"))

    # Running

    def live_through(self, steps: int) -> None:
        for _ in range(steps):
            if self.rng.random() < self.fault_rate:
                self.rng.choice(FAULTS)(self)
            super().live_through(1)


class PlacedMachine(Machine):
    """One that says in which rack it stands."""

    def __init__(self, name: str, devices: int, rack: str) -> None:
        super().__init__(name, devices)
        self.rack = rack

    def registration(self) -> tuple[Origin, events.HostRegistered]:
        origin, event = super().registration()
        return origin, replace(event, place=Place(rack=self.rack))


# What goes wrong


def _device_fails(world: SharedFleet) -> None:
    """On one host, or on several soon after each other: more than may go without approval."""
    for _ in range(world.rng.choice((1, 1, 2, 4))):
        machine = world.rng.choice(list(world.machines.values()))
        if machine.registered and machine.powered and machine.agent_up:
            about = (machine.name, machine.incarnation)
            machine.outbox.append(events.DeviceFaultSeen(*about, "xid", FELL_OFF_THE_BUS))


def _rack_falls_silent(world: SharedFleet) -> None:
    """For shorter or longer than its hosts' leases and what is waited for all of it."""
    rack = world.rng.choice(RACKS)
    over_ms = world.true_ms + world.rng.choice((2_500, 5_000, 7_000, 12_000))
    for machine in world.machines.values():
        if isinstance(machine, PlacedMachine) and machine.rack == rack and machine.connected:
            machine.connected = False
            world.blips.append((over_ms, machine))
            if world.rng.random() < 0.4:
                world.tick()


def _quarantined(world: SharedFleet) -> None:
    name = world.rng.choice(list(world.machines))
    world.ask(events.HostQuarantineRequested(name, "me", "looks ill"))


def _answered(world: SharedFleet) -> None:
    """A proposal is approved or declined, or one that was made anew since it was read."""
    asked = [
        row for row in world.state.quarantines.values() if row.state == QuarantineState.PROPOSED
    ]
    if asked:
        row = world.rng.choice(asked)
        version = row.version - world.rng.choice((0, 0, 1))
        approved = world.rng.random() < 0.6
        world.ask(events.QuarantineAnswered(row.host, version, approved, "me"))


def _released(world: SharedFleet) -> None:
    out = [row for row in world.state.quarantines.values() if row.state in OUT_OF_FLEET]
    if out:
        repaired = world.rng.random() < 0.5
        row = world.rng.choice(out)
        world.ask(events.HostReleaseRequested(row.host, "me", repaired=repaired))


def _reconfigured(world: SharedFleet) -> None:
    world.configure(world.rng.choice(QUEUES))


def _crowded(world: SharedFleet) -> None:
    """More jobs than there is room for."""
    for _ in range(2):
        world.submit()


FAULTS = (
    *(_device_fails,) * 3,
    *(_rack_falls_silent,) * 3,
    _quarantined,
    *(_answered,) * 2,
    *(_released,) * 2,
    _reconfigured,
    _crowded,
)
"""Each as often as it stands here."""


def run(seed: int, steps: int, *, twin: bool = True) -> Outcome:
    """As `core_world.run`."""
    return run_world(seed, steps, twin=twin, kind=SharedFleet)
