"""What was acknowledged is there, whatever was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coord.client import Client
from coord.client.errors import NotDone, OutcomeUnknown
from coord.model.events import NoteAdded
from tests.integration.cluster import Fleet

WRITERS = 16
ROUNDS = 3


class Writers:
    """Notes with texts of their own, and what was said of each."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        """Text to the log index that was acknowledged."""
        self.refused: list[str] = []
        """Certainly not done."""
        self.unknown = 0
        self.going_on = True
        self._decided = asyncio.Event()

    async def write(self, urls: list[str], writer: int) -> None:
        """One note after the other until told to stop."""
        number = 0
        async with Client(urls, actor=f"writer-{writer}", timeout_s=3.0) as client:
            while self.going_on:
                number += 1
                text = f"{writer}/{number}"
                try:
                    decided = await client.note("durability", text)
                    self.acknowledged[text] = decided.index
                except NotDone:
                    self.refused.append(text)
                except OutcomeUnknown:
                    self.unknown += 1
                self._decided.set()

    async def reach(self, more: int) -> None:
        """Until so many more were acknowledged."""
        wanted = len(self.acknowledged) + more
        async with asyncio.timeout(60):
            while len(self.acknowledged) < wanted:
                self._decided.clear()
                await self._decided.wait()


async def _kill_and_restart_under_load(fleet: Fleet, writers: Writers, how_often: int) -> None:
    async with asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(writers.write(fleet.cluster.urls, writer))
        for _ in range(how_often):
            await writers.reach(200)
            for server in fleet.cluster.servers.values():
                server.process.kill()  # all first, and only then wait for any
            for server in fleet.cluster.servers.values():
                server.kill()
                server.start()
        await writers.reach(200)
        writers.going_on = False


@pytest.mark.parametrize("nodes", [1, 3])
def test_every_acknowledged_event_survives_the_death_of_all_servers(
    start_fleet: Callable[..., Fleet], nodes: int
) -> None:
    """All servers are killed at once, thrice, under load: what was acknowledged is in the log at
    the index that was said, exactly once, and what was refused is not."""
    fleet = start_fleet(nodes=nodes, agents=0)
    writers = Writers()
    asyncio.run(_kill_and_restart_under_load(fleet, writers, ROUNDS))
    fleet.wait_for("the log", lambda: fleet.log.records)
    kept: dict[str, list[int]] = {}
    for record in fleet.log.records:
        event = record.entry.event
        if isinstance(event, NoteAdded) and not record.duplicate_of:
            kept.setdefault(event.text, []).append(record.entry.index)
    lost = {text: at for text, at in writers.acknowledged.items() if kept.get(text) != [at]}
    assert lost == {}
    assert [text for text in writers.refused if text in kept] == []
    assert [text for text, indexes in kept.items() if len(indexes) > 1] == []
    indexes = [record.entry.index for record in fleet.log.records]
    assert indexes == list(range(1, len(indexes) + 1))


def test_the_cluster_goes_on_without_any_one_server(
    start_fleet: Callable[..., Fleet],
) -> None:
    """Each server in turn is killed, missed, and started again."""
    fleet = start_fleet(nodes=3, agents=0)
    for node, server in fleet.cluster.servers.items():
        server.kill()
        fleet.wait_for("a write", lambda node=node: fleet.client.note("cluster", f"without {node}"))
        server.start()
        fleet.cluster.wait_ready(timeout_s=60)
    texts = [event.text for event in fleet.log.events(NoteAdded)]
    fleet.wait_for("the log", lambda: len(fleet.log.events(NoteAdded)) >= 3)
    texts = [event.text for event in fleet.log.events(NoteAdded)]
    assert texts == ["without 1", "without 2", "without 3"]
