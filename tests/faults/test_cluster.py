"""A real cluster behind either network: it works, it is broken, and it is whole again."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from jepsen_lite.cluster import leftovers
from jepsen_lite.cluster.cluster import Cluster, ClusterFailed
from jepsen_lite.cluster.processes import Host
from jepsen_lite.network import namespaces
from jepsen_lite.network.addresses import PEER_PORT
from jepsen_lite.network.port import NetworkFailed
from jepsen_lite.network.proxied import Proxied

from coord.cli.processes import marked
from coord.client import Client
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RoleSpec

PATIENCE_S = 30.0

Value = TypeVar("Value")


async def eventually(what: str, condition: Callable[[], Awaitable[Value]]) -> Value:
    """The condition's value once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if value := await condition():
            return value
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        await asyncio.sleep(0.05)


@pytest.fixture(params=["proxied", "namespaces"])
def network(request: pytest.FixtureRequest) -> str:
    if request.param == "namespaces" and (problem := namespaces.obstacle()):
        pytest.skip(f"no namespaces: {problem}")
    return str(request.param)


async def test_a_leader_that_is_not_heard_is_replaced_and_all_agree_after_healing(
    tmp_path: Path, network: str
) -> None:
    """Followers do not hear the leader, who hears them; writes go on, and at the end every server
    has them."""
    async with Cluster(tmp_path, hosts=0, network=network) as cluster:
        await cluster.start()
        await cluster.wait_ready()
        async with cluster.client("tester") as client:
            await client.note("test", "before")
        first = await cluster.leader()
        assert first is not None
        others = [name for name in cluster.servers if name != first]
        for other in others:
            cluster.network.cut(first, other)

        async def another_leads() -> str:
            leader = await cluster.leader(1.0)
            return leader if leader and leader != first else ""

        second = await eventually("another leader", another_leads)
        assert second in others
        async with Client([cluster.servers[second].url], actor="tester") as client:
            decided = await client.note("test", "meanwhile")
        assert (await cluster.views())[first].applied_index < decided.index
        cluster.network.heal()

        async def agree() -> bool:
            views = await cluster.views()
            found = {(view.applied_index, view.digest) for view in views.values()}
            behind = [view for view in views.values() if view.applied_index < decided.index]
            return len(views) == 3 and not behind and len(found) == 1

        await eventually("all to agree", agree)
    assert marked(cluster.mark) == []
    assert leftovers.mounts(cluster.mark) == []


async def test_an_agent_is_cut_from_the_servers_and_clients_are_not(
    tmp_path: Path, network: str
) -> None:
    """The host is suspected while its agent is not heard, and is up again after healing."""
    async with Cluster(tmp_path, servers=1, hosts=1, network=network) as cluster:
        await cluster.start()
        await cluster.wait_ready()
        if isinstance(cluster.network, Proxied):
            assert cluster.network.connections()["h1", "s1"] == 1
        async with cluster.client("tester") as client:
            cluster.network.cut("h1", "s1")

            async def is_seen(status: str) -> bool:
                return (await client.host("h1", stale=True)).status == status

            await eventually("suspicion", lambda: is_seen("suspect"))
            assert cluster.hosts["h1"].running
            cluster.network.heal()
            await eventually("the host to be back", lambda: is_seen("up"))


async def test_processes_are_killed_stopped_and_started_again(tmp_path: Path) -> None:
    """A killed server comes back with its data, a host that lost its power is lost, and a server
    is added."""
    async with Cluster(tmp_path, hosts=1, network="proxied") as cluster:
        await cluster.start()
        await cluster.wait_ready()
        server, host = cluster.servers["s3"], cluster.hosts["h1"]
        async with cluster.client("tester", timeout_s=20) as client:
            await client.submit_job(_sleepers())
            (rank,) = await eventually("a rank", _ranks(host))
            assert host.kill_rank(rank)
            again = await eventually("another rank", _ranks(host, rank))
            assert again != [rank]
            host.pause_all()
            assert host.paused
            dead = host.kill_all()
            assert set(again) <= set(dead)
            assert host.processes() == []
            server.kill()
            assert server.ended

            async def is_lost() -> bool:
                return (await client.host("h1", stale=True)).status == "lost"

            await eventually("the host to be lost", is_lost)
            server.start()
            host.start()
            newcomer = cluster.add_server()
            await client.add_member(newcomer.node, newcomer.peer_address, newcomer.api_address)
            await cluster.wait_ready()
            assert set(await cluster.views()) == {"s1", "s2", "s3", "s4"}
            await cluster.dismiss(newcomer)
            newcomer.start()  # As a nemesis would that had killed it before.
            assert not newcomer.running
            assert len((await client.cluster()).members) == 3
    assert marked(cluster.mark) == []


def _sleepers() -> JobSpec:
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    role = RoleSpec(name="sleeper", command=command, replicas=1, resources=Resources(devices=1))
    return JobSpec(name="sleepers", roles=(role,))


def _ranks(host: Host, *but: int) -> Callable[[], Awaitable[list[int]]]:
    """Its ranks, none while they are those that were killed."""

    async def found() -> list[int]:
        return [pid for pid in host.ranks() if pid not in but]

    return found


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """With what to do about it; and nothing is left of the attempt."""
    cluster = Cluster(tmp_path, hosts=0, network="proxied")
    assert isinstance(cluster.network, Proxied)
    with (
        socket.create_server((cluster.network.subnet.address("s2"), PEER_PORT)),
        pytest.raises(NetworkFailed, match=rf"port {PEER_PORT} .* choose another port"),
    ):
        async with cluster:
            pytest.fail("it was opened")
    assert marked(cluster.mark) == []
    assert leftovers.mounts(cluster.mark) == []


async def test_a_server_that_ends_by_itself_is_told_with_its_log(tmp_path: Path) -> None:
    """Waiting for it does not take until the time is up."""
    settings = Settings(lease_ms=4_000, suspect_ms=5_000)
    async with Cluster(tmp_path, hosts=0, network="proxied", settings=settings) as cluster:
        await cluster.start()
        with pytest.raises(ClusterFailed, match=r"s\d ended with code 2(.|\n)*suspect_ms"):
            await cluster.wait_ready()
