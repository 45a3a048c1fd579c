"""What goes wrong in a random history: processes, agents, power, network, leaders, people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coord.core.state import LIVE_HOST
from coord.model import events
from coord.model.entities import GangPhase, HostStatus, TaskStatus
from coord.model.entry import Origin

from . import coincidences
from .machines import Machine, Process
from .violation import CoreViolation

if TYPE_CHECKING:
    from .world import World

RECONNECT_MS = 1_200
"""What agents need at most to find a new leader."""


def fault(world: World) -> None:
    """Let one thing go wrong, drawn by how common it is."""
    machine = world.rng.choice(list(world.machines.values()))
    kinds = RARE if world.rng.random() < 0.08 else FAULTS
    world.rng.choice(kinds)(world, machine)


# Processes


def _running(world: World, machine: Machine) -> Process | None:
    running = [process for process in machine.processes.values() if not process.exited]
    return world.rng.choice(running) if running else None


def _crash(world: World, machine: Machine) -> None:
    process = _running(world, machine)
    if process is not None:
        code, signal = world.rng.choice(((1, 0), (93, 0), (0, 9), (0, 11), (7, 0), (0, 0)))
        machine.crash(process, code, signal)


def _cascade(world: World, machine: Machine) -> None:
    """One rank ends, and takes its peers with it: who was first is not told first. Or all of them
    have done their work."""
    first = _running(world, machine)
    if first is None:
        return
    done = world.rng.random() < 0.3
    for other in world.machines.values():
        for process in other.processes.values():
            ours = (process.job, process.role) == (first.job, first.role)
            if ours and not process.exited and (done or world.rng.random() < 0.8):
                code, signal = world.rng.choice(((1, 0), (1, 0), (93, 0), (0, 9), (0, 6)))
                other.crash(process, 0 if done else code, 0 if done else signal)


def _lose_a_member(world: World, machine: Machine) -> None:
    """The power or the network goes under a gang that keeps a spare place, or is exclusive."""
    state = world.state
    gangs = [gang for gang in state.gangs.values() if gang.live]
    roles = [(gang, state.jobs[gang.job].spec.role(gang.role)) for gang in gangs]
    apt = [gang for gang, role in roles if gang.holds or (role is not None and role.exclusive)]
    if not apt:
        return
    member = state.tasks[world.rng.choice(world.rng.choice(apt).live)]
    world.rng.choice((_power, _network))(world, world.machines[member.host])


def _stall(world: World, machine: Machine) -> None:
    process = _running(world, machine)
    if process is not None:
        process.stalled = True


def _harden(world: World, machine: Machine) -> None:
    """SIGKILL does nothing. What is exclusive still ends by its host's fence, by contract."""
    process = _running(world, machine)
    if process is not None:
        process.stubborn = True


# Machines and their agents


def _agent(world: World, machine: Machine) -> None:
    if machine.powered and machine.agent_up:
        machine.agent_crash()
    elif machine.powered:
        machine.agent_up = True


def _power(world: World, machine: Machine) -> None:
    if machine.powered:
        machine.power_off()
        return
    machine.power_on()
    if world.rng.random() < 0.3:
        machine.devices = max(1, machine.devices + world.rng.choice((-2, -1, 1)))


def _reboot(world: World, machine: Machine) -> None:
    """So fast that its lease holds; rather where something is about to start, or may any time."""
    state = world.state
    if world.rng.random() < 0.5:
        world.submit()
    awaited = {task.host: None for task in state.tasks.values() if task.status == TaskStatus.PLACED}
    awaited.update({hold.host: None for gang in state.gangs.values() for hold in gang.holds})
    if awaited and world.rng.random() < 0.7:
        machine = world.machines[world.rng.choice(list(awaited))]
    if machine.powered:
        machine.power_off()
        machine.power_on()
        if world.rng.random() < 0.5:
            machine.devices = max(1, machine.devices + world.rng.choice((-2, -1, 1)))


def _register(world: World, machine: Machine) -> None:
    if machine.powered:
        machine.registered = False


def _impostor(world: World, machine: Machine) -> None:
    """Another agent, of another data directory, says that it is this host."""
    host = world.state.hosts.get(machine.name)
    if host is None or host.status not in LIVE_HOST:
        return
    event = events.HostRegistered(machine.name, "agent-other", "boot-other", "other.lan")
    record = world.send(event, Origin("client:agent-other", 0, world.true_ms + 1))
    if record.accepted:
        raise CoreViolation("a live host's id is nobody else's", f"{record}")


# Network


def _network(world: World, machine: Machine) -> None:
    machine.connected = not machine.connected


def _blip(world: World, machine: Machine) -> None:
    if machine.connected:
        machine.connected = False
        world.blips.append((world.true_ms + 2_000, machine))


def _switch(world: World, machine: Machine) -> None:
    """Much of the fleet is cut off at once, if not in the very same moment."""
    over_ms = world.true_ms + world.rng.choice((2_000, 5_000, 9_000))
    for other in list(world.machines.values()):
        if other.connected and world.rng.random() < 0.7:
            other.connected = False
            world.blips.append((over_ms, other))
            if world.rng.random() < 0.3:
                world.tick()


def _stale_report(world: World, machine: Machine) -> None:
    if machine.sent:
        origin, event = world.rng.choice(machine.sent)
        world.send(event, origin)


def _stale_beat(world: World, machine: Machine) -> None:
    """Of an agent before its last registration, some time after that."""
    hosts = [host for host in world.state.hosts.values() if host.incarnation > 1]
    if hosts:
        world.pass_time(world.rng.randrange(50, 500))
        host = world.rng.choice(hosts)
        old = world.rng.randrange(1, host.incarnation)
        world.send(events.HeartbeatsSeen("node:1", (host.slot,), (old,)))


def _old_plan(world: World, machine: Machine) -> None:
    if world.old_plans:
        plan = world.rng.choice(world.old_plans)
        if world.machines[plan.host].reachable:
            world.machines[plan.host].obey(plan, world.rng, world.true_ms)


def _repeat(world: World, machine: Machine) -> None:
    """A request comes again, from a client that did not hear the answer."""
    if not world.asked:
        return
    recent = world.asked[-6:] if world.rng.random() < 0.7 else world.asked
    origin, event = world.rng.choice(recent)
    world.send(event, origin)


# Leaders and their clocks


def _elect(world: World) -> None:
    world.send(events.LeaderElected(world.rng.randrange(1, 4), world.state.meta.term + 1))


def _leader(world: World, machine: Machine) -> None:
    """Nobody is heard for a while, which may be longer than a lease if it is by one election alone;
    then agents have to find the new leader."""
    elections = world.rng.choice((1, 1, 1, 2))
    longest = 6 if elections == 1 else 4
    for _ in range(elections):
        for _ in range(world.rng.randrange(longest)):
            world.pass_time(world.rng.randrange(300, 900))
            # It judges before it has said that it leads.
            world.send(events.ClockAdvanced(), term=world.state.meta.term + 1)
        _elect(world)
    for other in world.machines.values():
        other.reconnected_ms = world.true_ms + world.rng.randrange(RECONNECT_MS)
    if world.rng.random() < 0.3:
        world.send(events.LeaderElected(1, max(1, world.state.meta.term - 1)))
        world.send(events.ClockAdvanced(), term=max(0, world.state.meta.term - 1))


def _storm(world: World, machine: Machine) -> None:
    """Elections in a row, for longer than any lease may be stretched."""
    until_ms, apart_ms = world.true_ms + 25_000, world.rng.choice((300, 900, 2_600))
    while world.true_ms < until_ms:
        _elect(world)
        next_ms = world.true_ms + apart_ms
        while world.true_ms < next_ms:
            world.tick()


def _clock(world: World, machine: Machine) -> None:
    jumps = world.truth.verdicts.jumps
    if world.rng.random() < 0.5:
        world.driver.wall_ms -= 3_600_000
    elif not jumps or world.true_ms - jumps[-1] > 10_000:
        jumps.append(world.true_ms)
        world.driver.wall_ms += 3_600_000


# People


def _drain(world: World, machine: Machine) -> None:
    if machine.name in world.state.hosts:
        world.ask(events.DrainRequested(machine.name, "me"))


def _undrain(world: World, machine: Machine) -> None:
    if machine.name in world.state.hosts:
        world.ask(events.UndrainRequested(machine.name, "me"))


def _preempt(world: World, machine: Machine) -> None:
    """Notices come one after the other, and some are of the machine's life before."""
    host = world.state.hosts.get(machine.name)
    if host is None:
        return
    stale = world.rng.random() < 0.3
    for _ in range(world.rng.choice((1, 1, 2))):
        grace_ms = world.rng.randrange(3_000)
        world.notice(events.PreemptionNoticed(machine.name, host.incarnation - stale, grace_ms))


def _remove(world: World, machine: Machine) -> None:
    """Who removes a lost host vouches for its end; one that is live must be empty."""
    host = world.state.hosts.get(machine.name)
    if host is None or (host.status == HostStatus.LOST and machine.powered):
        return
    record = world.ask(events.HostRemovalRequested(machine.name, "me"))
    busy = host.tasks or not host.drain
    if record.accepted and host.status in LIVE_HOST and busy:
        raise CoreViolation("a host at work is not removed", f"{machine.name}: {host.tasks}")


def _allow(world: World, machine: Machine) -> None:
    world.ask(events.EvictionsAllowed("me", "looked"))


def _submit(world: World, machine: Machine) -> None:
    world.submit()


def _cancel(world: World, machine: Machine) -> None:
    """Any job, and rather one that is about to restart, or to fail for good."""
    stopping = [gang for gang in world.state.gangs.values() if gang.phase == GangPhase.STOPPING]
    failing = [gang.job for gang in stopping if gang.stop_final == "fail"]
    names = failing if world.rng.random() < 0.5 else [gang.job for gang in stopping]
    if not names or world.rng.random() < 0.3:
        names = list(world.state.jobs)
    if names:
        world.ask(events.JobCancelRequested(world.rng.choice(names), "me"))


def _resize(world: World, machine: Machine) -> None:
    """Any job, rather one that has just done its work, and sometimes back again at once."""
    if not world.state.jobs:
        return
    job = world.rng.choice(list(world.state.jobs.values()))
    role = world.rng.choice(job.spec.roles)
    alone = [one for one in job.spec.roles if not one.gang and not one.service]
    done = [
        gang
        for gang in world.state.gangs.values()
        if gang.index < 0 and gang.phase == GangPhase.RUNNING and gang.succeeded == gang.size
    ]
    if done and world.rng.random() < 0.7:
        gang = world.rng.choice(done)
        job = world.state.jobs[gang.job]
        role = job.spec.role(gang.role) or role
    elif alone and world.rng.random() < 0.5:
        role = alone[0]
    sizes = range(max(role.smallest, 1), role.largest + 2)
    chosen = [world.rng.choice(sizes) for _ in range(world.rng.choice((1, 1, 2)))]
    if world.rng.random() < 0.3:
        chosen = [role.smallest, role.largest]
    for replicas in chosen:
        world.ask(events.JobResizeRequested(job.name, role.name, replicas, "me"))


Fault = Callable[["World", Machine], None]

FAULTS: tuple[Fault, ...] = (
    *(_crash,) * 4,
    *(_cascade,) * 2,
    *(_harden,) * 2,
    *(_stall,) * 3,
    *(_agent,) * 3,
    *(_power,) * 2,
    *(_lose_a_member,) * 2,
    *(_network,) * 3,
    *(_blip,) * 2,
    *(_reboot,) * 2,
    *(_register,) * 2,
    *(_leader,) * 2,
    _clock,
    *(_stale_report,) * 3,
    _stale_beat,
    *(_old_plan,) * 2,
    *(_repeat,) * 2,
    _drain,
    _undrain,
    _preempt,
    _allow,
    *(_submit,) * 2,
    *(_cancel,) * 2,
    *(_resize,) * 3,
    *(coincidences.end_and_more,) * 4,
    *(coincidences.told_again,) * 2,
    *(coincidences.come_back_smaller,) * 2,
)
"""Each as often as it stands here."""

RARE: tuple[Fault, ...] = (_storm, _switch, _impostor, _remove)
