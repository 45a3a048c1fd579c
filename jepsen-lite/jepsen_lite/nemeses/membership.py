"""Servers that come and go, and leads that are handed over, whatever else happens meanwhile."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable

from coord.client.errors import CoordError
from jepsen_lite.cluster.cluster import Cluster, ClusterFailed
from jepsen_lite.cluster.processes import Server
from jepsen_lite.nemeses.killing import leader_of
from jepsen_lite.nemeses.port import Misfortune, Nemesis, nothing

PATIENCE_S = 5.0
STAYS_S = (1.0, 5.0)
ACTOR = "nemesis"


async def _transfer(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    leader = await leader_of(cluster)
    others = [server for server in cluster.servers.values() if server is not leader]
    if leader is None or not others:
        return None
    to = rng.choice(others)

    async def begin() -> None:
        async with cluster.client(ACTOR, timeout_s=PATIENCE_S) as client:
            await _try(client.transfer(to.node))

    return Misfortune(
        f"{leader.name} is asked to hand over to {to.name}", (to.name,), 0.0, begin, nothing
    )


async def _come_and_go(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """A server is added and taken out again; each may fail where others break things meanwhile."""
    guests: list[Server] = []

    async def begin() -> None:
        guest = await cluster.join_server()
        guests.append(guest)
        async with cluster.client(ACTOR, timeout_s=PATIENCE_S) as client:
            await _try(client.add_member(guest.node, guest.peer_address, guest.api_address))

    async def end() -> None:
        for guest in guests:
            # One that cannot be taken out under other misfortunes stays, and is judged as a member.
            with contextlib.suppress(ClusterFailed):
                await cluster.dismiss(guest)

    return Misfortune(
        "a server is added, and taken out again", (), rng.uniform(*STAYS_S), begin, end
    )


async def _try(request: Awaitable[object]) -> None:
    """What comes of it is for the judge; that it fails under faults is no failure of the run."""
    try:
        await request
    except CoordError:
        return


NEMESES = (
    Nemesis("transfer", "The lead is handed over.", _transfer, frozenset({"processes"}), 1.0),
    Nemesis(
        "members",
        "A server is added, and taken out again.",
        _come_and_go,
        frozenset({"processes"}),
    ),
)
