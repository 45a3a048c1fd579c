"""What an agent can rely on: registration, beats, plans, through whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise

import pytest

from coord.client.agent import Agent
from coord.client.errors import ClientClosed, Rejected, ServerRefused
from coord.client.inbox import Superseded
from coord.client.views import Decided
from coord.model.channel import Beat, LogChunk, LogRead, Refused
from coord.model.entry import Origin
from coord.model.events import (
    HostRegistered,
    TaskFound,
)
from coord.model.plans import HostPlan
from coord.model.rejections import Rejection
from coord.model.settings import Settings

from .agent_story import (
    TASK,
    failed,
    first,
    new_agent,
    rejected_with,
    submit_job,
    with_agent,
)
from .fake import FakeCluster, FakeDialer
from .virtual import eventually, run

# Registration


def test_a_registration_gives_the_incarnation() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        assert agent.incarnation == 0
        assert agent.lease_deadline is None
        assert await agent.register() == 1
        assert agent.incarnation == 1
        host = cluster.state.hosts["h1"]
        assert (host.agent, host.boot, host.devices) == ("a1", "b1", 4)

    with_agent(story)


@pytest.mark.parametrize("fault", ["lost", "cut_before", "cut_after", "unanswered", "busy",
                                   "unknown_before", "unknown_after"])  # fmt: skip
def test_a_registration_is_repeated_until_decided_and_counts_once(fault: str) -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        cluster.faults.extend([fault] * 2)
        assert await agent.register() == 1

    assert len(with_agent(story).accepted(HostRegistered)) == 1


def test_a_registration_waits_for_servers_that_are_away_for_hours() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        for server in cluster.servers:
            server.up = False
        registering = asyncio.ensure_future(agent.register())
        await asyncio.sleep(5 * 3600)
        for server in cluster.servers:
            server.up = True
        assert await registering == 1

    with_agent(story)


@pytest.mark.parametrize("leader", [1, 2, 3])
def test_a_registration_leaves_servers_that_cannot_have_it_decided(leader: int) -> None:
    cluster = FakeCluster()
    cluster.leader = leader
    for server in cluster.servers:
        server.cut_off = server.node != leader

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        assert await agent.register() == 1
        assert loop.time() - begun_s < 12
        assert agent.connected_to == cluster.servers[leader - 1].url

    with_agent(story, cluster)


def test_two_agents_with_one_host_id_are_told_apart() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        async with new_agent(cluster, seed=2, agent_id="a2") as other:
            with rejected_with(Rejection.HOST_ID_IN_USE):
                await other.register()
        assert agent.incarnation == 1

    with_agent(story)


def test_an_agent_of_another_cluster_is_told_which_it_reached() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        with pytest.raises(ServerRefused, match="this is test"):
            await agent.register()

    with_agent(story, expects="prod")


def test_a_later_registration_names_the_tasks_found_and_begins_anew() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        old = agent.report(failed(agent, 1))
        await old_is_rejected(old)
        assert await agent.register([TaskFound(TASK, 77)]) == 2
        event = cluster.accepted(HostRegistered)[-1]
        assert isinstance(event, HostRegistered)
        assert event.tasks == (TaskFound(TASK, 77),)
        with rejected_with(Rejection.UNKNOWN_TASK):
            await agent.report(failed(agent, 2))
        assert cluster.state.hosts["h1"].report_seq == 1

    async def old_is_rejected(old: asyncio.Future[Decided]) -> None:
        with rejected_with(Rejection.UNKNOWN_TASK):
            await old

    with_agent(story)


# Beats and the lease


def test_beats_come_at_equal_distances_after_a_spread_first_one() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        registered_s = asyncio.get_running_loop().time()
        await asyncio.sleep(10.5)
        times = [at for at, _, _ in cluster.beats]
        assert 0.0 <= times[0] - registered_s <= 1.0
        assert len(times) in (10, 11)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == pytest.approx([1.0] * len(gaps))

    with_agent(story)


def test_first_beats_of_many_agents_spread_over_a_period() -> None:
    async def offset(seed: int) -> float:
        cluster = FakeCluster()
        async with new_agent(cluster, seed) as agent:
            await agent.register()
            registered_s = asyncio.get_running_loop().time()
            await eventually(lambda: cluster.beats)
            return cluster.beats[0][0] - registered_s

    offsets = [run(offset(seed)) for seed in range(40)]
    assert [sum(1 for one in offsets if low <= one < low + 0.25) > 3
            for low in (0.0, 0.25, 0.5, 0.75)] == [True] * 4  # fmt: skip


def test_the_lease_runs_from_the_sending_of_the_newest_acknowledged_beat() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        await agent.register()
        assert agent.lease_deadline is not None
        assert before_s <= agent.lease_deadline - 6.0 <= loop.time()
        await asyncio.sleep(5.0)
        sent_s = cluster.beats[-1][0]
        assert agent.lease_deadline == pytest.approx(sent_s + 6.0)
        cluster.takes_beats = lambda server: False
        await asyncio.sleep(5.0)
        assert cluster.beats[-1][0] > sent_s
        assert agent.lease_deadline == pytest.approx(sent_s + 6.0)

    with_agent(story)


def test_a_server_that_acknowledges_no_beat_is_left_for_another() -> None:
    """A server cut off from the others still takes beats, and the lease runs out meanwhile."""

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        (cut_off,) = [server for server in cluster.servers if server.sessions]
        cluster.takes_beats = lambda server: server is not cut_off
        for _ in range(100):
            await asyncio.sleep(0.1)
            deadline_s = agent.lease_deadline
            assert deadline_s is not None
            assert deadline_s > asyncio.get_running_loop().time()
        assert not cut_off.sessions
        assert agent.incarnation == 1

    with_agent(story)


def test_a_reconnection_beats_at_once() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        await asyncio.sleep(3.0)
        (server,) = [server for server in cluster.servers if server.sessions]
        server.stop()
        before = len(cluster.beats)
        stopped_s = asyncio.get_running_loop().time()
        await eventually(lambda: len(cluster.beats) > before)
        assert cluster.beats[-1][0] - stopped_s < 0.3

    with_agent(story)


# Plans


def test_plans_of_this_incarnation_arrive_newest_last() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        plans = agent.plans()
        empty = await first(plans)
        assert isinstance(empty, HostPlan)
        submit_job(cluster)
        plan = await first(plans)
        assert isinstance(plan, HostPlan)
        assert [order.task for order in plan.tasks] == [TASK]
        assert plan.version > empty.version
        await asyncio.sleep(1.5)
        assert cluster.beats[-1][2].seen_plan == plan.version

    with_agent(story)


def test_of_several_unread_plans_only_the_newest_is_delivered() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        for number in range(4):
            submit_job(cluster, f"job-{number}")
        await asyncio.sleep(0.1)
        plans = agent.plans()
        plan = await first(plans)
        assert isinstance(plan, HostPlan)
        assert len(plan.tasks) == 4
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await anext(plans)

    with_agent(story)


def test_a_plan_older_than_one_seen_is_dropped() -> None:
    """A server that lags behind sends an old plan after a reconnection."""

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        plans = agent.plans()
        await first(plans)
        (session,) = cluster.agents()
        session.say(HostPlan("h1", 1, 50))
        assert await first(plans) == HostPlan("h1", 1, 50)
        session.say(HostPlan("h1", 1, 49))
        session.say(HostPlan("h1", 1, 50))
        session.say(HostPlan("h2", 1, 90))
        session.say(HostPlan("h1", 1, 51))
        assert await first(plans) == HostPlan("h1", 1, 51)

    with_agent(story)


def test_a_plan_of_the_incarnation_before_is_not_delivered_after_a_restart() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        submit_job(cluster)
        await agent.close()
        async with new_agent(cluster, seed=2) as again:
            reading = asyncio.ensure_future(first(again.plans()))
            await asyncio.sleep(5)
            assert not reading.done()
            await again.register()
            plan = await reading
            assert isinstance(plan, HostPlan)
            assert plan.incarnation == 2

    with_agent(story)


# The end of an incarnation


def test_a_host_registered_elsewhere_supersedes_this_agent() -> None:
    """The same data directory started twice: the older process must stop its tasks."""

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        plans = agent.plans()
        await first(plans)
        async with new_agent(cluster, seed=2) as other:
            await other.register()
            assert await first(plans) == Superseded(1, "stale_incarnation")
            assert agent.incarnation == 0
            beats = len([one for one in cluster.beats if one[2].incarnation == 1])
            await asyncio.sleep(5)
            assert len([one for one in cluster.beats if one[2].incarnation == 1]) == beats

    with_agent(story)


def test_a_refused_beat_supersedes() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        plans = agent.plans()
        await first(plans)
        event = HostRegistered("h1", "a1", "b1", "10.0.0.1")
        cluster.record(Origin("client:a1", 0, 9_999), event)
        assert await first(plans) == Superseded(1, "stale_incarnation")
        assert await agent.register() == 3

    with_agent(story)


def test_a_refusal_of_an_older_beat_does_not_end_a_newer_incarnation() -> None:
    """A beat of the old incarnation may be judged after the new registration was answered."""

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        await eventually(lambda: cluster.beats)
        await agent.register()
        (session,) = cluster.agents()
        session.say(Refused("stale_incarnation", "about an older beat"))
        dialled = sum(server.dialled for server in cluster.servers)
        await eventually(lambda: sum(server.dialled for server in cluster.servers) > dialled)
        await asyncio.sleep(10)
        assert agent.incarnation == 2
        assert cluster.beats[-1][2].incarnation == 2

    with_agent(story)


def test_a_refused_report_supersedes_and_answers_all_that_wait() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        plans = agent.plans()
        await first(plans)
        event = HostRegistered("h1", "a1", "b1", "10.0.0.1")
        cluster.record(Origin("client:a1", 0, 9_999), event)
        waiting = [agent.report(failed(agent, number)) for number in range(5)]
        for future in waiting:
            with rejected_with(Rejection.STALE_INCARNATION):
                await future
        assert await first(plans) == Superseded(1, "stale_incarnation")
        with rejected_with(Rejection.STALE_INCARNATION):
            await agent.report(failed(agent, 6))
        assert agent.undecided == 0

    with_agent(story)


def test_superseded_replaces_unread_plans_and_a_registration_clears_it() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        submit_job(cluster)
        event = HostRegistered("h1", "a1", "b1", "10.0.0.1")
        cluster.record(Origin("client:a1", 0, 9_999), event)
        await eventually(lambda: agent.incarnation == 0)
        await agent.register()
        plan = await first(agent.plans())
        assert isinstance(plan, HostPlan)
        assert plan.incarnation == 3

    with_agent(story)


# Reading output


def test_a_log_read_is_answered_by_the_handler() -> None:
    async def read(read: LogRead) -> LogChunk:
        if read.task != TASK:
            raise FileNotFoundError(read.task)
        return LogChunk(read.request, b"hello", read.offset)

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        (session,) = cluster.agents()
        session.say(LogRead(5, TASK, "stdout", 10))
        session.say(LogRead(6, "other/task/0#1", "stdout"))
        await eventually(lambda: len(cluster.chunks) == 2)
        assert sorted(cluster.chunks, key=lambda chunk: chunk.request) == [
            LogChunk(5, b"hello", 10),
            LogChunk(6, exists=False),
        ]

    with_agent(story, on_log_read=read)


def test_a_defect_in_the_handler_reaches_whoever_reads_plans() -> None:
    async def read(read: LogRead) -> LogChunk:
        raise ZeroDivisionError

    async def story() -> None:
        cluster = FakeCluster()
        agent = new_agent(cluster, on_log_read=read)
        async with agent:
            await agent.register()
            plans = agent.plans()
            await first(plans)
            cluster.agents()[0].say(LogRead(5, TASK, "stdout"))
            with pytest.raises(ExceptionGroup):
                await first(plans)
            with pytest.raises(ExceptionGroup):
                await agent.close()
            agent._task = None

    run(story())


# Connections


def test_an_agent_spreads_its_attempts_while_no_server_answers() -> None:
    async def story() -> list[float]:
        cluster = FakeCluster()
        for server in cluster.servers:
            server.up = False
        dialer = FakeDialer(cluster)
        async with new_agent(cluster, dialer=dialer) as agent:
            registering = asyncio.ensure_future(agent.register())
            await asyncio.sleep(3_600)
            registering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await registering
        return [at for at, _ in dialer.attempts]

    times = run(story())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) <= 1.6
    assert min(gaps[8:]) >= 0.7
    assert gaps[0] < 0.3


def test_a_fleet_comes_back_spread_out_after_its_server_died() -> None:
    """Two hundred agents lose one server at one moment; no instant sees them all return."""

    async def story() -> list[float]:
        cluster = FakeCluster(1)
        dialer = FakeDialer(cluster)
        async with contextlib.AsyncExitStack() as stack:
            for number in range(200):
                agent = new_agent(
                    cluster, number, host=f"h{number}", agent_id=f"a{number}", dialer=dialer
                )
                await stack.enter_async_context(agent)
                await agent.register()
            await asyncio.sleep(30)
            dialer.attempts.clear()
            cluster.servers[0].stop()
            await asyncio.sleep(20)
            cluster.servers[0].up = True
            await eventually(lambda: len(cluster.agents()) == 200)
        return [at for at, _ in dialer.attempts]

    times = sorted(run(story()))
    busiest = max(
        sum(1 for at in times if start <= at < start + 0.05) for start in times[:: len(times) // 50]
    )
    assert busiest < 150
    assert len(times) < 200 * 30


def test_a_closed_agent_answers_everything_and_cannot_be_used() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        for server in cluster.servers:
            server.stop()
        waiting = agent.report(failed(agent, 1))
        registering = asyncio.ensure_future(agent.register())
        await asyncio.sleep(1)
        await agent.close()
        with pytest.raises(Rejected):
            await waiting
        with pytest.raises(ClientClosed):
            await registering
        with pytest.raises(ClientClosed):
            await agent.register()
        assert [plan async for plan in agent.plans()] == []

    with_agent(story)


def test_an_agent_hears_of_changed_settings() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        assert agent.settings.heartbeat_ms == 250
        await asyncio.sleep(5)
        beats = [beat for _, _, beat in cluster.beats]
        assert 19 <= len(beats) <= 21
        assert all(isinstance(beat, Beat) and beat.slot == 0 for beat in beats)
        assert [beat.sequence for beat in beats] == list(range(1, len(beats) + 1))

    quick = Settings(heartbeat_ms=250, suspect_ms=800, lease_ms=1_500)
    with_agent(story, FakeCluster(settings=quick))
