"""Things that go wrong together: most rules of recovery matter only where two events meet.

Each may happen by chance as well, from single faults one after the other, but seldom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coord.core.state import LIVE_HOST
from coord.model import events
from coord.model.entities import Gang, GangPhase, TaskStatus

from .machines import Machine, Process

if TYPE_CHECKING:
    from .world import World

LEFTOVER_MS = (600, 2_000, 4_000)
"""How much longer than its main process something of a process tree may live."""


def come_back_smaller(world: World, _machine: Machine) -> None:
    """A device fails, and its host reboots without it: one that somebody is about to start on, or
    has kept."""
    if world.rng.random() < 0.5:
        world.submit()
    promised: dict[str, int] = {}
    for task in world.state.tasks.values():
        if task.status == TaskStatus.PLACED and task.devices:
            promised[task.host] = max(promised.get(task.host, 0), *task.devices)
    for gang in world.state.gangs.values():
        for hold in gang.holds:
            if hold.devices:
                promised[hold.host] = max(promised.get(hold.host, 0), *hold.devices)
    able = [name for name in promised if world.machines[name].powered]
    if not able:
        return
    machine = world.machines[world.rng.choice(able)]
    machine.power_off()
    machine.power_on()
    machine.devices = min(machine.devices, promised[machine.name])


def told_again(world: World, machine: Machine) -> None:
    """A process has ended and something of it lives on; before that is gone its agent starts anew,
    and tells the new incarnation what it finds."""
    running = _running(machine)
    if not running or not machine.heard(world.true_ms) or not machine.registered:
        return
    process = world.rng.choice(running)
    process.linger_ms = world.rng.choice(LEFTOVER_MS)
    machine.crash(process, 0 if world.rng.random() < 0.6 else 1, 0)
    world.deliver(machine, len(machine.outbox))
    if world.rng.random() < 0.5:
        machine.agent_crash()
        machine.agent_up = True
    machine.registered = False


def end_and_more(world: World, _machine: Machine) -> None:
    """A gang ends, well or badly, and while it is tidied up something else befalls it."""
    gangs = [gang for gang in world.state.gangs.values() if gang.phase == GangPhase.RUNNING]
    if not gangs:
        return
    gang = world.rng.choice(gangs)
    _end(world, gang)
    for _ in range(world.rng.choice((1, 1, 2, 3))):
        world.rng.choice(BESIDES)(world, gang)
        if world.rng.random() < 0.3:
            world.tick()


def _end(world: World, gang: Gang) -> None:
    """All of it has done its work, or one of it fails; told at once."""
    members = list(_members(world, gang))
    code = world.rng.choice((0, 0, 1, 93))
    if code and members:
        members = [world.rng.choice(members)]
    for machine, process in members:
        if not process.linger_ms and world.rng.random() < 0.5:
            process.linger_ms = world.rng.choice(LEFTOVER_MS)
        machine.crash(process, code, 0)
    for machine in dict.fromkeys(machine for machine, _ in members):
        if machine.heard(world.true_ms):
            world.deliver(machine, len(machine.outbox))


# What else may happen to a gang


def _cancelled(world: World, gang: Gang) -> None:
    if gang.job in world.state.jobs:
        world.ask(events.JobCancelRequested(gang.job, "me"))


def _resized(world: World, gang: Gang) -> None:
    job = world.state.jobs.get(gang.job)
    role = job.spec.role(gang.role) if job is not None else None
    if role is not None:
        replicas = world.rng.randrange(max(role.smallest, 1), role.largest + 1)
        world.ask(events.JobResizeRequested(gang.job, gang.role, replicas, "me"))


def _killed(world: World, gang: Gang) -> None:
    """The rest of it, from outside and before it was told to stop."""
    for machine, process in _members(world, gang):
        if not process.dies_at_ms:
            machine.crash(process, 0, 9)
            if machine.heard(world.true_ms):
                world.deliver(machine, len(machine.outbox))


def _unplugged(world: World, gang: Gang) -> None:
    machine = _one_of_its_machines(world, gang)
    if machine is not None and machine.powered:
        machine.power_off()


def _cut_off(world: World, gang: Gang) -> None:
    machine = _one_of_its_machines(world, gang)
    if machine is not None:
        machine.connected = False


def _noticed(world: World, gang: Gang) -> None:
    """The cloud takes its machine away."""
    machine = _one_of_its_machines(world, gang)
    host = world.state.hosts.get(machine.name) if machine is not None else None
    if host is not None and host.status in LIVE_HOST:
        grace_ms = world.rng.randrange(3_000)
        world.notice(events.PreemptionNoticed(host.host, host.incarnation, grace_ms))


def _one_of_its_machines(world: World, gang: Gang) -> Machine | None:
    names = list(dict.fromkeys(gang.hosts))
    return world.machines[world.rng.choice(names)] if names else None


BESIDES: tuple[Callable[[World, Gang], None], ...] = (
    *(_cancelled,) * 2,
    *(_resized,) * 2,
    *(_killed,) * 2,
    *(_unplugged,) * 2,
    _cut_off,
    _noticed,
)
"""Each as often as it stands here."""


def _members(world: World, gang: Gang) -> list[tuple[Machine, Process]]:
    """What runs of its generation, by index."""
    tasks = [world.state.tasks[key] for key in gang.live if key in world.state.tasks]
    found = [(world.machines[task.host], task.key) for task in tasks]
    return [
        (machine, machine.processes[key])
        for machine, key in found
        if key in machine.processes and not machine.processes[key].exited
    ]


def _running(machine: Machine) -> list[Process]:
    return [process for process in machine.processes.values() if not process.exited]
