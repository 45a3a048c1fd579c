"""Handing over the lead: what it costs everybody else when nobody takes over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coord.raft.ports import Committed
from tests.raft.fakes import run_virtually
from tests.raft.simulated import SimCluster


def test_handing_over_to_one_that_is_away_costs_no_more_than_an_election(tmp_path: Path) -> None:
    """Proposals wait while it is tried: for a dead follower they must not wait all the time that
    whoever asks is patient."""

    async def story(cluster: SimCluster) -> None:
        log = await cluster.wait("a leader", cluster.leader)
        assert isinstance(await cluster.propose(log), Committed)
        await cluster.caught_up()
        away = next(node for node in cluster.nodes if node != log.node)
        await cluster.crash(away)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        handing_over = asyncio.ensure_future(log.transfer_leadership(away, 60.0))
        await asyncio.sleep(0)
        assert isinstance(await cluster.propose(log, 30.0), Committed)
        assert loop.time() - begun_s < 2 * cluster.timings.election_max_ms / 1_000
        assert not await handing_over
        assert cluster.leader() is log

    async def whole() -> None:
        cluster = SimCluster(3, str(tmp_path / "disks"), seed=7)
        try:
            await cluster.start_all()
            await story(cluster)
        finally:
            await cluster.stop_all()
        cluster.check()

    run_virtually(whole())
