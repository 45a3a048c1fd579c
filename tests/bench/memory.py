"""Memory of a server that a hundred agents talk to."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from coord.cli.local import LocalCluster
from coord.client import Agent
from tests.bench.figures import Figure, reference_s

AGENTS = 100
BEATS_S = 10.0


def measure(runs: int) -> list[Figure]:
    """Resident memory of the largest of three servers after ten seconds of heartbeats."""
    figure = Figure(f"memory of a server, {AGENTS} agents", "MiB", 150, True, [], [])
    for _ in range(runs):
        figure.references.append(reference_s())
        with (
            tempfile.TemporaryDirectory(prefix="coord-bench-") as directory,
            LocalCluster(Path(directory), nodes=3, agents=0) as cluster,
        ):
            cluster.start()
            cluster.wait_ready(timeout_s=60)
            asyncio.run(_be_agents(cluster.urls))
            sizes = [
                psutil.Process(server.pid).memory_info().rss for server in cluster.servers.values()
            ]
            figure.values.append(max(sizes) / (1 << 20))
    return [figure]


async def _be_agents(urls: list[str]) -> None:
    """A hundred hosts that register and beat."""
    async with AsyncExitStack() as stack:
        registrations: list[Awaitable[object]] = []
        for number in range(AGENTS):
            agent = Agent(
                urls[number % len(urls) :] + urls[: number % len(urls)],
                host=f"host-{number}",
                agent_id=f"agent-{number}",
                boot="boot",
                address="127.0.0.1",
                next_seq=itertools.count(1).__next__,
                devices=8,
            )
            await stack.enter_async_context(agent)
            registrations.append(agent.register([]))
        await asyncio.gather(*registrations)
        await asyncio.sleep(BEATS_S)  # what is measured: ten seconds of heartbeats
