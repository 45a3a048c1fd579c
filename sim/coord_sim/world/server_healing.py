"""What makes servers well again, and what an operator does about those that cannot be."""

from __future__ import annotations

import asyncio

from coord_sim.world.servers import SimServers


async def heal_all(servers: SimServers) -> None:
    """End every fault: links, disks, clocks and processes are well, and who is damaged is
    replaced."""
    servers.peers.calm()
    servers.peers.heal()
    servers.worker_s = (0.0, 0.05)
    for number in servers.numbers():
        server = servers.all[number]
        disk = server.disk
        disk.faults.full = disk.faults.fails_next = disk.faults.dies_in_commit = False
        disk.faults.slow_s = (0.0, 0.0)
        server.clock.set_right()
        servers.resume(number)
        servers.start(number)
    for number in servers.numbers():
        await replace_damaged(servers, number)


async def replace_damaged(servers: SimServers, n: int, limit_s: float = 60.0) -> None:
    """What an operator does about a server that refuses its data."""
    until_s = servers.kernel.now_s() + limit_s
    while servers.all[n].refused and not servers.all[n].removed:
        if servers.kernel.now_s() > until_s:
            return
        if await servers.remove(n):
            await servers.add()
            return
        await asyncio.sleep(1.0)
