"""Writes and servers that answer, but cannot have anything decided: cut off, or hung."""

from __future__ import annotations

import asyncio

import pytest

from coord.client.client import Client

from .fake import FakeCluster
from .test_writes import texts, with_client
from .virtual import eventually


def test_a_server_that_lost_the_others_is_left_for_one_that_knows_a_leader() -> None:
    """It answers, so that nothing but the outcome tells that it cannot have anything decided."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "one")
        cluster.servers[0].cut_off = True
        cluster.elect(2)
        await client.note("s", "two")

    assert texts(with_client(story)) == ["one", "two"]


@pytest.mark.parametrize("timeout_s", [1.0, 3.0, 10.0])
def test_a_server_that_loses_the_others_unawares_is_left_within_the_deadline(
    timeout_s: float,
) -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        loop = asyncio.get_running_loop()
        await client.note("s", "one")
        cluster.servers[0].cut_off = True
        cluster.leader = 2
        begun_s = loop.time()
        await client.note("s", "two")
        assert loop.time() - begun_s < 0.6 * timeout_s

    assert texts(with_client(story, timeout_s=timeout_s)) == ["one", "two"]


def test_a_fresh_client_passes_over_a_server_that_knows_no_leader() -> None:
    cluster = FakeCluster()
    cluster.servers[0].cut_off = True
    cluster.leader = 2

    async def story(cluster: FakeCluster, client: Client) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await client.note("s", "one")
        assert loop.time() - begun_s < 0.5
        assert not cluster.servers[0].sessions

    assert texts(with_client(story, cluster)) == ["one"]


def test_without_a_leader_anywhere_a_write_waits_where_it_is() -> None:
    """An election takes a second: servers hold what they are given until it is over."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.leader = 0
        pending = asyncio.ensure_future(client.note("s", "one"))
        await eventually(lambda: cluster.held)
        await asyncio.sleep(1.0)
        assert [len(server.sessions) for server in cluster.servers] == [1, 0, 0]
        cluster.elect(2)
        await pending

    assert texts(with_client(story)) == ["one"]


def test_a_server_is_left_only_after_it_answered_everything() -> None:
    """A definite "not done" under way is worth more than to be elsewhere a little sooner."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "one")
        left = cluster.servers[0]
        left.cut_off = True
        cluster.leader = 2
        first = asyncio.ensure_future(client.note("s", "two"))
        await asyncio.sleep(1.0)
        second = asyncio.ensure_future(client.note("s", "three"))
        await asyncio.sleep(2.9)
        assert [len(server.sessions) for server in cluster.servers] == [1, 0, 0]
        await asyncio.gather(first, second)
        assert [len(server.sessions) for server in cluster.servers] == [0, 1, 0]

    assert texts(with_client(story)) == ["one", "two", "three"]


@pytest.mark.parametrize("timeout_s", [1.0, 3.0])
def test_a_silent_server_is_left_well_before_a_short_deadline(timeout_s: float) -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "one")
        cluster.servers[0].mute = True
        cluster.leader = 2
        await client.note("s", "two")

    assert texts(with_client(story, timeout_s=timeout_s)) == ["one", "two"]
