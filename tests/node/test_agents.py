"""Sessions, plans and heartbeats, as an agent sees them."""

from __future__ import annotations

import asyncio

import pytest

from coord.model.channel import BeatSeen, LeaderChanged, LogChunk, LogRead, Refused, Submit
from coord.model.entities import HostStatus
from coord.model.events import JobSubmitted, TaskStarted
from coord.model.plans import Action
from coord.model.settings import Settings
from coord.model.spec import JobSpec, RoleSpec
from coord.node.config import Limits
from tests.client.virtual import run
from tests.node.cluster import Cluster, FakeAgent, LoopClock, Writer, note, until

QUICK = Settings(lease_ms=600, suspect_ms=300, heartbeat_ms=100, fence_ms=100, max_step_ms=100)
"""A small step: a stall of the whole test is no silence of its hosts."""


def job(name: str = "digits", replicas: int = 1) -> JobSubmitted:
    return JobSubmitted(JobSpec(name, (RoleSpec("trainer", ("true",), replicas=replicas),)))


async def test_an_agent_is_sent_its_plan_and_every_change_of_it() -> None:
    """At once when it attaches, then whenever its host's plan changes, on any node."""
    async with Cluster() as cluster:
        agent = FakeAgent(cluster.followers[0], "h1")
        result = await agent.register()
        assert (result.outcome, result.result, result.slot) == ("committed", 1, 0)
        await Writer("a").write(cluster.leader, job())
        await until(lambda: agent.take() or (agent.plans and agent.plans[-1].tasks))
        order = agent.plans[-1].tasks[0]
        assert (order.task, order.action) == ("digits/trainer/0#1", Action.RUN)
        again = FakeAgent(cluster.leader, "h1", "agent-h1")
        again.take()
        assert again.plans == [agent.plans[-1]]


async def test_plans_go_only_to_hosts_whose_plan_changed() -> None:
    """An agent that has nothing to do is left alone."""
    async with Cluster(1) as cluster:
        busy, idle = FakeAgent(cluster.leader, "busy"), FakeAgent(cluster.leader, "idle")
        await busy.register()
        await Writer("a").write(cluster.leader, job())
        await idle.register()
        await until(lambda: busy.take() or (busy.plans and busy.plans[-1].tasks))
        idle.take()
        before = len(idle.plans)
        started = TaskStarted("busy", busy.incarnation, "digits/trainer/0#1", 77)
        assert (await busy.report(started)).rejection == ""
        await Writer("b").write(cluster.leader, note())
        idle.take()
        assert len(idle.plans) == before


async def test_beats_are_acknowledged_once_committed() -> None:
    """Through whichever node they come; the newest acknowledgement counts for all before."""
    async with Cluster() as cluster:
        agents = [FakeAgent(node, f"h{n}") for n, node in cluster.nodes.items()]
        for agent in agents:
            await agent.register()
            agent.beat()
            newest = agent.beat()
            await until(
                lambda agent=agent, newest=newest: (
                    agent.take()
                    or any(
                        isinstance(message, BeatSeen) and message.sequence == newest
                        for message in agent.messages
                    )
                )
            )
        sources = {
            record.entry.event.source
            for record in cluster.leader.events.read(1, 1_000)
            if type(record.entry.event).__name__ == "HeartbeatsSeen"
        }
        assert sources == {"node:1", "node:2", "node:3"}


async def test_a_silent_host_is_lost_after_its_lease_and_its_agent_told() -> None:
    """The leader lets time pass by itself; a beat of the dead incarnation is refused."""
    async with Cluster(settings=QUICK) as cluster:
        agent = FakeAgent(cluster.followers[0], "h1")
        await agent.register()
        agent.beat()
        host = cluster.leader.state.hosts
        await until(lambda: host["h1"].status == HostStatus.LOST)
        await until(lambda: agent.node.state.hosts["h1"].status == HostStatus.LOST)
        agent.beat()
        assert agent.session.refused is not None
        assert agent.session.refused.code == "stale_incarnation"
        back = FakeAgent(cluster.followers[0], "h1", "agent-h1")
        back._registrations = iter(range(2, 9))  # type: ignore[assignment]
        assert (await back.register()).result == 2


def test_reads_however_frequent_do_not_keep_a_silent_host_from_being_lost() -> None:
    """A round of readers makes no entry, so it moves no log time: the leader still has to."""

    async def story() -> None:
        slow = Settings(lease_ms=6_000, suspect_ms=3_000, heartbeat_ms=1_000, fence_ms=500)
        async with Cluster(settings=slow, clock=LoopClock()) as cluster:
            await FakeAgent(cluster.leader, "h1").register()
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            hosts = cluster.leader.state.hosts
            while hosts["h1"].status != HostStatus.LOST and loop.time() < begun_s + 60:
                await cluster.followers[0].read_index()
                await asyncio.sleep(0.05)
            assert loop.time() - begun_s == pytest.approx(6.0, abs=1.0)

    run(story())


async def test_beating_hosts_outlive_elections() -> None:
    """Leases start anew with each leader, and beats go on through the nodes that are there."""
    async with Cluster(settings=QUICK) as cluster:
        agent = FakeAgent(cluster.nodes[3], "h1")
        await agent.register()
        for _ in range(3):
            term = cluster.hub.term
            cluster.hub.elect(cluster.hub.leader % 2 + 1)
            seen_ms = cluster.leader.state.meta.now_ms
            async with asyncio.timeout(10):
                while cluster.leader.state.meta.now_ms < seen_ms + 700:
                    agent.beat()
                    await asyncio.sleep(0.05)
            assert cluster.hub.term > term
        assert cluster.leader.state.hosts["h1"].status == HostStatus.UP


async def test_a_beat_of_a_replaced_incarnation_is_refused() -> None:
    """The old agent process of a host must not keep its lease alive."""
    async with Cluster(1) as cluster:
        old = FakeAgent(cluster.leader, "h1")
        await old.register()
        new = FakeAgent(cluster.leader, "h1", "agent-h1")
        new._registrations = iter(range(2, 9))  # type: ignore[assignment]
        assert (await new.register()).result == 2
        old.beat()
        refused = old.session.refused
        assert refused is not None
        assert refused.code == "stale_incarnation"
        assert "incarnation 2" in refused.message
        assert new.session.refused is None


async def test_a_second_agent_with_the_same_host_id_is_refused_by_the_log() -> None:
    """While the first is live; its session and its plan stay with it."""
    async with Cluster(1) as cluster:
        first = FakeAgent(cluster.leader, "h1")
        await first.register()
        second = FakeAgent(cluster.leader, "h1", "somebody-else")
        result = await second.register()
        assert (result.outcome, result.rejection) == ("committed", "host_id_in_use")
        first.beat()
        assert first.session.refused is None


async def test_a_reader_too_slow_is_dropped_with_the_reason() -> None:
    """Its answers do not pile up; what it sent was decided all the same."""
    async with Cluster(1, limits=Limits(session_results=10)) as cluster:
        agent = FakeAgent(cluster.leader, "h1")
        writer = Writer("a")
        for _ in range(12):
            agent.node.receive(agent.session, Submit((writer.submission(),)), 100)
        await until(lambda: agent.session.refused is not None)
        assert isinstance(agent.session.refused, Refused)
        assert agent.session.refused.code == "too_slow"
        assert "the limit is 10" in agent.session.refused.message
        await until(lambda: len(cluster.leader.requests) == 0)


async def test_a_gap_in_reports_says_where_to_go_on() -> None:
    """The agent resends from the one after the last decided."""
    async with Cluster(1) as cluster:
        agent = FakeAgent(cluster.leader, "h1")
        await agent.register()
        await Writer("a").write(cluster.leader, job())
        agent._reports = iter((4,))  # type: ignore[assignment]
        result = await agent.report(TaskStarted("h1", 1, "digits/trainer/0#1", 77))
        assert (result.rejection, result.last_report_seq) == ("report_gap", 0)


async def test_everyone_connected_hears_of_a_new_leader() -> None:
    """With the address of its API."""
    async with Cluster() as cluster:
        agent = FakeAgent(cluster.nodes[3], "h1")
        cluster.hub.elect(2)
        await until(lambda: agent.take() or any(is_leader(m, 2) for m in agent.messages))


def is_leader(message: object, node: int) -> bool:
    return isinstance(message, LeaderChanged) and (message.leader, message.leader_api) == (
        node,
        f"api-{node}:1",
    )


async def test_a_read_of_output_goes_to_the_agent_and_back() -> None:
    """By number; one that is not answered ends at its timeout."""
    async with Cluster(1) as cluster:
        agent = FakeAgent(cluster.leader, "h1")
        sessions = cluster.leader.sessions
        assert sessions.agent_of("h1") is agent.session
        assert sessions.agent_of("h2") is None

        async def read(timeout_s: float) -> LogChunk | None:
            return await sessions.read_log(
                agent.session, "a/b/0#1", "stdout", offset=5, limit=10, timeout_s=timeout_s
            )

        task = asyncio.create_task(read(5.0))
        await until(lambda: agent.take() or any(isinstance(m, LogRead) for m in agent.messages))
        asked = next(m for m in agent.messages if isinstance(m, LogRead))
        chunk = LogChunk(asked.request, b"text", 5)
        sessions.chunk_arrived(chunk)
        assert await task == chunk
        assert await read(0.05) is None
        gone = asyncio.create_task(read(30.0))
        await asyncio.sleep(0)
        sessions.detach(agent.session)
        assert await gone is None


@pytest.mark.parametrize("node", [1, 2])
async def test_a_slot_of_another_host_is_refused(node: int) -> None:
    """An agent beats for itself."""
    async with Cluster() as cluster:
        mine, other = FakeAgent(cluster.nodes[node], "h1"), FakeAgent(cluster.nodes[node], "h2")
        await mine.register()
        await other.register()
        mine.slot = other.slot
        mine.beat()
        assert mine.session.refused is not None
        assert "belongs to h2" in mine.session.refused.message
