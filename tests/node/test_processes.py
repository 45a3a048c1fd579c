"""Three server processes over PySyncObj, and kill -9."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coord.cli.local import LocalCluster
from coord.client import Client
from coord.client.errors import CoordError

WRITERS = 12
KILLS = 3


class Load:
    """Writers that go on whatever happens, and what they were told."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.acknowledged: dict[str, int] = {}
        self.going_on = True
        self._news = asyncio.Event()

    async def write(self, name: str) -> None:
        async with Client(self.urls, actor=name, timeout_s=10) as client:
            number = 0
            while self.going_on:
                number += 1
                text = f"{name}/{number}"
                try:
                    decided = await client.note("load", text)
                except CoordError:
                    continue  # Not acknowledged: it may be in the log once, or not at all.
                self.acknowledged[text] = decided.index
                self._news.set()

    async def reach(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        async with asyncio.timeout(60):
            while len(self.acknowledged) < wanted:
                self._news.clear()
                await self._news.wait()


async def fetch(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(url) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def whole_log(session: aiohttp.ClientSession, url: str, stop: int) -> list[dict[str, Any]]:
    """Entries 1 to `stop` as this server has them."""
    records: list[dict[str, Any]] = []
    while len(records) < stop:
        page = await fetch(session, f"{url}/v1/events?from={len(records) + 1}&limit=5000")
        records += page["events"]
    return records[:stop]


async def leader_of(session: aiohttp.ClientSession, url: str) -> int:
    async with asyncio.timeout(30):
        while True:
            cluster = await fetch(session, f"{url}/v1/cluster?stale=1")
            if cluster["leader"]:
                return int(cluster["leader"])
            await asyncio.sleep(0.02)


async def kill_leaders(cluster: LocalCluster, load: Load, session: aiohttp.ClientSession) -> None:
    """The leader, thrice, under load; each comes back."""
    for turn in range(KILLS):
        await load.reach(150)
        alive = cluster.urls[turn % len(cluster.urls)]
        leader = cluster.servers[await leader_of(session, alive)]
        leader.kill()
        await load.reach(50)
        leader.start()
        await asyncio.to_thread(cluster.wait_ready, 60)


@pytest.mark.xdist_group("processes")
async def test_killed_leaders_lose_and_double_nothing(tmp_path: Path) -> None:
    """Every acknowledged write is in the log once, at the index that was said, and the three
    servers hold the same log with the same digests."""
    with LocalCluster(tmp_path, nodes=3, agents=0) as cluster:
        cluster.start()
        await asyncio.to_thread(cluster.wait_ready, 60)
        load = Load(cluster.urls)
        async with aiohttp.ClientSession() as session:
            async with asyncio.TaskGroup() as group:
                for number in range(WRITERS):
                    group.create_task(load.write(f"w{number}"))
                await kill_leaders(cluster, load, session)
                load.going_on = False
            last = (await fetch(session, f"{cluster.urls[0]}/v1/cluster"))["applied_index"]
            logs = [await whole_log(session, url, last) for url in cluster.urls]
    kept: dict[str, list[int]] = {}
    for record in logs[0]:
        event = record["entry"]["event"]
        if event["type"] == "NoteAdded" and not record.get("duplicate_of"):
            kept.setdefault(event["text"], []).append(record["entry"]["index"])
    assert len(load.acknowledged) >= KILLS * 200
    wrong = {text: at for text, at in load.acknowledged.items() if kept.get(text) != [at]}
    assert wrong == {}
    assert [text for text, indexes in kept.items() if len(indexes) > 1] == []
    assert logs[0] == logs[1] == logs[2]


@pytest.mark.xdist_group("processes")
async def test_a_server_that_is_left_alone_is_not_ready(tmp_path: Path) -> None:
    """It has heard of no other leader, but the last one is dead. Old answers are still there."""
    with LocalCluster(tmp_path, nodes=3, agents=0) as cluster:
        cluster.start()
        await asyncio.to_thread(cluster.wait_ready, 60)
        async with aiohttp.ClientSession() as session:
            leader = await leader_of(session, cluster.urls[0])
            alone = leader % 3 + 1
            for node, server in cluster.servers.items():
                if node != alone:
                    server.kill()
            url = cluster.urls[alone - 1]
            said = {"status": "ok"}
            async with asyncio.timeout(30):
                while said.get("status") == "ok":
                    await asyncio.sleep(0.02)
                    said = await fetch(session, f"{url}/readyz")
            assert "are a majority" in said["error"]["message"]
            stale = await fetch(session, f"{url}/v1/jobs?stale=1")
            assert stale["jobs"] == []
            refused = await fetch(session, f"{url}/v1/jobs?timeout_ms=300")
            assert refused["error"]["code"] == "no_leader"
