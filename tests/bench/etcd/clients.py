"""What ordinary clients of ours do to be measured: write, see a leader's death, follow the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from coord.client import Client
from coord.model.decisions import HostLost
from tests.bench.etcd.crowd import Crowd

TEXT = "x" * 200
"""With the rest of the event about 256 bytes."""
FAILOVER_S = 60.0
LATE_S = 60.0
"""For verdicts that do not come; far beyond every goal."""


class Written(msgspec.Struct, frozen=True):
    events: int
    wall_s: float
    p50_ms: float
    cpu_s: float
    """Of this process."""


def write(urls: list[str], writers: int, duration_s: float) -> Written:
    """Coroutines that each wait for their answer before they write again, on one client."""
    return asyncio.run(_write(urls, writers, duration_s))


async def _write(urls: list[str], writers: int, duration_s: float) -> Written:
    took_s: list[float] = []

    async def one(client: Client, end_s: float) -> None:
        while (asked_s := time.perf_counter()) < end_s:
            await client.note("bench", TEXT)
            took_s.append(time.perf_counter() - asked_s)

    async with Client(urls, actor="bench") as client:
        await client.note("bench", "find the leader first")
        cpu_s, began_s = time.process_time(), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(one(client, began_s + duration_s))
        wall_s = time.perf_counter() - began_s
        cpu_s = time.process_time() - cpu_s
    took_s.sort()
    return Written(len(took_s), wall_s, 1_000 * took_s[len(took_s) // 2], cpu_s)


def first_write(urls: list[str], kill: Callable[[], None]) -> float:
    """Seconds from `kill` to the next write acknowledged to a client that writes all the time."""
    return asyncio.run(_first_write(urls, kill))


async def _first_write(urls: list[str], kill: Callable[[], None]) -> float:
    async with Client(urls, actor="bench", timeout_s=FAILOVER_S) as client:
        end_s = time.perf_counter() + 1.0
        while time.perf_counter() < end_s:
            await client.note("bench", "before")
        killed_s = time.perf_counter()
        kill()  # Returns once the process is gone: what is acknowledged later came from others.
        await client.note("bench", "after")
        return time.perf_counter() - killed_s


class Detected(msgspec.Struct, frozen=True):
    late_s: list[float]
    """Of each death: from its last beat and a lease to a follower of the log reading HostLost."""
    false: int
    """Verdicts against hosts that were alive."""


def detect(
    urls: list[str], crowd: Crowd, groups: list[list[int]], spread_s: float, lease_s: float
) -> Detected:
    """Let groups of agents die, `spread_s` apart, and wait until each has been declared lost."""
    return asyncio.run(_detect(urls, crowd, groups, spread_s, lease_s))


async def _detect(
    urls: list[str], crowd: Crowd, groups: list[list[int]], spread_s: float, lease_s: float
) -> Detected:
    beaten_s: dict[str, float] = {}
    lost_s: dict[str, float] = {}
    expected = sum(map(len, groups))

    async def follow(client: Client, start: int) -> None:
        async for record in client.watch(start, stale=True):
            now_s = time.monotonic()
            for decision in record.decisions:
                if isinstance(decision, HostLost):
                    lost_s.setdefault(decision.host, now_s)
            if len(lost_s) >= expected:
                return

    async with Client(urls, actor="bench") as client, asyncio.TaskGroup() as tasks:
        start = (await client.cluster()).applied_index + 1
        following = tasks.create_task(follow(client, start))
        for group in groups:
            beaten_s.update(await asyncio.to_thread(crowd.die, group))
            await asyncio.sleep(spread_s)
        async with asyncio.timeout(lease_s + LATE_S):
            await following
    late = [lost_s[host] - at_s - lease_s for host, at_s in beaten_s.items() if host in lost_s]
    if not late:
        raise RuntimeError("no death was noticed")
    return Detected(late, sum(host not in beaten_s for host in lost_s))
