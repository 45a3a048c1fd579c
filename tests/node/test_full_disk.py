"""A full disk makes a server read-only. It is never taken for the death of agents, and it heals."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coord.model.entities import HostStatus
from coord.model.settings import Settings
from coord.node.config import NodeConfig
from coord.node.node import Node
from coord.node.ports import SystemClock
from coord.raft.ports import Member
from coord.raft.single import SingleNodeLog
from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from coord.store.ports import StorageFull
from tests.node.cluster import FakeAgent, Writer, note, until

SETTINGS = Settings(
    lease_ms=1_500, suspect_ms=1_000, heartbeat_ms=100, fence_ms=100, max_step_ms=200
)


class FillingEnvironment(Environment):
    """An environment whose disk is full while `full` is set."""

    full = False

    def commit(self) -> None:
        if self.full and self.dirty:
            raise StorageFull("the disk is full; nothing was written")
        super().commit()


def open_environment(path: Path) -> FillingEnvironment:
    environment = FillingEnvironment.open(str(path), identity=Identity("test", 1))
    assert isinstance(environment, FillingEnvironment)
    return environment


def make_node(environment: Environment) -> Node:
    member = Member(1, "", "127.0.0.1:1")
    replicated = SingleNodeLog(member, environment)
    config = NodeConfig(node=1, cluster="test", settings=SETTINGS)
    return Node(replicated, None, LmdbEventStore(environment), SystemClock(), config)


async def test_a_full_disk_refuses_writes_spares_agents_and_heals(tmp_path: Path) -> None:
    """Longer than the lease: writes are refused as certainly not done, reads of what is there go
    on, no host is lost, and with room everything goes on by itself. Nothing refused appears."""
    environment = open_environment(tmp_path / "data")
    node = make_node(environment)
    await node.start()
    await until(lambda: node.ready)
    agent = FakeAgent(node, "h1")
    await agent.register()
    writer = Writer("a")
    assert (await writer.write(node, note("before"))).outcome == "committed"

    environment.full = True
    await until(lambda: node.log.status().read_only)
    loop = asyncio.get_running_loop()
    healed_at = loop.time() + 2.0
    while loop.time() < healed_at:
        agent.beat()
        result = await writer.write(node, note("refused"), timeout_s=1.0)
        assert (result.outcome, result.reason) == ("not_committed", "read_only")
        await asyncio.sleep(0.05)
    assert node.state.hosts["h1"].status == HostStatus.UP
    environment.full = False
    await until(lambda: not node.log.status().read_only)
    agent.beat()
    assert (await writer.write(node, note("after"))).outcome == "committed"
    seen = node.state.meta.now_ms
    while node.state.meta.now_ms < seen + 400:
        agent.beat()
        await asyncio.sleep(0.05)
    assert node.state.hosts["h1"].status == HostStatus.UP
    texts = [getattr(record.entry.event, "text", "") for record in node.events.read(1, 10_000)]
    assert [text for text in texts if text] == ["before", "after"]
    await node.stop()
    environment.close()
