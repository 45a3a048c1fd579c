"""What a report promises: decided once, in order, whatever happens to servers and connections."""

from __future__ import annotations

import asyncio
import random

import pytest

from coord.client.agent import Agent
from coord.client.errors import InvalidRequest, NotDone
from coord.client.reports import QUEUE_LIMIT, ReportQueue
from coord.model.channel import Submit
from coord.model.entities import JobStatus
from coord.model.events import (
    LaunchFailed,
    ProgressReported,
)
from coord.model.rejections import Rejection

from .agent_story import (
    TASK,
    failed,
    progress,
    rejected_with,
    reported_errors,
    started,
    submit_job,
    with_agent,
)
from .fake import FakeCluster
from .virtual import run


def test_a_report_yields_its_decision() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        submit_job(cluster)
        decided = await agent.report(started(agent))
        assert cluster.records[decided.index - 1].entry.event == started(agent)
        assert cluster.state.jobs["digits"].status == JobStatus.RUNNING
        with rejected_with(Rejection.UNKNOWN_TASK):
            await agent.report(failed(agent, 1))

    with_agent(story)


@pytest.mark.parametrize("fault", ["lost", "cut_before", "cut_after", "unanswered", "busy",
                                   "unknown_before", "unknown_after"])  # fmt: skip
def test_reports_arrive_once_each_and_in_order_whatever_happens(fault: str) -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        futures = []
        for number in range(40):
            futures.append(agent.report(failed(agent, number)))
            if number % 10 == 3:
                cluster.faults.extend(["", fault])
                await asyncio.sleep(0.05)
        assert await agent.flush(600)
        assert all(future.done() for future in futures)

    assert reported_errors(with_agent(story)) == [str(number) for number in range(40)]


def test_random_faults_neither_lose_nor_reorder_reports() -> None:
    faults = ["", "", "", "cut_before", "cut_after", "unanswered", "lost", "unknown_before", "busy"]

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        rng = random.Random(5)
        cluster.shuffle = lambda results: rng.sample(results, len(results))
        await agent.register()
        for number in range(300):
            agent.report(failed(agent, number))
            cluster.faults.append(rng.choice(faults))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random())
        assert await agent.flush(3_600)

    assert reported_errors(with_agent(story)) == [str(number) for number in range(300)]


def test_a_gap_is_filled_from_the_one_after_the_last_accepted() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        cluster.faults.extend(["", "lost"])
        for number in range(30):
            agent.report(failed(agent, number))
        assert await agent.flush(60)
        gaps = [one for one in cluster.records if one.rejection == Rejection.REPORT_GAP]
        assert len(gaps) == 28
        sent = [
            len(message.submissions)
            for server in cluster.servers
            for session in server.sessions
            for message in session.received
            if isinstance(message, Submit)
        ]
        # The registration, all thirty, then the missing one alone, then the rest.
        assert sent == [1, 30, 1, 28]

    assert reported_errors(with_agent(story)) == [str(number) for number in range(30)]


def test_a_server_that_takes_nothing_is_left_for_another() -> None:
    """A follower whose disk is full still acknowledges beats, but can take no report."""

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        (full,) = [server for server in cluster.servers if server.sessions]
        cluster.fault = lambda server, _: "read_only" if server is full else ""
        agent.report(failed(agent, 1))
        assert await agent.flush(30)
        assert not full.sessions
        assert agent.incarnation == 1

    assert reported_errors(with_agent(story)) == ["1"]


def test_progress_not_sent_yet_gives_way_to_newer_progress_of_its_task() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        submit_job(cluster)
        await agent.report(started(agent))
        for server in cluster.servers:
            server.stop()
        older = [agent.report(progress(agent, step)) for step in range(10_000)]
        agent.report(progress(agent, 7, "digits/trainer/1#1"))
        agent.report(failed(agent, 1))
        assert agent.undecided == 3
        await asyncio.sleep(3_600)
        for server in cluster.servers:
            server.up = True
        assert await agent.flush(60)
        assert {future.result() for future in older} == {older[0].result()}

    cluster = with_agent(story)
    steps = [one.step for one in cluster.accepted(ProgressReported)
             if isinstance(one, ProgressReported)]  # fmt: skip
    assert steps == [9_999]


def test_progress_keeps_its_place_before_the_exit_that_follows_it() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        submit_job(cluster)
        agent.report(started(agent))
        agent.report(progress(agent, 1))
        agent.report(failed(agent, 1))
        agent.report(progress(agent, 2))
        assert await agent.flush(60)

    cluster = with_agent(story)
    events = [one.entry.event for one in cluster.records if one.entry.origin.actor == "host:h1"]
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["TaskStarted", "LaunchFailed", "ProgressReported"]


def test_progress_alone_waits_for_the_answer_before_it() -> None:
    """However fast a task reports, one report is under way; the next has the newest step."""

    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        submit_job(cluster)
        await agent.report(started(agent))
        cluster.faults.append("unknown_before")
        for step in range(100):
            agent.report(progress(agent, step))
            await asyncio.sleep(0)
        assert await agent.flush(60)

    cluster = with_agent(story)
    steps = [one.step for one in cluster.accepted(ProgressReported)
             if isinstance(one, ProgressReported)]  # fmt: skip
    assert steps[-1] == 99
    assert len(steps) <= 3


def test_a_report_that_cannot_be_sent_fails_alone() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        agent.report(failed(agent, 1))
        broken = agent.report(LaunchFailed("h1", 1, TASK, "\ud800"))
        agent.report(failed(agent, 2))
        assert await agent.flush(60)
        with pytest.raises(InvalidRequest):
            await broken
        agent.report(failed(agent, 3))
        assert await agent.flush(60)

    assert reported_errors(with_agent(story)) == ["1", "2", "3"]


def test_a_full_queue_refuses_the_newest_and_keeps_the_rest() -> None:
    async def story() -> None:
        queue = ReportQueue("h1")
        queue.begin(1)
        for number in range(QUEUE_LIMIT):
            queue.add(LaunchFailed("h1", 1, TASK, str(number)))
        with pytest.raises(NotDone, match="65536") as caught:
            await queue.add(LaunchFailed("h1", 1, TASK, "one too many"))
        assert caught.value.reason == "queue_full"
        assert len(queue) == QUEUE_LIMIT

    run(story())


def test_reports_of_before_an_outage_are_decided_after_it() -> None:
    async def story(cluster: FakeCluster, agent: Agent) -> None:
        await agent.register()
        for server in cluster.servers:
            server.stop()
        for hour in range(5):
            agent.report(failed(agent, hour))
            await asyncio.sleep(3_600)
        for server in cluster.servers:
            server.up = True
        assert not await agent.flush(0.0)
        assert await agent.flush(60)
        assert agent.incarnation == 1

    assert reported_errors(with_agent(story)) == ["0", "1", "2", "3", "4"]
