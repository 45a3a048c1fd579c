"""The fixtures on real processes: broken by hand and by seed, with an event loop and without."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import pytest
from _pytest.outcomes import Skipped
from jepsen_lite import ClusterFactory, Nemeses, RunningCluster, SharedHistory, Violated

PATIENCE_S = 60.0
AGENT = (
    sys.executable, "-m", "coord.cli.main", "agent", "--host-id={host}", "--data={data}",
    "--address={address}", "--server={servers}", "--cluster-id={cluster}", "--devices=3",
)  # fmt: skip
"""Anybody's agent will do; this one is at hand."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.05)


@pytest.mark.coord_cluster(servers=3, hosts=1, agent=AGENT, judge=True)
def test_a_test_without_a_loop_breaks_a_cluster_by_hand_and_by_seed(
    coord_cluster: RunningCluster, nemesis: Nemeses, history: SharedHistory
) -> None:
    """The host has the agent that the test names, and is broken as any other. What was begun is
    ended with the block."""
    with coord_cluster.sync_client() as client:
        assert [(host.host, host.devices) for host in client.hosts()] == [("h1", 3)]
        leader = coord_cluster.leader()
        assert leader is not None
        with nemesis("kill-leader") as trouble:
            assert trouble.targets == (leader,)
            assert not coord_cluster.servers[leader].running
            wait_until(lambda: coord_cluster.leader() not in (None, leader), "another leader")
            client.note("test", "while it was down")
        assert coord_cluster.servers[leader].running
        with nemesis.loose("kill-agent+reset") as loose:
            kinds = {"kill-agent", "reset"}
            wait_until(lambda: {one.nemesis for one in loose.faults} == kinds, "a fault of each")
        assert all(fault.ended_ns for fault in history.faults)
        assert len(history.faults) == 1 + len(loose.faults)
    coord_cluster.heal()
    assert coord_cluster.hosts["h1"].running


@pytest.mark.coord_cluster(servers=1, hosts=0, settings={"lease_ms": 3_000})
async def test_a_test_with_a_loop_uses_the_same_and_attaches_to_it(
    coord_cluster: RunningCluster,
    coord_cluster_factory: ClusterFactory,
    nemesis: Nemeses,
    history: SharedHistory,
) -> None:
    """The loop goes on while something begins. A cluster that runs already serves as one of the
    test's own, and what nobody gave a hook for skips the test."""
    assert coord_cluster.cluster.settings.lease_ms == 3_000
    async with coord_cluster.client() as client:
        async with nemesis("pause-short") as trouble:
            assert trouble.what.startswith("SIGSTOP to server s1")
            asking = asyncio.create_task(client.note("test", "answered once it goes on"))
            _, waiting = await asyncio.wait([asking], timeout=0.3)
            assert waiting
        assert (await asking).index > 0
    theirs = await asyncio.to_thread(coord_cluster_factory, attach=coord_cluster.urls)
    async with theirs.client() as client:
        assert (await client.cluster()).node == 1
    with pytest.raises(Skipped, match="kill-leader is not possible here: the hooks"):
        nemesis("kill-leader", theirs)
    with history.asking("x", "write", 1, token="never-sent") as asked:
        asked.answered(None, 1)
    with pytest.raises(Violated, match="acknowledged, but lost"):
        await asyncio.to_thread(theirs.judge)
