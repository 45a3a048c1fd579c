"""Random care of a fleet: evidence, tests, answers, drains, maintenance, reboots, all at once.

Invariants and the twin are checked at every entry by the driver; what they cannot say stands here.
"""

from __future__ import annotations

from random import Random

from coord_sim.core_world.driver import Driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coord.core.plans import host_plan
from coord.core.state import LIVE_HOST, State
from coord.model import events
from coord.model.care import QuarantineState
from coord.model.care_decisions import (
    HostOnProbation,
    HostOutForRepair,
    HostTesting,
    MaintenanceEnded,
    MaintenanceHostOut,
    MaintenanceStalled,
    MovesDue,
    QuarantineProposed,
)
from coord.model.decisions import HostQuarantined
from coord.model.entities import ENDED_GANG, DrainState, GangPhase, HostStatus, TaskStatus
from coord.model.entry import Recorded
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.place import Place
from coord.model.plans import Action
from coord.model.settings import Policy, QuarantineSettings, Settings
from coord.model.spec import JobSpec, Resources, RoleSpec

SETTINGS = Settings(
    lease_ms=60_000,
    suspect_ms=30_000,
    heartbeat_ms=500,
    policy=Policy(
        quarantine=QuarantineSettings(
            share_permille=250,
            free_hosts=1,
            evidence_ms=6_000,
            drain_ms=3_000,
            test_ms=4_000,
            probation_ms=2_000,
            memory_ms=20_000,
        )
    ),
)
SEEDS = st.integers(0, 2**32 - 1)
CI = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


class Fleet:
    """Hosts of two racks with obedient agents, jobs that save, and operators of many minds."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.driver = Driver()
        self.state = self.driver.state
        self.boots: dict[str, int] = {}
        self.tested: dict[str, int] = {}
        """Host -> the last test that its agent answered."""
        self.shown: dict[str, int] = {}
        self.send(events.LeaderElected(1, 1))
        self.send(events.ClusterConfigured("c", SETTINGS, 2))
        for number in range(self.rng.randrange(3, 9)):
            self.boots[f"h{number}"] = 1
            self.register(f"h{number}")
        devices = 2 * len(self.boots)
        for number in range(3):
            replicas = self.rng.randrange(1, max(devices // 3, 2))
            gang = self.rng.random() < 0.7
            role = RoleSpec("t", ("x",), replicas, gang=gang, resources=Resources(devices=1))
            self.send(events.JobSubmitted(JobSpec(f"j{number}", (role,)), "me"))

    def register(self, name: str) -> None:
        place = Place("z", "p", f"r{int(name[1:]) % 2}")
        boot = f"boot-{self.boots[name]}"
        known = self.state.hosts.get(name)
        tasks = tuple(
            events.TaskFound(key, 100)
            for key in (known.tasks if known and known.boot == boot else ())
            if self.state.tasks[key].status != TaskStatus.PLACED
        )
        self.send(
            events.HostRegistered(
                name, f"agent-{name}", boot, f"{name}.lan", 2, tasks=tasks, place=place
            )
        )

    def send(self, event: events.AnyEvent) -> Recorded:
        self.driver.wall_ms += 10
        record = self.driver.send(event)
        for one in record.decisions:
            kind = type(one).__name__
            self.shown[kind] = self.shown.get(kind, 0) + 1
            if isinstance(one, MaintenanceHostOut):
                row = self.state.maintenances[str(one.maintenance)]
                if row.safe:
                    assert devices_missing(self.state) <= 0
        return record

    def live(self, rounds: int) -> None:
        for _ in range(rounds):
            self.driver.wall_ms += self.rng.randrange(100, 900)
            self.rng.choice(DEEDS)(self)
            for name in sorted(self.boots):
                if self.rng.random() < 0.6:
                    self.obey(name)
            if self.rng.random() < 0.3:
                self.save()
            self.beat()
            self.send(events.ClockAdvanced())
            for gang in self.state.gangs.values():
                # Nothing here fails: whatever is moved or taken out costs nobody a restart.
                assert gang.restarts_user == gang.restarts_unknown == 0

    def beat(self) -> None:
        heard = [self.state.hosts[name] for name in self.state.slots]
        slots = tuple(host.slot for host in heard)
        self.send(events.HeartbeatsSeen("node:1", slots, tuple(h.incarnation for h in heard)))

    def obey(self, name: str) -> None:
        host = self.state.hosts[name]
        if host.status not in LIVE_HOST:
            return
        plan = host_plan(self.state, name)
        for order in plan.tasks:
            task = self.state.tasks.get(order.task)
            if task is None:
                continue
            if order.action == Action.RUN and task.status == TaskStatus.PLACED:
                self.send(events.TaskStarted(name, host.incarnation, order.task, 100))
            elif order.action == Action.STOP and self.rng.random() < 0.7:
                if task.status == TaskStatus.STOPPING:
                    self.send(
                        events.TaskExited(
                            name, host.incarnation, order.task, signal=15, expected=True
                        )
                    )
                self.send(events.TaskReaped(name, host.incarnation, order.task))
        if plan.test > self.tested.get(name, 0) and self.rng.random() < 0.6:
            self.tested[name] = plan.test
            self.check(name, CheckOccasion.ON_REQUEST, 0.7)

    def check(self, name: str, occasion: CheckOccasion, passes: float) -> None:
        bad = (HealthOutcome.FAILED, HealthOutcome.TIMED_OUT, HealthOutcome.MISSING)
        outcome = HealthOutcome.PASSED if self.rng.random() < passes else self.rng.choice(bad)
        host = self.state.hosts[name]
        test = host.test if occasion == CheckOccasion.ON_REQUEST else 0
        self.send(events.HealthChecked(name, host.incarnation, "gpu", outcome, occasion, test=test))

    def save(self) -> None:
        """All of a gang save the same step."""
        running = [gang for gang in self.state.gangs.values() if gang.phase == GangPhase.RUNNING]
        if not running:
            return
        gang = self.rng.choice(sorted(running, key=lambda gang: gang.key))
        step = self.state.meta.applied_index
        for key in gang.live:
            task = self.state.tasks[key]
            host = self.state.hosts[task.host]
            self.send(
                events.ShardSaved(task.host, host.incarnation, key, step, f"/c/{step}", "s", "d")
            )

    def host(self) -> str:
        return self.rng.choice(sorted(self.boots))


def devices_missing(state: State) -> int:
    """Devices that gangs want beyond those of hosts that take work or go on with what they have."""
    there = sum(
        host.devices
        for host in state.hosts.values()
        if host.status == HostStatus.UP and not host.drain and not host.quarantine
    )
    on_probation = sum(
        max(host.devices - max(host.probation, len(host.tasks)), 0)
        for host in state.hosts.values()
        if host.probation and not host.drain
    )
    moving = [
        gang
        for gang in state.gangs.values()
        if (gang.phase in (GangPhase.STOPPING, GangPhase.WAITING) and gang.generation)
        or any(state.hosts[state.tasks[key].host].move_by_ms for key in gang.live)
    ]
    staying = sum(
        len(gang.live)
        for gang in state.gangs.values()
        if gang not in moving and gang.phase not in ENDED_GANG
    )
    wanted = sum(gang.desired for gang in moving if not gang.stop_final)
    return wanted + staying - there + on_probation


def _fault(fleet: Fleet) -> None:
    fleet.check(fleet.host(), CheckOccasion.PERIODIC, 0.2)


def _answer(fleet: Fleet) -> None:
    for name, row in sorted(fleet.state.quarantines.items()):
        if row.state == QuarantineState.PROPOSED:
            version = row.version - fleet.rng.choice((0, 0, 0, 1))
            approved = fleet.rng.random() < 0.5
            record = fleet.send(events.QuarantineAnswered(name, version, approved, "me"))
            assert bool(record.rejection) == (version != row.version)
            return


def _quarantine(fleet: Fleet) -> None:
    fleet.send(events.HostQuarantineRequested(fleet.host(), "me"))


def _release(fleet: Fleet) -> None:
    repaired = fleet.rng.random() < 0.5
    fleet.send(events.HostReleaseRequested(fleet.host(), "me", repaired=repaired))


def _drain(fleet: Fleet) -> None:
    within_ms = fleet.rng.choice((0, 1_000, 5_000))
    fleet.send(events.DrainRequested(fleet.host(), "me", within_ms=within_ms))


def _undrain(fleet: Fleet) -> None:
    drained = [
        name for name, host in sorted(fleet.state.hosts.items()) if host.drain != DrainState.NONE
    ]
    if drained:
        fleet.send(events.UndrainRequested(fleet.rng.choice(drained), "me"))


def _reboot(fleet: Fleet) -> None:
    """Of a host on which nothing runs, so that nothing fails by it."""
    empty = [name for name, host in sorted(fleet.state.hosts.items()) if not host.tasks]
    if empty:
        name = fleet.rng.choice(empty)
        fleet.boots[name] += 1
        fleet.register(name)


def _again(fleet: Fleet) -> None:
    fleet.register(fleet.host())


def _maintain(fleet: Fleet) -> None:
    rng = fleet.rng
    level, domain = rng.choice((("rack", "r0"), ("rack", "r1"), ("pod", "z/p")))
    within_ms, safe = rng.choice((0, 2_000)), rng.random() < 0.5
    event = events.MaintenanceRequested(
        level, domain, rng.randrange(1, 3), "me", within_ms=within_ms, safe=safe
    )
    fleet.send(event)


def _cancel(fleet: Fleet) -> None:
    active = [row.maintenance for row in fleet.state.maintenances.values() if not row.ending]
    if active and fleet.rng.random() < 0.3:
        fleet.send(events.MaintenanceCancelled(active[0], "me"))


DEEDS = (
    _fault, _fault, _answer, _answer, _quarantine, _release, _drain, _undrain, _undrain,
    _reboot, _reboot, _again, _maintain, _cancel,
)  # fmt: skip


@CI
@given(SEEDS)
def test_a_fleet_is_cared_for_without_harm(seed: int) -> None:
    """No limit is passed, no safe maintenance takes a place that is needed, no move costs a
    budget; a restarted server decides the same."""
    Fleet(seed).live(60)


def test_the_histories_show_what_they_are_to_show() -> None:
    """They are no proof if nothing of it happens in them."""
    shown: dict[str, int] = {}
    for seed in range(8):
        fleet = Fleet(seed)
        fleet.live(60)
        for kind, count in fleet.shown.items():
            shown[kind] = shown.get(kind, 0) + count
    for kind in (
        HostOnProbation, HostOutForRepair, HostQuarantined, HostTesting, MaintenanceEnded,
        MaintenanceHostOut, MaintenanceStalled, MovesDue, QuarantineProposed,
    ):  # fmt: skip
        assert shown.get(kind.__name__, 0) >= 2, (kind.__name__, shown)
