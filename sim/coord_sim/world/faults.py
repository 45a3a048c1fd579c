"""Every fault that a whole-cluster run may draw, from the menus of servers, hosts and
clients."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from coord_sim.world import client_faults, host_faults, server_faults
from coord_sim.world.sequences import SEQUENCES

if TYPE_CHECKING:
    from coord_sim.world.world import World

SITE_CRASH = "site.crash"
"""Not drawn while a run goes on: its climate says where and when (`swarm.CrashSite`)."""

Inject = Callable[["World", random.Random], Awaitable[bool]]
"""Begins a fault; returns whether there was anything that it could befall."""


def _of_servers(fault: server_faults.Fault) -> Inject:
    async def inject(world: World, rng: random.Random) -> bool:
        return await fault.inject(world.servers, rng)

    return inject


def _of_clients(fault: client_faults.Fault) -> Inject:
    async def inject(world: World, rng: random.Random) -> bool:
        return await fault.inject(world, rng)

    return inject


def _of_hosts(fault: host_faults.Fault) -> Inject:
    async def inject(world: World, rng: random.Random) -> bool:
        return await fault.inject(world.hosts, rng)

    return inject


async def _everything(world: World, rng: random.Random) -> bool:
    """The whole site loses its power; servers and hosts come back one by one, in any order."""
    for number in world.servers.numbers():
        world.servers.crash(number, silently=True)
        server_faults.back_after(world.servers, number, rng.uniform(0.5, 12.0))
    for name in sorted(world.hosts.hosts):
        if world.hosts.hosts[name].powered:
            world.hosts.hosts[name].power_cycle(rng.uniform(0.5, 20.0))
    return True


async def _island(world: World, rng: random.Random) -> bool:
    """One server and the hosts behind its switch reach each other, and nobody else."""
    numbers = world.servers.numbers()
    names = [name for name in sorted(world.hosts.hosts) if rng.random() < 0.6]
    seconds = host_faults.around_a_lease(world.hosts, rng)
    if len(numbers) < 3 or not names:
        return False
    number = rng.choice(numbers)
    others = tuple(other for other in numbers if other != number)
    server_faults.cut(world.servers, (number,), others, seconds)
    for name in names:
        for other in others:
            world.channels.cut(name, other)
            world.kernel.call_later(seconds, world.channels.heal, name, other)
    return True


DRAWN: dict[str, Inject] = {
    "site.power": _everything,
    "site.island": _island,
    **{name: _of_servers(fault) for name, fault in server_faults.FAULTS.items()},
    **{name: _of_hosts(fault) for name, fault in host_faults.FAULTS.items()},
    **{name: _of_clients(fault) for name, fault in client_faults.FAULTS.items()},
}
"""What any run may draw."""
INJECT: dict[str, Inject] = {**DRAWN, **SEQUENCES}
TOLD: dict[str, str] = {
    "site.power": (_everything.__doc__ or "").strip(),
    "site.island": (_island.__doc__ or "").strip(),
    **{name: fault.told for name, fault in server_faults.FAULTS.items()},
    **{name: fault.text for name, fault in host_faults.FAULTS.items()},
    **{name: fault.told for name, fault in client_faults.FAULTS.items()},
    **{name: (inject.__doc__ or "").strip() for name, inject in SEQUENCES.items()},
}
"""What each does, in a sentence or two."""
FAULTS: tuple[str, ...] = tuple(sorted([*DRAWN, SITE_CRASH]))
