"""Housekeeping: restart from what was stored, snapshots, retention, digests, invariants."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coord.core.machine import apply
from coord.core.state import decode_state, encode_state, state_digest
from coord.model.entities import Task, TaskStatus
from coord.model.entry import Recorded
from coord.node.config import Intervals, Retention
from coord.node.digests import StateDiverged
from coord.node.keeper import InvariantBroken
from tests.node.cluster import Cluster, FakeAgent, Writer, note, until

OFTEN = Intervals(state_s=0.05, digest_s=0.05, invariants_s=0.05, keep_s=0.1)


async def test_a_restart_replays_only_the_tail() -> None:
    """The stored rows say how far they go; what follows comes from the log again."""
    async with Cluster(intervals=OFTEN) as cluster:
        writer = Writer("a")
        for _ in range(20):
            await writer.write(cluster.leader)
        number = cluster.followers[0].config.node
        node = cluster.nodes[number]
        await until(lambda: node.machine.raft_index == node.machine._staged_index)
        cluster.stores[number].flush()
        stored = cluster.stores[number].reopened().load_state()[0]
        for _ in range(5):
            await writer.write(cluster.leader)
        await cluster.kill(number)
        again = await cluster.start(number)
        applied = again.metrics.entries._value.get()
        await cluster.agree()
        assert stored > 0
        assert applied < 20
        assert again.events.first_index == 1
        texts = [r for r in again.events.read(1, 1_000) if r.entry.event == note()]
        assert len(texts) == 25
        assert state_digest(again.state) == state_digest(cluster.leader.state)


async def test_a_node_that_was_away_installs_a_snapshot_and_serves() -> None:
    """Its agents get their plans, its readers their answers, its history is whole."""
    async with Cluster() as cluster:
        writer = Writer("a")
        number = cluster.followers[-1].config.node
        await cluster.kill(number)
        for _ in range(30):
            await writer.write(cluster.leader)
        await cluster.leader.keeper.snapshot()
        await writer.write(cluster.leader)
        node = await cluster.start(number)
        await until(lambda: node.ready)
        await cluster.agree()
        assert node.events.first_index == 1
        assert node.events.read(1, 1)[0] == cluster.leader.events.read(1, 1)[0]
        assert (await writer.write(node)).outcome == "committed"
        assert await node.read_index() > 30


async def test_snapshots_are_written_when_the_journal_has_grown() -> None:
    """By itself, and the journal is shorter afterwards."""
    async with Cluster(1, intervals=OFTEN, snapshot_entries=20) as cluster:
        writer, node = Writer("a"), cluster.leader
        for _ in range(60):
            await writer.write(node)
        await until(lambda: node.log.status().first_index > 20)
        assert node.events.first_index == 1
        assert (await writer.write(node)).outcome == "committed"


async def test_old_entries_are_given_up_and_the_rest_replays() -> None:
    """The base state is advanced by replay: from it, what is kept leads to the same digest."""
    async with Cluster(1, intervals=OFTEN, retention=Retention(max_entries=10)) as cluster:
        writer, node = Writer("a"), cluster.leader
        for _ in range(50):
            await writer.write(node)
        await until(lambda: node.events.first_index > 40)
        state = decode_state(node.events.store.base_state())
        assert state.meta.applied_index == node.events.first_index - 1
        for record in node.events.store.scan(node.events.first_index, 1_000_000):
            assert apply(state, record.entry).digest == record.digest
        assert encode_state(state) == encode_state(node.state)
        assert (await writer.write(node)).outcome == "committed"


async def test_entries_beyond_their_size_are_given_up_and_no_more() -> None:
    """What is kept is near the limit, and a second pass takes nothing further."""
    async with Cluster(1, retention=Retention(max_bytes=10_000)) as cluster:
        writer, node = Writer("a"), cluster.leader
        for _ in range(200):
            await writer.write(node, note("x" * 100))
        await node.keeper.retain()
        first = node.events.first_index
        kept = node.events.last_index - first + 1
        assert 20 < kept < 60
        await node.keeper.retain()
        assert node.events.first_index - first <= 2


async def test_entries_are_kept_by_age() -> None:
    """Nothing younger than asked goes, everything older does."""
    async with Cluster(1) as cluster:
        writer, node = Writer("a"), cluster.leader
        for _ in range(20):
            await writer.write(node)
        third = node.events.read(3, 1)[0].entry.wall_ms
        assert node.keeper._first_younger(third) <= 3
        assert node.keeper._first_younger(0) == 1
        assert node.keeper._first_younger(third + 10**9) == node.events.last_index + 1


async def test_the_node_that_differs_from_the_majority_halts() -> None:
    """With both digests in the message; the others go on."""
    async with Cluster(intervals=OFTEN) as cluster:
        await Writer("a").write(cluster.leader)
        wrong = cluster.followers[0]
        wrong.state.meta.digest = "f" * 32
        await Writer("b").write(cluster.leader)
        await until(wrong.failure.done)
        error = wrong.failure.result()
        assert isinstance(error, StateDiverged)
        assert "this node's digest is" in str(error)
        others = [node for node in cluster.nodes.values() if node is not wrong]
        for node in others:
            assert not node.failure.done()
            assert (await Writer(f"c{node.config.node}").write(node)).outcome == "committed"


async def test_equal_digests_are_compared_and_nobody_halts() -> None:
    """The exchange runs all the time."""
    async with Cluster(intervals=OFTEN) as cluster:
        await until(lambda: all(node.digests.compared > 3 for node in cluster.nodes.values()))
        assert not any(node.failure.done() for node in cluster.nodes.values())


async def test_a_broken_invariant_halts_the_node_and_keeps_the_evidence(tmp_path: Path) -> None:
    """The message names the offender and the file with the last events."""
    async with Cluster(1, intervals=OFTEN, dump_directory=str(tmp_path)) as cluster:
        node = cluster.leader
        agent = FakeAgent(node, "h1")
        await agent.register(devices=1)
        for key in ("a/b/0#1", "a/b/1#1"):
            task = Task(key, "a", "b", 0, 1, "a/b", "h1", TaskStatus.RUNNING, 0, devices=(0,))
            node.state.tasks.put(key, task)
        await until(node.failure.done)
        error = node.failure.result()
        assert isinstance(error, InvariantBroken)
        assert "device 0 of h1 is taken 2 times" in str(error)
        (dump,) = list_directory(tmp_path)
        assert str(dump) in str(error)
        records = [
            msgspec.json.decode(line, type=Recorded) for line in dump.read_bytes().splitlines()
        ]
        assert [record.entry.index for record in records] == list(range(1, len(records) + 1))
        late = await Writer("a").write(node)
        assert (late.outcome, late.reason) == ("not_committed", "stopping")


def list_directory(path: Path) -> list[Path]:
    return list(path.iterdir())


async def test_a_defect_in_apply_halts_the_node() -> None:
    """Never logged and passed over: bytes that are no command stop whoever must apply them."""
    async with Cluster() as cluster:
        nodes = list(cluster.nodes.values())
        await cluster.leader.log.propose(b"\xff no batch", 1.0)
        await until(lambda: all(node.failure.done() for node in nodes))


async def test_watchers_follow_from_any_index() -> None:
    """First what is stored, then what comes, in order and without gaps, until the node stops."""
    async with Cluster(1) as cluster:
        node, writer = cluster.leader, Writer("a")
        for _ in range(10):
            await writer.write(node)
        seen = []
        async for record in node.watch(3):
            seen.append(record.entry.index)
            if len(seen) == 8:
                await writer.write(node)
            if len(seen) == 10:
                break
        assert seen == list(range(3, 13))
