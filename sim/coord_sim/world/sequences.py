"""Misfortunes of several steps, which a run meets only when it looks for them (`focuses.py`).

They stand beside the menus that every run draws from: each is long, and worth its time only where
what it leads to is what is looked at.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from coord_sim.world.server_faults import cut, leading

if TYPE_CHECKING:
    from coord_sim.world.world import World

Inject = Callable[["World", random.Random], Awaitable[bool]]

LOOK_GAP_S = (0.05, 0.25)
"""Of somebody who waits for something to show."""
JOIN_S = 6.0


async def deaf_leader(world: World, rng: random.Random) -> bool:
    """The leader hears nobody, and everybody hears it: what it appends stands, and it cannot know;
    nor does it hear who leads after it."""
    servers = world.servers
    first = leading(servers)
    others = [n for n in servers.numbers() if n != first]
    seconds = servers.config.raft.election_max_ms / 1000 * rng.uniform(0.5, 3.0)
    if not first:
        return False
    for n in others:
        servers.peers.cut_one_way(n, first)
        servers.kernel.call_later(seconds, servers.peers.mend, n, first)
    return bool(others)


async def apart(world: World, rng: random.Random) -> bool:
    """Two servers join at once, at a leader that is cut off from those it has."""
    servers = world.servers
    first, numbers = leading(servers), servers.numbers()
    seconds = servers.config.raft.election_max_ms / 1000 * rng.uniform(1.0, 3.0)
    if not first or len(numbers) > servers.count:
        return False
    newest = max(servers.all)
    side = (first, newest + 1, newest + 2)
    cut(servers, side, tuple(n for n in numbers if n != first), seconds)
    await asyncio.gather(servers.add(JOIN_S), servers.add(JOIN_S))
    return True


async def joins_slowly(world: World, rng: random.Random) -> bool:
    """A server joins over links so slow that it is a member long before it can know."""
    servers = world.servers
    numbers, newest = servers.numbers(), max(servers.all) + 1
    slow_ms = servers.config.raft.election_max_ms * rng.uniform(0.5, 2.0)
    if len(numbers) > servers.count:
        return False
    for n in numbers:
        servers.peers.slow(n, newest, slow_ms)
        servers.kernel.call_later(3 * slow_ms / 1000, servers.peers.mend, n, newest)
    return bool(await servers.add(JOIN_S))


async def asks_behind(world: World, rng: random.Random) -> bool:
    """A follower is cut off for a while, and somebody looks at what it has all the time, also when
    it is back and has not caught up."""
    servers = world.servers
    first = leading(servers)
    followers = [n for n in servers.running() if n != first]
    clients = [client for client in world.clients.all.values() if client.runs]
    away_s = servers.config.raft.election_min_ms / 1000 * rng.uniform(0.1, 1.5)
    if not first or not followers or not clients:
        return False
    n, client = rng.choice(followers), rng.choice(clients)
    cut(servers, (n,), tuple(other for other in servers.numbers() if other != n), away_s)
    until_s = servers.kernel.now_s() + away_s + 3.0
    while servers.kernel.now_s() < until_s:
        client.begin_read(n)
        await asyncio.sleep(rng.uniform(*LOOK_GAP_S))
    return True


SEQUENCES: dict[str, Inject] = {
    "net.deaf_leader": deaf_leader,
    "members.apart": apart,
    "members.joins_slowly": joins_slowly,
    "client.asks_behind": asks_behind,
}
