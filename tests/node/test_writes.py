"""Events reach the log from any node, once, whoever leads."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from coord.model.channel import Result
from coord.model.entry import Origin, Submission
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    LeaderElected,
    NoteAdded,
)
from coord.node.config import Intervals, Limits
from coord.node.node import Node
from coord.raft.memory import InMemoryHub
from coord.raft.ports import RaftStatus
from tests.node.cluster import Cluster, Writer, note, turns_until, until


def notes(node: Node) -> list[str]:
    """Texts of the notes in the log that took effect, in order."""
    records = node.events.read(1, 100_000)
    return [
        record.entry.event.text
        for record in records
        if isinstance(record.entry.event, NoteAdded) and not record.duplicate_of
    ]


async def test_a_term_opens_with_its_leader_and_a_cluster_with_its_settings() -> None:
    """Nothing comes before LeaderElected; the first leader of all records the settings."""
    async with Cluster() as cluster:
        await Writer("a").write(cluster.leader)
        events = [record.entry.event for record in cluster.leader.events.read(1, 3)]
        assert [type(event) for event in events] == [LeaderElected, ClusterConfigured, NoteAdded]
        assert cluster.leader.state.meta.leader == cluster.hub.leader
        cluster.hub.fail_over()
        await Writer("b").write(cluster.leader)
        records = cluster.leader.events.read(1, 1_000)
        opening = next(r.entry for r in records if r.entry.term == cluster.hub.term)
        assert opening.event == LeaderElected(cluster.hub.leader, cluster.hub.term)
        configured = [r for r in records if isinstance(r.entry.event, ClusterConfigured)]
        assert len(configured) == 1


async def test_a_follower_forwards_and_answers_when_it_has_applied() -> None:
    """The writer may read its own write from the node it wrote to, without a barrier."""
    async with Cluster() as cluster:
        follower = cluster.followers[0]
        result = await Writer("a").write(follower, note("mine"))
        assert result.outcome == "committed"
        assert follower.events.read(result.index, 1)[0].entry.event == note("mine")
        await cluster.agree()


async def test_the_same_request_through_two_nodes_has_one_effect() -> None:
    """Exactly once, by origin; both are told the same index."""
    async with Cluster() as cluster:
        submission = Writer("a").submission(note("once"))
        results = await asyncio.gather(
            *(node.submit(submission) for node in cluster.nodes.values())
        )
        assert len({result.index for result in results}) == 1
        assert notes(cluster.leader) == ["once"]


async def test_many_writers_through_all_nodes_lose_and_double_nothing() -> None:
    """Group commit keeps each writer's order."""
    async with Cluster() as cluster:

        async def write(name: str, node: Node) -> None:
            writer = Writer(name)
            for number in range(40):
                result = await writer.write(node, note(f"{name}-{number}"))
                assert (result.outcome, result.rejection) == ("committed", "")

        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(write(f"w{number}", cluster.nodes[number % 3 + 1]))
        await cluster.agree()
        found = notes(cluster.leader)
        assert sorted(found) == sorted(f"w{w}-{n}" for w in range(12) for n in range(40))
        for number in range(12):
            own = [text for text in found if text.startswith(f"w{number}-")]
            assert own == [f"w{number}-{n}" for n in range(40)]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_command_of_unknown_outcome_is_decided_once(commits: bool) -> None:
    """Whether or not it was committed after all, the retry gets one effect."""
    async with Cluster() as cluster:
        cluster.hub.lose_next_proposal(commits=commits)
        result = await Writer("a").write(cluster.leader, note("once"))
        assert result.outcome == "committed"
        assert notes(cluster.leader) == ["once"]


async def test_requests_under_way_follow_the_leader() -> None:
    """Elections in the middle of writing: everything acknowledged, exactly once."""
    async with Cluster() as cluster:

        async def write(name: str, node: Node) -> None:
            writer = Writer(name)
            for number in range(30):
                result = await writer.write(node, note(f"{name}-{number}"), timeout_s=10)
                assert (result.outcome, result.rejection) == ("committed", "")

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(write(f"w{number}", cluster.nodes[number % 3 + 1]))
            for _ in range(4):
                seen = cluster.leader.events.last_index
                await until(lambda seen=seen: cluster.leader.events.last_index > seen + 5)
                cluster.hub.fail_over()
        await cluster.agree()
        assert sorted(notes(cluster.leader)) == sorted(
            f"w{w}-{n}" for w in range(6) for n in range(30)
        )


async def test_without_a_leader_a_request_ends_as_not_committed() -> None:
    """It never left, so it certainly did not happen; and it does not happen later."""
    async with Cluster(hub=InMemoryHub(3, auto_elect=True)) as cluster:
        cluster.hub.auto_elect = False
        cluster.hub.step_down()
        result = await Writer("a").write(cluster.nodes[1], note("never"), timeout_s=0.2)
        assert result == Result(seq=1, outcome="not_committed", reason="timeout")
        cluster.hub.elect(2)
        await Writer("b").write(cluster.nodes[1], note("later"))
        assert notes(cluster.leader) == ["later"]


async def test_a_forwarded_request_that_nobody_answers_is_unknown() -> None:
    """A copy may be in the leader's log; nothing is claimed, and the log decides later."""
    async with Cluster() as cluster:
        follower = cluster.followers[0]
        cluster.hub.auto_elect = False
        writer = Writer("a")
        submission = writer.submission(note("perhaps"))
        task = asyncio.create_task(follower.submit(submission, 0.3))
        key = (writer.actor, 0, 1)

        def sent() -> bool:
            request = follower.requests.get(key)
            return request is not None and request.attempts > 0

        await turns_until(sent)
        cluster.hub.partition()
        assert await task == Result(seq=1, outcome="unknown", reason="timeout")
        cluster.hub.auto_elect = True
        cluster.hub.heal()
        assert (await follower.submit(submission, 5)).outcome == "committed"
        assert notes(cluster.leader) == ["perhaps"]


async def test_a_former_leader_proposes_nothing_more() -> None:
    """It stops acting at once on step-down: no command of its term comes after."""
    async with Cluster() as cluster:
        old, term = cluster.leader, cluster.hub.term
        cluster.hub.fail_over()
        assert not old.leading
        at = old.events.last_index
        await until(lambda: old.events.last_index > at + 3)
        assert [r for r in old.events.read(at + 1, 100) if r.entry.term == term] == []


async def test_a_full_node_says_busy_at_once() -> None:
    """Bounded: beyond the limit nothing queues, and the sender learns when to come back."""
    async with Cluster(limits=Limits(pending_events=5)) as cluster:
        writer = Writer("a")
        results = await asyncio.gather(*(writer.write(cluster.leader) for _ in range(8)))
        busy = [result for result in results if result.outcome != "committed"]
        assert len(busy) == 3
        assert {(r.outcome, r.reason) for r in busy} == {("not_committed", "busy")}
        assert all(result.retry_after_ms > 0 for result in busy)
        assert (await writer.write(cluster.leader)).outcome == "committed"


@pytest.mark.parametrize(
    ("actor", "event"),
    [
        ("client:a", ClockAdvanced()),
        ("client:a", LeaderElected(1, 99)),
        ("client:a", HeartbeatsSeen("node:1", (0,), (1,))),
        ("node:1", NoteAdded("a", "b", "c")),
        ("", NoteAdded("a", "b", "c")),
    ],
)
async def test_nobody_records_what_only_a_leader_may(actor: str, event: NoteAdded) -> None:
    """Time, terms and heartbeats come from the servers, not from their clients."""
    async with Cluster(1) as cluster:
        result = await cluster.leader.submit(Submission(Origin(actor, 0, 1), event))
        assert (result.outcome, result.reason) == ("not_committed", "not_allowed")


async def test_an_event_beyond_the_limit_is_refused() -> None:
    """Whole and at once, without touching the log."""
    async with Cluster(1, limits=Limits(event_bytes=1_000)) as cluster:
        result = await Writer("a").write(cluster.leader, note("x" * 2_000))
        assert (result.outcome, result.reason) == ("not_committed", "too_large")
        assert (await Writer("b").write(cluster.leader, note("x" * 500))).outcome == "committed"


async def test_large_events_share_commands_within_the_limit() -> None:
    """More than one command's worth at once: all decided, none larger than the log takes."""
    async with Cluster() as cluster:
        writer = Writer("a")
        large = note("x" * 900_000)
        results = await asyncio.gather(*(writer.write(cluster.leader, large) for _ in range(12)))
        assert {result.outcome for result in results} == {"committed"}


async def test_a_frame_lost_on_the_way_is_sent_again() -> None:
    """The connection broke after the send; the leader stayed the same."""
    async with Cluster(intervals=Intervals(resend_s=0.1)) as cluster:
        follower, other = cluster.followers
        writer = Writer("a")
        task = asyncio.create_task(writer.write(follower, note("once")))
        key = (writer.actor, 0, 1)

        def sent() -> bool:
            request = follower.requests.get(key)
            return request is not None and request.attempts > 0

        await turns_until(sent)
        cluster.hub.partition([cluster.hub.leader, other.config.node], [follower.config.node])
        await asyncio.sleep(0)
        cluster.hub.heal()
        assert (await task).outcome == "committed"
        assert notes(cluster.leader) == ["once"]


async def test_a_leader_that_is_full_refuses_what_is_forwarded() -> None:
    """The follower passes the refusal on: definite, with a time to come back."""
    async with Cluster() as cluster:
        leader, follower = cluster.leader, cluster.followers[0]
        tight = msgspec.structs.replace(leader.config, limits=Limits(pending_events=3))
        leader.router._config = tight
        writer = Writer("a")
        results = await asyncio.gather(*(writer.write(follower) for _ in range(5)))
        assert {(r.outcome, r.reason) for r in results} == {("not_committed", "busy")}
        assert all(result.retry_after_ms > 0 for result in results)
        leader.router._config = leader.config
        assert (await writer.write(follower)).outcome == "committed"


async def test_a_long_queue_is_split_by_what_applying_takes() -> None:
    """So that no command holds up raft's heartbeats, however fast events arrive."""
    async with Cluster(1, limits=Limits(command_apply_s=1e-9)) as cluster:
        writer = Writer("a")
        before = cluster.hub.commit_index
        results = await asyncio.gather(*(writer.write(cluster.leader) for _ in range(640)))
        assert {result.outcome for result in results} == {"committed"}
        assert cluster.hub.commit_index - before >= 10


class FullDiskLog:
    """A log in memory whose disk is full while `full` is set."""

    def __init__(self, log: object) -> None:
        self._log = log
        self.full = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def status(self) -> RaftStatus:
        status: RaftStatus = self._log.status()  # type: ignore[attr-defined]
        if not self.full:
            return status
        values = {name: getattr(status, name) for name in status.__struct_fields__}
        return RaftStatus(**{**values, "read_only": "no space left on device"})


async def test_a_full_disk_makes_the_node_read_only_until_it_heals() -> None:
    """Writes are refused by name, reads of the state go on, and room heals it."""
    async with Cluster(1) as cluster:
        node = cluster.leader
        log = FullDiskLog(node.log)
        node.log = log  # type: ignore[assignment]
        log.full = True
        result = await Writer("a").write(node)
        assert (result.outcome, result.reason) == ("not_committed", "read_only")
        assert result.retry_after_ms > 0
        log.full = False
        assert (await Writer("b").write(node)).outcome == "committed"


async def test_stopping_ends_what_waits() -> None:
    """A client is told at once, not at its deadline."""
    async with Cluster() as cluster:
        cluster.hub.auto_elect = False
        cluster.hub.step_down()
        node = cluster.nodes[1]
        task = asyncio.create_task(Writer("a").write(node, timeout_s=30))
        await until(lambda: len(node.requests) == 1)
        await node.stop()
        assert (await task).outcome == "not_committed"
        late = await Writer("b").write(node)
        assert (late.outcome, late.reason) == ("not_committed", "stopping")
