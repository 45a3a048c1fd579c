"""What goes wrong in a random history: processes, agents, power, network, clock, operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coord.model import events
from coord.model.entities import FINISHED_JOB
from coord.model.entry import Origin

from .machines import Machine, Process
from .violation import CoreViolation

if TYPE_CHECKING:
    from .world import World

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


def fault(world: World) -> None:
    machine = world.rng.choice(list(world.machines.values()))
    running = [process for process in machine.processes.values() if process.alive]
    kind = world.rng.choice(FAULTS)
    if kind in ("crash", "stubborn", "stall"):
        if running:
            _hurt(world, kind, machine, world.rng.choice(running))
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
        world.blips.append((world.true_ms + 2_000, machine))
    elif kind == "register" and machine.powered:
        machine.registered = False
    elif kind == "leader":
        term = world.state.meta.term + 1
        world.send(events.LeaderElected(world.rng.randrange(1, 4), term))
    elif kind == "clock":
        _jump(world)
    else:
        _disturb(world, kind, machine)


def _hurt(world: World, kind: str, machine: Machine, process: Process) -> None:
    if kind == "crash":
        code, signal = world.rng.choice(((1, 0), (93, 0), (0, 9), (0, 11), (7, 0), (0, 0)))
        machine.crash(process, code, signal)
    elif kind == "stall":
        process.stalled = True
    else:
        # The contract of exclusive tasks is that something ends them: agent, watchdog, power.
        process.stubborn = not process.exclusive


def _jump(world: World) -> None:
    if world.rng.random() < 0.5:
        world.driver.wall_ms -= 3_600_000
    elif not world.truth.jumps or world.true_ms - world.truth.jumps[-1] > 10_000:
        world.truth.jumps.append(world.true_ms)
        world.driver.wall_ms += 3_600_000


def _disturb(world: World, kind: str, machine: Machine) -> None:
    known = machine.name in world.state.hosts
    if kind == "stale" and machine.sent:
        origin, event = world.rng.choice(machine.sent)
        world.send(event, origin)
    elif kind == "old plan" and world.old_plans:
        plan = world.rng.choice(world.old_plans)
        if world.machines[plan.host].reachable:
            world.machines[plan.host].obey(plan, world.rng, world.true_ms)
    elif kind == "repeat" and world.asked:
        origin, event = world.rng.choice(world.asked)
        before = len(world.state.jobs)
        record = world.send(event, origin)
        if record.decisions or len(world.state.jobs) != before:
            raise CoreViolation("a repeated request takes effect once", f"{record}")
    elif kind == "operator" and known:
        _operate(world, machine)
    elif kind == "job":
        _about_a_job(world)


def _operate(world: World, machine: Machine) -> None:
    name = machine.name
    host = world.state.hosts[name]
    what = world.rng.randrange(6)
    if what == 0:
        world.ask(events.DrainRequested(name, "me"))
    elif what in (1, 2):
        world.ask(events.UndrainRequested(name, "me"))
    elif what == 3:
        grace_ms = world.rng.randrange(3_000)
        notice = events.PreemptionNoticed(name, host.incarnation, grace_ms)
        world.send(notice, Origin("client:cloud", 0, world.true_ms + 1))
    elif what == 4 and not machine.powered:
        # Who removes a lost host vouches for its end.
        world.ask(events.HostRemovalRequested(name, "me"))
    else:
        world.ask(events.EvictionsAllowed("me", "looked"))


def _about_a_job(world: World) -> None:
    what = world.rng.randrange(5)
    names = [name for name, job in world.state.jobs.items() if job.status not in FINISHED_JOB]
    if what < 2 or not names:
        world.submit()
        return
    name = world.rng.choice(names)
    if what == 2:
        world.ask(events.JobCancelRequested(name, "me"))
        return
    role = world.rng.choice(world.state.jobs[name].spec.roles)
    replicas = world.rng.randrange(max(role.smallest, 1), role.largest + 2)
    world.ask(events.JobResizeRequested(name, role.name, replicas, "me"))
