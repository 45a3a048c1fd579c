"""Linearizable reads: what was acknowledged anywhere before the read came is seen."""

from __future__ import annotations

import asyncio

import pytest

from coord.node.reads import ReadUnavailable
from tests.node.cluster import Cluster, Writer


async def test_a_read_sees_every_write_acknowledged_before_it() -> None:
    """Through any node, whichever node took the write."""
    async with Cluster() as cluster:
        writer = Writer("a")
        for number in range(12):
            result = await writer.write(cluster.nodes[number % 3 + 1])
            reader = cluster.nodes[(number + 1) % 3 + 1]
            assert await reader.read_index() >= result.index
            assert reader.state.meta.applied_index >= result.index


async def test_one_barrier_serves_all_who_wait() -> None:
    """A thousand readers cost a handful of commands."""
    async with Cluster() as cluster:
        before = cluster.hub.commit_index
        readers = [node.read_index() for node in cluster.nodes.values() for _ in range(300)]
        await asyncio.gather(*readers)
        assert cluster.hub.commit_index - before < 12


async def test_a_cut_off_leader_does_not_pass_old_state_for_new() -> None:
    """Without a majority there is no barrier, so the read fails instead of lying."""
    async with Cluster() as cluster:
        old = cluster.leader
        others = [node.config.node for node in cluster.followers]
        cluster.hub.partition([old.config.node], others)
        writer = Writer("a")
        assert (await writer.write(cluster.nodes[others[0]])).outcome == "committed"
        with pytest.raises(ReadUnavailable, match="no leader confirmed"):
            await old.read_index(0.2)
        cluster.hub.heal()
        assert await old.read_index() == old.state.meta.applied_index


async def test_readers_outlive_a_change_of_leader() -> None:
    """A round asked of a former leader is asked again of the next."""
    async with Cluster() as cluster:
        follower = cluster.followers[0]
        cluster.hub.auto_elect = False
        cluster.hub.step_down()
        task = asyncio.create_task(follower.read_index(5.0))
        await asyncio.sleep(0)
        cluster.hub.elect(cluster.followers[-1].config.node)
        assert await task <= follower.state.meta.applied_index


async def test_a_stopping_node_ends_its_readers() -> None:
    """Nobody waits for the deadline of a read that cannot be answered."""
    async with Cluster() as cluster:
        cluster.hub.auto_elect = False
        cluster.hub.step_down()
        node = cluster.nodes[1]
        task = asyncio.create_task(node.read_index(30.0))
        await asyncio.sleep(0)
        await node.stop()
        with pytest.raises(ReadUnavailable, match="stopping"):
            await task
