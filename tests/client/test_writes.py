"""What a write promises: decided exactly once, whatever happens to servers and connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from coord.client.channel import MESSAGE_LIMIT_BYTES, EventUnsendable, frames_of
from coord.client.client import Client
from coord.client.errors import (
    Busy,
    ClientClosed,
    InvalidRequest,
    NotDone,
    OutcomeUnknown,
    Rejected,
    ServerRefused,
    Unavailable,
)
from coord.codec import decode_to_server
from coord.model.channel import Submit
from coord.model.entry import Origin, Submission
from coord.model.events import NoteAdded
from coord.model.rejections import EXPLANATIONS, Rejection
from coord.model.settings import Settings
from coord.model.spec import JobSpec, RoleSpec

from .fake import FakeCluster, FakeDialer
from .virtual import eventually, run

Test = Callable[[FakeCluster, Client], Awaitable[None]]


def with_client(
    test: Test, cluster: FakeCluster | None = None, timeout_s: float = 10.0, name: str = ""
) -> FakeCluster:
    """Run `test` in virtual time with an open client; returns the cluster as it was left."""

    async def story() -> FakeCluster:
        fake = cluster or FakeCluster()
        client = Client(
            fake.urls,
            actor="alice",
            cluster=name,
            timeout_s=timeout_s,
            dialer=FakeDialer(fake),
            rng=random.Random(1),
        )
        async with client:
            await test(fake, client)
        return fake

    return run(story())


def texts(cluster: FakeCluster) -> list[str]:
    return [event.text for event in cluster.accepted(NoteAdded) if isinstance(event, NoteAdded)]


def test_a_write_is_decided_at_a_log_index() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        first = await client.note("s", "one")
        second = await client.note("s", "two")
        assert second.index == first.index + 1

    assert texts(with_client(story)) == ["one", "two"]


def test_writes_go_to_the_leader_whichever_server_is_named_first() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.leader = 3
        await client.note("s", "one")
        assert [len(server.sessions) for server in cluster.servers] == [0, 0, 1]

    with_client(story)


def test_writes_go_through_a_follower_when_the_leader_cannot_be_reached() -> None:
    """A client may not be able to reach every server; a follower passes on what it is given."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.leader = 3
        cluster.servers[2].up = False
        await client.note("s", "one")
        assert len(cluster.servers[0].sessions) == 1

    with_client(story)


def test_writes_made_together_share_a_message() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "first")
        await asyncio.gather(*(client.note("s", str(number)) for number in range(64)))
        (session,) = cluster.servers[0].sessions
        assert [len(one.submissions) for one in session.received if isinstance(one, Submit)] == [
            1,
            64,
        ]

    with_client(story)


@pytest.mark.parametrize("fault", ["cut_before", "cut_after", "unanswered", "unknown_before",
                                   "unknown_after", "lost", "not_leader", "busy"])  # fmt: skip
def test_a_write_that_meets_a_fault_is_decided_exactly_once(fault: str) -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "before")
        cluster.faults.extend([fault] * 3)
        await asyncio.gather(*(client.note("s", f"{number}") for number in range(8)))

    assert sorted(texts(with_client(story))) == sorted(["before", *map(str, range(8))])


def test_random_faults_neither_lose_nor_repeat_a_write() -> None:
    faults = ["", "", "", "cut_before", "cut_after", "unanswered", "unknown_after", "busy", "lost"]

    async def story(cluster: FakeCluster, client: Client) -> None:
        rng = random.Random(7)

        async def writer(name: int) -> None:
            for number in range(20):
                await client.submit(NoteAdded("a", "s", f"{name}-{number}"), timeout_s=600)
                cluster.faults.append(rng.choice(faults))
                if rng.random() < 0.05:
                    cluster.elect(rng.randint(1, 3))

        await asyncio.gather(*(writer(name) for name in range(10)))

    cluster = with_client(story)
    expected = [f"{name}-{number}" for name in range(10) for number in range(20)]
    assert sorted(texts(cluster)) == sorted(expected)


def test_a_write_under_way_survives_the_death_of_the_leader() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "one")
        cluster.always = "lost"
        pending = asyncio.ensure_future(client.note("s", "two"))
        await eventually(lambda: len(cluster.servers[0].sessions[0].received) == 2)
        cluster.always = ""
        cluster.leader = 0
        cluster.servers[0].stop()
        await eventually(lambda: cluster.held)
        cluster.elect(2)
        await pending
        assert len(cluster.servers[1].sessions) == 1

    assert texts(with_client(story)) == ["one", "two"]


def test_a_change_of_leader_moves_the_writes_to_the_new_one() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "one")
        cluster.elect(2)
        await client.note("s", "two")
        await eventually(lambda: len(cluster.servers[1].sessions) == 1)
        assert not cluster.servers[0].sessions

    assert texts(with_client(story)) == ["one", "two"]


def test_answers_in_any_order_reach_the_right_callers() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.shuffle = lambda results: random.Random(3).sample(results, len(results))
        decided = await asyncio.gather(*(client.note("s", str(number)) for number in range(50)))
        for number, one in enumerate(decided):
            event = cluster.records[one.index - 1].entry.event
            assert isinstance(event, NoteAdded)
            assert event.text == str(number)

    with_client(story)


def test_busy_is_waited_out_as_long_as_the_server_asks() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        loop = asyncio.get_running_loop()
        await client.note("s", "one")
        before_s = loop.time()
        cluster.faults.extend(["busy", "busy"])
        await client.note("s", "two")
        assert 0.4 <= loop.time() - before_s < 0.5

    with_client(story)


def test_servers_without_a_leader_are_told_from_no_servers() -> None:
    """Whoever asked need not doubt the addresses."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.always = "timeout"
        with pytest.raises(Unavailable, match="a majority of the servers must be up") as caught:
            await client.note("s", "one")
        assert caught.value.reason == "no_leader"

    assert texts(with_client(story)) == []


def test_busy_until_the_deadline_is_a_definite_no() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.always = "busy"
        with pytest.raises(Busy, match="200 ms") as caught:
            await client.note("s", "one")
        assert not caught.value.may_have_happened

    assert texts(with_client(story)) == []


@pytest.mark.parametrize("fault", ["lost", "unanswered", "unknown_before", "cut_after"])
def test_without_an_answer_until_the_deadline_the_outcome_is_unknown(fault: str) -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.always = fault
        with pytest.raises(OutcomeUnknown, match="a note on 's'") as caught:
            await client.note("s", "one")
        assert caught.value.may_have_happened

    with_client(story)


def test_a_write_sent_again_late_still_ends_on_its_deadline() -> None:
    """Also when nothing answers the last attempt, and no other write has the timer look earlier."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        loop = asyncio.get_running_loop()
        cluster.faults.append("unknown_before")
        cluster.always = "lost"
        begun_s = loop.time()
        with pytest.raises(OutcomeUnknown):
            await client.submit(NoteAdded("alice", "s", "one"), timeout_s=1.0)
        assert loop.time() - begun_s == pytest.approx(1.0)

    with_client(story)


def test_busy_after_a_lost_answer_is_not_a_definite_no() -> None:
    """The first attempt may still be decided, whatever became of the second."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.faults.append("cut_after")
        cluster.always = "busy"
        with pytest.raises(OutcomeUnknown):
            await client.note("s", "one")

    assert texts(with_client(story)) == ["one"]


def test_with_no_server_at_all_it_certainly_did_not_happen() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        loop = asyncio.get_running_loop()
        for server in cluster.servers:
            server.up = False
        before_s = loop.time()
        with pytest.raises(Unavailable, match="connection refused") as caught:
            await client.note("s", "one")
        assert loop.time() - before_s == pytest.approx(10.0, abs=0.1)
        assert not caught.value.may_have_happened

    with_client(story)


def test_a_silent_leader_is_given_up_for_another_server() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "one")
        cluster.servers[0].mute = True
        pending = asyncio.ensure_future(client.note("s", "two"))
        await eventually(lambda: cluster.servers[1].sessions)
        await pending

    assert texts(with_client(story)) == ["one", "two"]


def test_a_rejection_says_why_in_words_and_where_it_is_recorded() -> None:
    spec = JobSpec("digits", (RoleSpec("trainer", ("true",)),))

    async def story(cluster: FakeCluster, client: Client) -> None:
        with pytest.raises(Rejected) as caught:
            await client.cancel_job("absent")
        error = caught.value
        assert error.rejection == Rejection.UNKNOWN_JOB
        assert error.index == cluster.state.meta.applied_index
        assert EXPLANATIONS[Rejection.UNKNOWN_JOB] in str(error)
        assert "'absent'" in str(error)
        assert not error.may_have_happened
        assert spec.name not in cluster.state.jobs

    with_client(story)


def test_a_full_disk_is_told_at_once() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.always = "read_only"
        before_s = asyncio.get_running_loop().time()
        with pytest.raises(NotDone, match="disk is full") as caught:
            await client.note("s", "one")
        assert caught.value.reason == "read_only"
        assert asyncio.get_running_loop().time() - before_s < 1.0

    with_client(story)


def test_numbers_under_way_stay_within_what_servers_remember() -> None:
    """One request that is never answered must not push its own number out of the memory."""

    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.faults.append("unanswered")
        slow = asyncio.ensure_future(client.note("s", "slow"))
        await eventually(lambda: len(texts(cluster)) == 1)
        rest = [asyncio.ensure_future(client.note("s", str(number))) for number in range(40)]
        await asyncio.gather(slow, *rest)

    cluster = with_client(story, FakeCluster(settings=Settings(request_window=8)))
    assert sorted(texts(cluster)) == sorted(["slow", *map(str, range(40))])
    assert not [one for one in cluster.records if one.rejection]


def test_an_event_that_cannot_be_sent_fails_alone() -> None:
    small = NoteAdded("a", "s", "small")
    large = NoteAdded("a", "s", "x" * (MESSAGE_LIMIT_BYTES + 1))
    wrong = NoteAdded("a", "s", "\ud800")
    origin = Origin("client:1", 0, 1)
    submissions = tuple(Submission(origin, event) for event in (small, large, small))
    with pytest.raises(EventUnsendable, match="limit for one event is 1048576") as caught:
        frames_of(Submit(submissions))
    assert caught.value.position == 1
    with pytest.raises(EventUnsendable) as caught:
        frames_of(Submit((*submissions[:1], Submission(origin, wrong))))
    assert caught.value.position == 1


def test_the_others_of_a_message_are_sent_without_the_one_that_cannot_be() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        await client.note("s", "first")
        events = [NoteAdded("a", "s", text) for text in ("one", "\ud800", "two")]
        outcomes = await asyncio.gather(
            *(client.submit(event) for event in events), return_exceptions=True
        )
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "Decided",
            "InvalidRequest",
            "Decided",
        ]
        assert isinstance(outcomes[1], InvalidRequest)

    assert texts(with_client(story)) == ["first", "one", "two"]


def test_a_large_message_is_sent_as_several() -> None:
    notes = [NoteAdded("a", "s", f"{number}" + "x" * 300_000) for number in range(9)]
    submissions = tuple(
        Submission(Origin("client:1", 0, seq), note) for seq, note in enumerate(notes, 1)
    )
    frames = frames_of(Submit(submissions, 77))
    assert len(frames) > 1
    assert max(map(len, frames)) <= MESSAGE_LIMIT_BYTES
    parts = [decode_to_server(frame) for frame in frames]
    assert all(isinstance(part, Submit) and part.timeout_ms == 77 for part in parts)
    sent = [one for part in parts if isinstance(part, Submit) for one in part.submissions]
    assert tuple(sent) == submissions


def test_a_server_of_another_cluster_is_named() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        with pytest.raises(ServerRefused, match="this is test") as caught:
            await client.note("s", "one")
        assert caught.value.reason == "wrong_cluster"

    with_client(story, name="prod")


def test_closing_answers_what_is_under_way() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.always = "lost"
        sent = asyncio.ensure_future(client.note("s", "sent"))
        await eventually(lambda: client._open_writer and client._open_writer._numbered)
        unsent = asyncio.ensure_future(client.note("s", "unsent"))
        await asyncio.sleep(0)
        cluster.servers[0].stop()
        await client.close()
        with pytest.raises(OutcomeUnknown, match="closed"):
            await sent
        with pytest.raises((ClientClosed, OutcomeUnknown)):
            await unsent
        with pytest.raises(ClientClosed):
            await client.note("s", "after")

    with_client(story)


def test_a_cancelled_call_leaves_the_client_usable() -> None:
    async def story(cluster: FakeCluster, client: Client) -> None:
        cluster.always = "lost"
        task = asyncio.ensure_future(client.note("s", "given up"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cluster.always = ""
        await client.note("s", "next")

    assert "next" in texts(with_client(story))


def test_retries_spread_out_while_no_server_answers() -> None:
    """Ten seconds without a cluster cost a client tens of attempts, not thousands."""

    async def story() -> int:
        cluster = FakeCluster()
        for server in cluster.servers:
            server.up = False
        dialer = FakeDialer(cluster)
        async with Client(cluster.urls, dialer=dialer, rng=random.Random(2)) as client:
            with pytest.raises(Unavailable):
                await client.note("s", "one")
        return len(dialer.attempts)

    assert 15 <= run(story()) <= 90
