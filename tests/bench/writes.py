"""Acknowledged events a second: three servers on loopback, fsync on, through the client library."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from coord.cli.local import LocalCluster
from coord.client import Client
from tests.bench.figures import Figure, reference_s

DURATION_S = 3.0
TEXT = "x" * 200
"""With the rest of the event about 256 bytes."""


def measure(runs: int) -> list[Figure]:
    """One writer that waits for each answer, and 64 of them at once."""
    one = Figure("acknowledged events, 1 writer", "1/s", 400, False, [], [])
    many = Figure("acknowledged events, 64 writers", "1/s", 3_000, False, [], [])
    many.note = "64 coroutines that each wait for their answer, one client"
    with (
        tempfile.TemporaryDirectory(prefix="coord-bench-") as directory,
        LocalCluster(Path(directory), nodes=3, agents=0) as cluster,
    ):
        cluster.start()
        cluster.wait_ready(timeout_s=60)
        asyncio.run(_write(cluster.urls, 16, 1.0))  # connections, caches, code paths
        for _ in range(runs):
            for figure, writers in ((one, 1), (many, 64)):
                figure.references.append(reference_s())
                figure.values.append(asyncio.run(_write(cluster.urls, writers, DURATION_S)))
    return [one, many]


async def _write(urls: list[str], writers: int, duration_s: float) -> float:
    """Events acknowledged a second."""
    acknowledged = 0

    async def write(client: Client, end: float) -> None:
        nonlocal acknowledged
        while time.perf_counter() < end:
            await client.note("bench", TEXT)
            acknowledged += 1

    async with Client(urls, actor="bench") as client:
        await client.note("bench", "find the leader first")
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(write(client, began + duration_s))
        return acknowledged / (time.perf_counter() - began)
