"""The WebSocket channel: one protobuf message a frame."""

from __future__ import annotations

import asyncio

import pytest

from coord.codec import encode_to_server
from coord.model.channel import (
    Beat,
    BeatSeen,
    HostPlan,
    LeaderChanged,
    LogChunk,
    LogRead,
    Refused,
    Result,
    Results,
    Submit,
    Welcome,
)
from coord.model.entry import Origin, Submission
from coord.model.events import HostRegistered, JobSubmitted
from coord.model.spec import JobSpec, RoleSpec
from coord.node.config import Limits
from tests.api.servers import Conversation, Served
from tests.node.cluster import Writer, note, until


def registration(host: str, agent: str, seq: int = 1) -> Submit:
    event = HostRegistered(host, agent, "boot", "127.0.0.1", cpu_millis=1_000, memory_mib=1_000)
    return Submit((Submission(Origin(f"client:{agent}", 0, seq), event),))


async def test_hello_is_answered_with_where_the_leader_is() -> None:
    """And with the settings the client must keep to."""
    async with Served(3) as served:
        conversation = await served.dial(node=served.followers[0], cluster="test")
        welcome = await conversation.next()
        assert isinstance(welcome, Welcome)
        assert (welcome.cluster, welcome.leader) == ("test", served.hub.leader)
        assert f"http://{welcome.leader_api}" == served.urls[served.hub.leader]
        assert welcome.settings == served.leader.state.meta.settings
        served.hub.fail_over()
        changed = await conversation.until(LeaderChanged)
        assert changed.leader == served.hub.leader


async def test_submissions_are_pipelined_and_each_is_answered() -> None:
    """Many in a message, many messages before the first answer."""
    async with Served(3) as served:
        conversation = await served.dial(node=served.followers[0])
        writer = Writer("a")
        for _ in range(10):
            await conversation.send(Submit(tuple(writer.submission() for _ in range(50))))
        answered: list[Result] = []
        while len(answered) < 500:
            answered += (await conversation.until(Results)).results
        assert sorted(result.seq for result in answered) == list(range(1, 501))
        assert {(r.outcome, r.rejection) for r in answered} == {("committed", "")}


@pytest.mark.parametrize(
    ("hello", "code", "message"),
    [
        ({"cluster": "other"}, "wrong_cluster", "belongs to cluster 'test', not 'other'"),
        ({"protocol": 9}, "protocol", "you speak protocol 9, this server 1"),
        ({"actor": "node:1"}, "malformed", "actor is 'node:1'"),
        ({"actor": "host:"}, "malformed", "actor is 'host:'"),
    ],
)
async def test_a_wrong_hello_is_refused_with_the_reason(
    hello: dict[str, object], code: str, message: str
) -> None:
    """An agent of another cluster gets nothing of this one."""
    async with Served() as served:
        conversation = await served.dial(**hello)
        refused = await conversation.next()
        assert isinstance(refused, Refused)
        assert refused.code == code
        assert message in refused.message
        assert await conversation.ended()


async def test_frames_that_cannot_be_read_are_refused_and_nothing_is_lost() -> None:
    """What came before is decided all the same, and another connection gets its outcome."""
    async with Served() as served:
        for bad in (b"\xff\xff\xff", "text"):
            conversation = await served.dial()
            submission = Writer(f"w-{type(bad).__name__}").submission()
            await conversation.send(Submit((submission,)))
            if isinstance(bad, bytes):
                await conversation.socket.send_bytes(bad)
            else:
                await conversation.socket.send_str(bad)
            refused = await conversation.until(Refused)
            assert refused.code == "malformed"
            assert await conversation.ended()
            again = await served.dial()
            (result,) = (await again.decided(Submit((submission,)))).results
            assert (result.outcome, result.rejection) == ("committed", "")


async def test_messages_before_hello_and_beyond_the_limit_are_refused() -> None:
    """With the limit in the message."""
    async with Served(limits=Limits(message_bytes=20_000)) as served:
        socket = await served.http.ws_connect(served.url("/v1/channel"))
        early = Conversation(socket)
        await early.send(Submit(()))
        refused = await early.next()
        assert isinstance(refused, Refused)
        assert "before Hello" in refused.message
        conversation = await served.dial()
        large = Submit((Writer("a").submission(note("x" * 30_000)),))
        assert len(encode_to_server(large)) > 20_000
        await conversation.send(large)
        refused = await conversation.until(Refused)
        assert refused.code == "malformed"
        assert "the limit is 20000" in refused.message
        assert await conversation.ended()


async def test_an_event_beyond_its_limit_fails_alone() -> None:
    """The others of the same message are decided."""
    async with Served(limits=Limits(event_bytes=5_000)) as served:
        conversation = await served.dial()
        writer = Writer("a")
        submissions = tuple(writer.submission(note("x" * size)) for size in (10, 6_000, 10))
        await conversation.send(Submit(submissions))
        answered: dict[int, Result] = {}
        while len(answered) < 3:
            for result in (await conversation.until(Results)).results:
                answered[result.seq] = result
        assert [(answered[n].outcome, answered[n].reason) for n in (1, 2, 3)] == [
            ("committed", ""),
            ("not_committed", "too_large"),
            ("committed", ""),
        ]


async def test_an_agent_registers_gets_plans_and_beats() -> None:
    """The whole life of a session over a real socket."""
    async with Served(3) as served:
        agent = await served.dial("host:h1", served.followers[0])
        await agent.send(registration("h1", "agent-1"))
        (result,) = (await agent.until(Results)).results
        assert (result.result, result.slot, result.rejection) == (1, 0, "")
        spec = JobSpec("digits", (RoleSpec("trainer", ("true",)),))
        await Writer("a").write(served.leader, JobSubmitted(spec))
        while not (plan := await agent.until(HostPlan)).tasks:
            pass
        assert plan.tasks[0].task == "digits/trainer/0#1"
        await agent.send(Beat(slot=0, incarnation=1, sequence=7))
        assert (await agent.until(BeatSeen)).sequence == 7
        await agent.send(Beat(slot=0, incarnation=0, sequence=8))
        refused = await agent.until(Refused)
        assert refused.code == "stale_incarnation"
        assert await agent.ended()
        await until(lambda: served.followers[0].sessions.agents() == 0)


async def test_a_tasks_output_is_read_through_any_server() -> None:
    """The server that has the agent's session is found by asking the others."""
    async with Served(3) as served:
        holder, other = served.followers[0], served.followers[1]
        agent = await served.dial("host:h1", holder)
        await agent.send(registration("h1", "agent-1"))
        await agent.until(Results)
        spec = JobSpec("digits", (RoleSpec("trainer", ("true",)),))
        await Writer("a").write(served.leader, JobSubmitted(spec))

        async def answer_reads(content: bytes) -> None:
            while True:
                read = await agent.until(LogRead)
                data = content[read.offset : read.offset + read.limit]
                await agent.send(LogChunk(read.request, data, read.offset, True, True))

        answering = asyncio.create_task(answer_reads(b"hello from rank 0"))
        try:
            path = "/v1/jobs/digits/logs?role=trainer&index=0&stream=stdout&offset=6"
            for node in (holder, other):
                page = await served.get(path, node=node)
                assert page["data"] == "ZnJvbSByYW5rIDA="
                assert (page["offset"], page["next"], page["ended"]) == (6, 17, True)
                assert (page["task"], page["host"]) == ("digits/trainer/0#1", "h1")
            async with served.http.get(served.url(f"{path}&format=text", other)) as text:
                assert await text.text() == "from rank 0"
            absent = await served.get(path.replace("index=0", "index=5"), 404)
            assert absent["error"]["code"] == "unknown_task"
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        await agent.socket.close()
        await until(lambda: holder.sessions.agents() == 0)
        away = await served.get(path, 503)
        assert away["error"]["code"] == "agent_away"


async def test_conversations_end_when_the_server_stops() -> None:
    """With the reason, so that the client goes to another at once."""
    async with Served() as served:
        conversation = await served.dial()
        await conversation.until(Welcome)
        await served.leader.end_conversations()
        assert (await conversation.until(Refused)).code == "stopping"
        late = await served.dial()
        assert (await late.until(Refused)).code == "stopping"
