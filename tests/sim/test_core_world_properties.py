"""Each property of random histories speaks up when it is broken: by a guard taken out of the
product, in a history that is short and the same every time."""

from __future__ import annotations

import msgspec
import pytest
from coord_sim.core_world import CoreViolation, World, coincidences
from coord_sim.core_world.machines import Machine
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.surgery import applied

from coord.core.state import LIVE_HOST
from coord.model import events
from coord.model.entities import HostStatus
from coord.model.spec import JobSpec, Resources, RoleSpec


def a_world(*roles: RoleSpec, hosts: int = 3) -> World:
    """Hosts of two devices, all of them up, and one job of these roles that is about to start."""
    world = World(1, twin=False)
    for name in world.state.jobs:
        world.ask(events.JobCancelRequested(name, "me"))
    world.quiet = True
    world.machines.clear()
    for number in range(hosts):
        world.add_machine(f"h{number}")
        world.machines[f"h{number}"].devices = 2
    registered(world)
    world.ask(events.JobSubmitted(JobSpec("job", roles), "me"))
    return world


def registered(world: World) -> None:
    """Everyone who is not."""
    for machine in world.machines.values():
        if machine.powered and not machine.registered:
            origin, event = machine.registration()
            machine.joined(world.send(event, origin).result, world.true_ms)


def started(world: World) -> None:
    for _ in range(4):
        world.tick()
        world.agents()


def a_role(devices: int = 1, replicas: int = 1, **given: bool | int) -> RoleSpec:
    need = Resources(devices, 0, 128)
    role = RoleSpec("trainer", ("train",), replicas=replicas, gang=True, resources=need)
    return msgspec.structs.replace(role, grace_ms=1_000, **given)


def host_of(world: World, index: int = 0) -> Machine:
    tasks = [task for task in world.state.tasks.values() if task.index == index]
    return world.machines[tasks[-1].host]


def without_a_device(world: World) -> None:
    world.submit = lambda: None  # type: ignore[method-assign]
    coincidences.come_back_smaller(world, next(iter(world.machines.values())))
    registered(world)


def test_no_order_stays_for_a_device_that_is_gone() -> None:
    """A host that comes back smaller before it has started what it was given."""
    without_a_device(a_world(a_role(devices=2)))
    with applied(MUTANTS["smaller-host-orders"]):
        world = a_world(a_role(devices=2))
        with pytest.raises(CoreViolation, match="no task gets a device that its host lacks"):
            without_a_device(world)


def test_no_place_is_kept_on_a_device_that_is_gone() -> None:
    """A gang's spare."""
    without_a_device(spared())
    with applied(MUTANTS["smaller-host-holds"]):
        world = spared()
        with pytest.raises(CoreViolation, match="no task gets a device that its host lacks"):
            without_a_device(world)


def spared() -> World:
    world = a_world(a_role(devices=2, spares=1), hosts=2)
    started(world)
    assert [hold.spare for gang in world.state.gangs.values() for hold in gang.holds] == [True]
    return world


def exit_told_twice() -> None:
    world = a_world(a_role())
    started(world)
    machine = host_of(world)
    coincidences.told_again(world, machine)
    registered(world)
    world.deliver(machine, 10)


def test_an_exit_counts_once() -> None:
    """Told again by an agent that has registered again, while something of the task lives on."""
    exit_told_twice()
    with (
        applied(MUTANTS["exit-once"]),
        pytest.raises(CoreViolation, match="a task's exit counts once"),
    ):
        exit_told_twice()


def blamed_late() -> World:
    """One rank asks not to be started again, another is then killed from outside."""
    world = a_world(a_role(replicas=2))
    started(world)
    for index, (code, signal) in enumerate(((93, 0), (0, 9))):
        machine = host_of(world, index)
        key = next(key for key, one in machine.processes.items() if one.index == index)
        machine.crash(machine.processes[key], code, signal)
        world.deliver(machine, 10)
    return world


def test_late_evidence_revives_nothing() -> None:
    """Seen when the blame moves, not only if there is room for a restart."""
    blamed_late()
    with (
        applied(MUTANTS["revision-of-the-unwanted"]),
        pytest.raises(CoreViolation, match="who is not wanted stays away"),
    ):
        blamed_late()


def lost_while_it_runs() -> World:
    """An exclusive task on a host that falls silent, and others with room for it."""
    world = a_world(a_role(exclusive=True), hosts=4)
    started(world)
    lost = host_of(world)
    lost.connected = False
    while world.state.hosts[lost.name].status in LIVE_HOST:
        world.tick()
    assert world.state.hosts[lost.name].status == HostStatus.LOST
    return world


def test_nothing_exclusive_starts_beside_what_is_out_of_reach() -> None:
    """Told from the log, whether or not the other one truly runs still."""
    lost_while_it_runs()
    with (
        applied(MUTANTS["fence-awaited-by-lost"]),
        pytest.raises(CoreViolation, match="an exclusive task runs once"),
    ):
        lost_while_it_runs()


def test_a_beat_of_a_life_before_is_told_late() -> None:
    """Late enough for its lease to differ."""
    with applied(MUTANTS["beats-of-this-incarnation"]):
        world = a_world(a_role())
        host_of(world).registered = False
        registered(world)
        name = host_of(world).name
        world.pass_time(200)
        slot = world.state.hosts[name].slot
        with pytest.raises(CoreViolation, match="a beat renews the lease of its own incarnation"):
            world.send(events.HeartbeatsSeen("node:1", (slot,), (1,)))
