"""Making everything whole again, and noticing what does not become whole."""

from __future__ import annotations

import asyncio
import time

from coord.client.errors import CoordError
from jepsen_lite.cluster.cluster import Cluster, ClusterFailed
from jepsen_lite.cluster.processes import Server

HEAL_S = 90.0
ACTOR = "healing"
PATIENCE_S = 10.0
POLL_S = 0.25


async def heal(cluster: Cluster) -> list[str]:
    """End every misfortune, start what does not run, replace servers whose store was damaged, and
    wait until all is ready. Returns what is not right in the end, each in a sentence."""
    await asyncio.to_thread(_end_misfortunes, cluster)
    deadline = time.monotonic() + HEAL_S
    trouble: list[str] = []
    while True:
        for server in list(cluster.servers.values()):
            if server.damaged and server.ended:
                await _replace(cluster, server, deadline)
        try:
            await cluster.wait_ready(max(1.0, deadline - time.monotonic()))
        except ClusterFailed as error:
            gone = [one for one in cluster.servers.values() if one.damaged and one.ended]
            if gone and time.monotonic() < deadline:
                continue
            trouble.append(str(error))
        return trouble


def _end_misfortunes(cluster: Cluster) -> None:
    cluster.network.heal()
    for member in [*cluster.servers.values(), *cluster.hosts.values()]:
        member.resume()
        member.disk.heal()
        if isinstance(member, Server):
            member.clock.heal()
        member.start()


async def _replace(cluster: Cluster, server: Server, deadline: float) -> None:
    """As the product tells its operators: remove it, and add an empty one under a new number."""
    guest = cluster.add_server()
    while time.monotonic() < deadline:
        try:
            async with cluster.client(ACTOR, timeout_s=PATIENCE_S) as client:
                members = {member.node for member in (await client.cluster()).members}
                if server.node in members:
                    await client.remove_member(server.node)
                elif guest.node not in members:
                    await client.add_member(guest.node, guest.peer_address, guest.api_address)
                else:
                    break
        except CoordError:  # Refused or in doubt: the members are read again.
            await asyncio.sleep(POLL_S)
    await cluster.end_server(server.node)
