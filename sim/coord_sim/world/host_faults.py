"""What can befall hosts, their agents and the ranks on them: a menu to draw from.

Each fault heals by itself after a while, and all of them by `heal_all`. None breaks what the
contract of `exclusive` tasks asks of the world: something can end a task (so none of them is made
unkillable), and its host is not suspended for longer than its fence allows for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from coord.agent.ports import LaunchError
from coord_sim.world.hosts import PORTS, SimHost, SimHosts
from coord_sim.world.ranks import SimRank

CALM_PACE = 0.2
WATCH_S = 8.0
"""So long a fault waits for its moment."""
WATCH_STEP_S = 0.1
T = TypeVar("T")
Inject = Callable[[SimHosts, random.Random], Awaitable[bool]]


class Fault(NamedTuple):
    """`inject` returns whether there was anything that it could befall."""

    name: str
    weight: int
    text: str
    inject: Inject


FAULTS: dict[str, Fault] = {}


def _fault(name: str, weight: int) -> Callable[[Inject], Inject]:
    def register(inject: Inject) -> Inject:
        async def noted(hosts: SimHosts, rng: random.Random) -> bool:
            happened = await inject(hosts, rng)
            if happened:
                hosts.kernel.trace.note("fault", name=name)
            return happened

        FAULTS[name] = Fault(name, weight, (inject.__doc__ or "").strip(), noted)
        return noted

    return register


def heal_all(hosts: SimHosts) -> None:
    """Nothing is wrong with any host or rank from now on. What is broken off stays so.

    Steps are shorter from now on: what is left to do is of less interest than that it gets done.
    """
    hosts.pace = CALM_PACE
    for name in sorted(hosts.hosts):
        host = hosts.hosts[name]
        host.disk.full = False
        host.launch_failures.clear()
        host.busy_ports.clear()
        host.heal_network()
        for rank in list(host.runs):
            rank.go_on()
            rank.let_die()
        host.gone = False
        host.power_on()
        host.agent_resume()
        host.agent_start()


# Agents


@_fault("agent.kill", 4)
async def _agent_kill(hosts: SimHosts, rng: random.Random) -> bool:
    """An agent is killed; the next one comes soon, or not for longer than a lease."""
    host = _choose(rng, [host for host in _powered(hosts) if host.agent_up])
    if host is None:
        return False
    host.agent_kill(None if rng.random() < 0.6 else around_a_lease(hosts, rng))
    return True


@_fault("agent.kill_ending", 2)
async def _agent_kill_ending(hosts: SimHosts, rng: random.Random) -> bool:
    """An agent is killed as soon as one has a task to end, before that has ended."""
    until_s = hosts.kernel.now_s() + WATCH_S
    while hosts.kernel.now_s() < until_s:
        ending = [host for host in _powered(hosts) if host.agent_up and _is_ending(host)]
        if ending:
            rng.choice(ending).agent_kill()
            return True
        await asyncio.sleep(WATCH_STEP_S)
    return False


def _is_ending(host: SimHost) -> bool:
    tasks = host.daemon.tasks if host.daemon is not None else None
    return tasks is not None and any(tasks.is_ending(one.order.task) for one in tasks.holding())


@_fault("agent.stop", 1)
async def _agent_stop(hosts: SimHosts, rng: random.Random) -> bool:
    """An agent is stopped in order, as for an upgrade; its tasks go on."""
    host = _choose(rng, [host for host in _powered(hosts) if host.agent_up])
    if host is None:
        return False
    host.agent_stop()
    return True


@_fault("agent.pause", 3)
async def _agent_pause(hosts: SimHosts, rng: random.Random) -> bool:
    """An agent stands still for about as long as its lease, then goes on as if nothing was."""
    host = _choose(rng, [host for host in _powered(hosts) if host.agent_up])
    if host is None or host.agent is None:
        return False
    agent = host.agent
    host.agent_pause()
    hosts.kernel.call_later(around_a_lease(hosts, rng), agent.resume)
    return True


@_fault("agent.starve", 2)
async def _agent_starve(hosts: SimHosts, rng: random.Random) -> bool:
    """An agent gets no processor for some hundred milliseconds."""
    host = _choose(rng, [host for host in _powered(hosts) if host.agent_up])
    if host is None or host.agent is None:
        return False
    host.agent.stall(rng.uniform(0.05, 1.0))
    return True


@_fault("agent.disk_full", 2)
async def _disk_full(hosts: SimHosts, rng: random.Random) -> bool:
    """The disk below an agent's data directory and its tasks' output is full for a while."""
    host = _choose(rng, _powered(hosts))
    if host is None:
        return False
    host.disk.full = True
    hosts.kernel.call_later(rng.uniform(1.0, 12.0), setattr, host.disk, "full", False)
    return True


# Hosts


@_fault("host.power", 3)
async def _power(hosts: SimHosts, rng: random.Random) -> bool:
    """A host loses its power and gets it back, sooner or later than its lease runs out."""
    host = _choose(rng, _powered(hosts))
    if host is None:
        return False
    host.power_cycle(around_a_lease(hosts, rng))
    return True


@_fault("host.rack", 1)
async def _rack(hosts: SimHosts, rng: random.Random) -> bool:
    """All hosts of a rack lose their power at once; they come back one by one."""
    rack = _choose(rng, list(hosts.sharing("rack").values()))
    if rack is None:
        return False
    off_s = around_a_lease(hosts, rng)
    for host in rack:
        if host.powered:
            host.power_cycle(off_s + rng.uniform(0.0, 2.0))
    return True


@_fault("host.cut", 3)
async def _cut(hosts: SimHosts, rng: random.Random) -> bool:
    """A host is cut off from all servers, both ways, and nobody is told."""
    return _cut_for_a_while(hosts, rng, to_server=True, to_caller=True)


@_fault("host.cut_one_way", 2)
async def _cut_one_way(hosts: SimHosts, rng: random.Random) -> bool:
    """A host hears the servers and is not heard, or is heard and does not hear."""
    deaf = rng.random() < 0.5
    return _cut_for_a_while(hosts, rng, to_server=not deaf, to_caller=deaf)


@_fault("host.switch", 1)
async def _switch(hosts: SimHosts, rng: random.Random) -> bool:
    """A switch dies: its hosts reach neither servers nor each other's ranks."""
    behind = _choose(rng, list(hosts.sharing("switch").values()))
    if behind is None:
        return False
    for_s = around_a_lease(hosts, rng)
    for host in behind:
        host.cut_network()
        host.set_fabric(False)
        hosts.kernel.call_later(for_s, host.heal_network)
    return True


@_fault("host.freeze", 2)
async def _freeze(hosts: SimHosts, rng: random.Random) -> bool:
    """All processes of a host stand still and go on, as in a virtual machine that is moved."""
    host = _choose(rng, _powered(hosts))
    if host is None:
        return False
    seconds = around_a_lease(hosts, rng)
    if host.holds_exclusive:
        seconds = rng.random() * hosts.settings.fence_ms / 4_000
    host.freeze(seconds)
    return True


@_fault("host.gone", 1)
async def _gone(hosts: SimHosts, rng: random.Random) -> bool:
    """A machine is taken away until all is healed; whoever finds its host lost may remove it."""
    powered = _powered(hosts)
    if len(powered) < 3:
        return False
    host = rng.choice(powered)
    host.gone = True
    host.power_off()
    return True


@_fault("host.preempt", 1)
async def _preempt(hosts: SimHosts, rng: random.Random) -> bool:
    """A host's owner says that it will be taken away, does so, and later gives it back."""
    host = _choose(rng, [host for host in _powered(hosts) if host.agent_up])
    if host is None:
        return False
    grace_s = rng.uniform(0.5, 10.0)
    host.notice_preemption(grace_s)
    hosts.kernel.call_later(grace_s, host.power_cycle, around_a_lease(hosts, rng))
    return True


@_fault("host.ports", 1)
async def _ports(hosts: SimHosts, rng: random.Random) -> bool:
    """Strangers listen on the ports of a host for a while."""
    host = _choose(rng, _powered(hosts))
    if host is None:
        return False
    host.busy_ports.update(dict.fromkeys(PORTS))
    hosts.kernel.call_later(rng.uniform(1.0, 10.0), host.busy_ports.clear)
    return True


# Ranks


@_fault("rank.launch", 2)
async def _launch(hosts: SimHosts, rng: random.Random) -> bool:
    """The next launches on a host fail, for its own reasons or for the program's."""
    host = _choose(rng, _powered(hosts))
    if host is None:
        return False
    users = rng.random() < 0.2
    words = "No such file or directory" if users else "Resource temporarily unavailable"
    for _ in range(rng.randint(1, 3)):
        host.launch_failures.append(LaunchError(f"cannot start: {words}", user_error=users))
    return True


@_fault("rank.exit", 4)
async def _exit(hosts: SimHosts, rng: random.Random) -> bool:
    """A rank ends by itself, with a code; mostly a failure, at times an early success."""
    rank = _choose(rng, hosts.live_ranks())
    if rank is None:
        return False
    code = rng.choice((1, 1, 1, 7, 137, 0, 93))
    rank.exit(code, f"raised at step {rank.step}" if code else "")
    return True


@_fault("rank.signal", 3)
async def _signal(hosts: SimHosts, rng: random.Random) -> bool:
    """A rank dies of a signal that no agent sent."""
    rank = _choose(rng, hosts.live_ranks())
    if rank is None:
        return False
    rank.die(rng.choice((6, 7, 9, 11, 15)))
    return True


@_fault("rank.oom", 1)
async def _oom(hosts: SimHosts, rng: random.Random) -> bool:
    """The kernel kills a rank for its memory."""
    rank = _choose(rng, hosts.live_ranks())
    if rank is None:
        return False
    rank.die(9, oom=True)
    return True


@_fault("rank.hang", 3)
async def _hang(hosts: SimHosts, rng: random.Random) -> bool:
    """A rank does nothing any more, for long or for good; its peers wait for it."""
    rank = _choose(rng, hosts.live_ranks())
    if rank is None:
        return False
    rank.hang()
    if rng.random() < 0.3:
        hosts.kernel.call_later(rng.uniform(1.0, 20.0), rank.go_on)
    return True


@_fault("rank.cascade", 2)
async def _cascade(hosts: SimHosts, rng: random.Random) -> bool:
    """One rank of a gang hangs or dies, and all the others run into their time-out."""
    rank = _choose(rng, [rank for rank in hosts.live_ranks() if rank.collective.size > 1])
    if rank is None:
        return False
    if rng.random() < 0.5:
        rank.hang()
    else:
        rank.die(11)
    return True


@_fault("rank.slow", 2)
async def _slow(hosts: SimHosts, rng: random.Random) -> bool:
    """A rank takes many times as long for a step, for a while."""
    rank = _choose(rng, hosts.live_ranks())
    if rank is None:
        return False
    rank.slowness = rng.uniform(3.0, 20.0)
    hosts.kernel.call_later(rng.uniform(5.0, 30.0), rank.go_on)
    return True


@_fault("rank.unkillable", 2)
async def _unkillable(hosts: SimHosts, rng: random.Random) -> bool:
    """SIGKILL does nothing to a rank that sits in the kernel, until that lets go of it."""
    rank = _choose(rng, [rank for rank in hosts.live_ranks() if not hosts.is_exclusive(rank)])
    if rank is None:
        return False
    rank.unkillable = True
    if rng.random() < 0.7:
        rank.hang()
    hosts.kernel.call_later(rng.uniform(2.0, 30.0), _let_go, rank)
    return True


def _let_go(rank: SimRank) -> None:
    rank.go_on()
    rank.let_die()


def _cut_for_a_while(
    hosts: SimHosts, rng: random.Random, *, to_server: bool, to_caller: bool
) -> bool:
    host = _choose(rng, _powered(hosts))
    if host is None:
        return False
    host.cut_network(to_server=to_server, to_caller=to_caller)
    hosts.kernel.call_later(around_a_lease(hosts, rng), host.heal_network)
    return True


def around_a_lease(hosts: SimHosts, rng: random.Random) -> float:
    """Seconds: well within a lease, near its end, or long after host and fence are given up."""
    lease_s, fence_s = hosts.settings.lease_ms / 1000, hosts.settings.fence_ms / 1000
    return rng.choice(
        (
            rng.uniform(0.1, 0.5) * lease_s,
            rng.uniform(0.8, 1.2) * lease_s,
            lease_s + rng.uniform(0.9, 1.1) * fence_s,
            rng.uniform(1.5, 4.0) * (lease_s + fence_s),
        )
    )


def _powered(hosts: SimHosts) -> list[SimHost]:
    return [hosts.hosts[name] for name in sorted(hosts.hosts) if hosts.hosts[name].powered]


def _choose(rng: random.Random, options: list[T]) -> T | None:
    return rng.choice(options) if options else None
