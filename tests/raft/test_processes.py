"""Real processes, real disks, real sockets: killed, away, and back."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.raft.certificates import make_authority, make_certificate
from tests.raft.clusters import wait
from tests.raft.processes import ProcessCluster, ServerProcess

Make = Callable[..., ProcessCluster]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    clusters: list[ProcessCluster] = []

    def made(size: int = 3, **config: Any) -> ProcessCluster:
        clusters.append(ProcessCluster(size, tmp_path, **config))
        return clusters[-1]

    yield made
    for cluster in clusters:
        await cluster.stop()


def load(server: ServerProcess, name: str, seconds: float) -> None:
    """Have it propose one after another and report each acknowledgement."""
    server.send(do="load", seconds=seconds, name=name, size=100, tell=True)


async def level(cluster: ProcessCluster, limit_s: float = 20.0) -> list[str]:
    """What all nodes have applied, once that is the same."""

    def same(found: dict[int, dict[str, Any]]) -> bool:
        last = {one["status"]["last_index"] for one in found.values()}
        applied = {one["status"]["applied_index"] for one in found.values()}
        return last == applied and len(last) == 1

    await cluster.leader()
    await cluster.wait("all nodes level", same, limit_s)
    lists = [
        await server.ask("payloads", do="payloads")
        for server in cluster.servers.values()
        if server.running
    ]
    assert all(one == lists[0] for one in lists)
    first: list[str] = lists[0]
    return first


async def test_nothing_acknowledged_is_lost_when_all_are_killed(make: Make) -> None:
    """kill -9 of all three at once, under load, twice."""
    cluster = make()
    await cluster.start()
    for round_number in range(2):
        leader = await cluster.leader()
        load(leader, f"round-{round_number}", seconds=30)
        await asyncio.sleep(1.0)
        for server in cluster.servers.values():
            server.kill()
        for server in cluster.servers.values():
            await server.reap()
        await cluster.start()
    applied = await level(cluster)
    acknowledged = [ack for server in cluster.servers.values() for ack in server.acks]
    assert len(acknowledged) > 20
    assert [ack for ack in acknowledged if applied.count(ack) != 1] == []
    assert len(set(applied)) == len(applied)


async def test_a_killed_leader_is_followed_quickly(make: Make) -> None:
    """Its acknowledgements stay; the next write waits for no full election timeout."""
    cluster = make()
    await cluster.start()
    waits_s = []
    for round_number in range(3):
        leader = await cluster.leader()
        load(leader, f"round-{round_number}", seconds=30)
        await asyncio.sleep(0.3)
        killed_at = time.time()
        leader.kill()
        waits_s.append(await first_write(cluster, leader, f"after-{round_number}") - killed_at)
        await leader.reap()
        await leader.start()
        await level(cluster)
    applied = await level(cluster)
    acknowledged = [ack for server in cluster.servers.values() for ack in server.acks]
    assert [ack for ack in acknowledged if applied.count(ack) != 1] == []
    assert statistics.median(waits_s) < 3.0


async def first_write(cluster: ProcessCluster, dead: ServerProcess, name: str) -> float:
    """When, by the clock on the wall, the others first acknowledged something again."""
    until_s = time.monotonic() + 20
    attempt = 0
    while time.monotonic() < until_s:
        for server in cluster.servers.values():
            if server is dead:
                continue
            attempt += 1
            answer = await server.ask_all("outcome", do="propose", payload=f"{name}-{attempt}")
            if answer["outcome"] == "Committed":
                return float(answer["at"])
        await asyncio.sleep(0.005)
    raise AssertionError("nothing was acknowledged for 20 s after the leader was killed")


@pytest.mark.parametrize("compacted", [False, True], ids=["by log", "by snapshot"])
async def test_a_node_that_was_away_catches_up(make: Make, compacted: bool) -> None:
    """From the leader's log, or from its snapshot when the log no longer reaches back."""
    cluster = make(timings={"keep_entries": 10})
    await cluster.start()
    leader = await cluster.leader()
    away = next(server for server in cluster.servers.values() if server is not leader)
    away.kill()
    await away.reap()
    await leader.ask("loaded", do="load", seconds=1.0, name="meanwhile", size=100, tell=True)
    if compacted:
        await leader.ask("snapshot", do="snapshot")
    await away.start()
    applied = await level(cluster)
    assert [ack for ack in leader.acks if applied.count(ack) != 1] == []
    status = await away.ask("status", do="status")
    assert (status["first_index"] > 1) is compacted


async def test_servers_with_certificates_make_a_cluster(make: Make, tmp_path: Path) -> None:
    """Mutual TLS between all of them; one without the right certificate stays outside."""
    authority = make_authority(tmp_path / "tls", "authority")
    cluster = make()
    for node, server in cluster.servers.items():
        server.config["tls"] = make_certificate(tmp_path / "tls", f"node-{node}", authority)
    foreign = make_authority(tmp_path / "foreign", "authority")
    cluster.servers[3].config["tls"] = make_certificate(tmp_path / "foreign", "node-3", foreign)
    await cluster.start()
    leader = await cluster.leader()
    assert leader.node != 3
    assert await leader.ask("outcome", do="propose", payload="secret") == "Committed"
    status = await cluster.servers[3].ask("status", do="status")
    assert (status["connected"], status["leader"]) == ([], 0)


async def test_a_newcomer_joins_a_running_cluster(make: Make, tmp_path: Path) -> None:
    """With an empty directory and nothing but its own address."""
    cluster = make(4)
    three = cluster.members[:3]
    for node in (1, 2, 3):
        cluster.servers[node].config["members"] = three
    cluster.servers[4].config["joins"] = True
    await cluster.start()
    leader = await cluster.leader()
    assert await leader.ask("outcome", do="propose", payload="before") == "Committed"
    assert await leader.ask("outcome", do="add", member=cluster.members[3]) == "Committed"
    assert await leader.ask("outcome", do="propose", payload="after") == "Committed"
    assert await level(cluster) == ["before", "after"]


async def test_another_clusters_server_is_not_let_in(make: Make, tmp_path: Path) -> None:
    """It was given the addresses of this one by mistake."""
    cluster = make()
    cluster.servers[3].config["cluster"] = "other"
    await cluster.start()
    leader = await cluster.leader()
    assert leader.node != 3
    assert await leader.ask("outcome", do="propose", payload="ours") == "Committed"
    assert await cluster.servers[3].ask("payloads", do="payloads") == []
    told = "node 3 is of cluster 'other', node "
    await wait(lambda: told in cluster.servers[3].log_path.read_text())
    await wait(lambda: told in leader.log_path.read_text())
