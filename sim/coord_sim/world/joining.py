"""How a simulated server joins: as in a real cluster, it knows the members before it is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coord.node.node import Node
from coord.raft.ports import Member, ProposeOutcome
from coord_sim.world.disk import SimEnvironment
from coord_sim.world.server import SimServer

ADDED_AGAIN_S = 5.0
"""Whoever added a server asks again when it has waited so long to hear of it."""


async def tell_and_add(leader: Node, joiner: SimServer, limit_s: float) -> ProposeOutcome | None:
    """What the leader's API does; None when the joiner is away, and nothing was changed."""
    if not joiner.running:
        return None
    joiner.told = (*leader.log.status().members, joiner.member)
    return await leader.log.add_member(joiner.member, limit_s)


async def wait_to_join(
    server: SimServer,
    environment: SimEnvironment,
    leader: Callable[[], Node | None],
    now_s: Callable[[], float],
) -> tuple[Member, ...]:
    """Who the members are, by the word of the leader that adds it. One that had ended before it
    kept them is told again by whoever asks once more to have it added."""
    asks_again_s = now_s() + ADDED_AGAIN_S
    while environment.get("raft_meta", b"members") is None:
        if not server.told and now_s() >= asks_again_s:
            leading = leader()
            members = leading.log.status().members if leading is not None else ()
            server.told = members if server.member in members else ()
        if server.told:
            return server.told
        await asyncio.sleep(0.1)
    return (server.member,)
