"""Every fault that a whole-cluster run may draw, from the menus of servers, hosts and
clients."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from coord_sim.world import client_faults, host_faults, server_faults

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


INJECT: dict[str, Inject] = {
    "site.power": _everything,
    **{name: _of_servers(fault) for name, fault in server_faults.FAULTS.items()},
    **{name: _of_hosts(fault) for name, fault in host_faults.FAULTS.items()},
    **{name: _of_clients(fault) for name, fault in client_faults.FAULTS.items()},
}
TOLD: dict[str, str] = {
    "site.power": (_everything.__doc__ or "").strip(),
    **{name: fault.told for name, fault in server_faults.FAULTS.items()},
    **{name: fault.text for name, fault in host_faults.FAULTS.items()},
    **{name: fault.told for name, fault in client_faults.FAULTS.items()},
}
"""What each does, in a sentence or two."""
FAULTS: tuple[str, ...] = tuple(sorted([*INJECT, SITE_CRASH]))
