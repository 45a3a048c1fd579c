"""Misfortunes of servers alone, each the way into a hazard that raft's guard answers.

They stand beside the menu of `server_faults.py`, which every simulated cluster draws from: these
take many steps, and are worth their time only where the guard is what is looked at.
"""

from __future__ import annotations

import asyncio
import random

from coord_sim.world.peers import Climate
from coord_sim.world.server_faults import FAULTS, Fault, cut, fault, leading, weather
from coord_sim.world.servers import SimServers

RAFT_FAULTS: dict[str, Fault] = {}
OVERTAKING = Climate(lost_share=0.2, overtaken_share=0.7, slow_s=1.0)
SHORTENED_TIMES = 6
"""Each time a snapshot is offered while entries on both sides of its end are on their way."""


def _others(servers: SimServers, n: int) -> tuple[int, ...]:
    """Those that run, but for one; none when there is no such one or no majority beside it."""
    others = tuple(number for number in servers.running() if number != n)
    return others if n and len(others) >= 2 else ()


def _election_s(servers: SimServers) -> float:
    return servers.config.raft.election_min_ms / 1000


@fault("raft.deaf_leader", 2, RAFT_FAULTS)
async def deaf_leader(servers: SimServers, rng: random.Random) -> bool:
    """A leader hears no answers and appends on, is cut off with a tail of its own, and comes back
    when the others have shortened their logs."""
    first, peers = leading(servers), servers.peers
    others, election_s = _others(servers, first), _election_s(servers)
    deaf_s, on_s = election_s * rng.uniform(0.2, 1.5), rng.uniform(0.0, 1.5)
    if not others:
        return False
    for n in others:
        peers.cut_one_way(n, first)
    await asyncio.sleep(deaf_s)
    cut(servers, (first,), others, 6 * election_s)
    if await servers.wait_for(lambda: leading(servers) in others, 5 * election_s):
        for n in others:
            await servers.snapshot(n, 1.0)
        await asyncio.sleep(on_s)
    for n in others:
        peers.mend(first, n)
    return True


@fault("raft.hushed_transfer", 2, RAFT_FAULTS)
async def hushed_transfer(servers: SimServers, rng: random.Random) -> bool:
    """Leadership goes to a follower that the leader cannot hear: it does not learn of it."""
    first, peers = leading(servers), servers.peers
    others = _others(servers, first)
    if not others:
        return False
    then = rng.choice(others)
    peers.cut_one_way(then, first)
    await servers.transfer(then, _election_s(servers))
    await asyncio.sleep(2 * _election_s(servers))
    peers.mend(then, first)
    return True


@fault("raft.cut_under", 2, RAFT_FAULTS)
async def cut_under(servers: SimServers, rng: random.Random) -> bool:
    """A leader whose other followers are slow shortens its log again and again while one that lags
    is being sent what it lacks, in a storm that swallows messages and lets others overtake."""
    first, peers = leading(servers), servers.peers
    others = _others(servers, first)
    away_s, slow_ms = rng.uniform(0.3, 2.5), rng.uniform(100.0, 500.0)
    if not others:
        return False
    n = rng.choice(others)
    rest = tuple(number for number in servers.numbers() if number != n)
    cut(servers, (n,), rest, 60.0)
    await asyncio.sleep(away_s)
    for m in rest:
        if m != first:
            peers.slow(first, m, slow_ms)
    for m in rest:
        peers.mend(n, m)
    weather(servers, OVERTAKING, 8.0)
    for _ in range(SHORTENED_TIMES):
        await _grown(servers, n, 2.0)
        await asyncio.sleep(slow_ms / 1000 * rng.uniform(0.0, 1.0))
        servers.worker_s = (0.0, 0.0)
        await servers.snapshot(first, 1.0)
        servers.worker_s = (0.0, 0.05)
    await asyncio.sleep(0.5)
    for m in rest:
        peers.mend(first, m)
    return True


async def _grown(servers: SimServers, n: int, limit_s: float) -> None:
    """Until a node's log is longer than it was, at most so long."""
    until_s, before = servers.kernel.now_s() + limit_s, None
    while servers.kernel.now_s() < until_s and (node := servers.node(n)) is not None:
        end = node.log.status().last_index
        if before is not None and end > before:
            return
        before = end
        await asyncio.sleep(0.02)


@fault("raft.stale_snapshot", 2, RAFT_FAULTS)
async def stale_snapshot(servers: SimServers, rng: random.Random) -> bool:
    """A server is still writing a snapshot when it gets a newer one; then it leads, and a newcomer
    wants what it has."""
    first = leading(servers)
    others = _others(servers, first)
    if not others:
        return False
    await FAULTS["log.slow_snapshot"].inject(servers, rng)
    await servers.transfer(rng.choice(others), _election_s(servers))
    if len(servers.numbers()) <= servers.count:
        await servers.add(limit_s=6.0)
    return True


MENU: dict[str, Fault] = {**FAULTS, **RAFT_FAULTS}
