"""Reads and watches over real sockets: any server will do, and none is believed too long."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from coord.client.client import Client
from coord.client.errors import (
    Busy,
    ClientClosed,
    EventsGone,
    InvalidRequest,
    NotDone,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from coord.client.http import ATTEMPT_S
from coord.client.servers import ServerRing, base_url
from coord.model.channel import Submit
from coord.model.entry import Origin, Recorded
from coord.model.events import NoteAdded

from .fake import FakeCluster
from .http_fake import HttpServer, http_cluster
from .virtual import eventually


def add_notes(cluster: FakeCluster, count: int) -> None:
    for _ in range(count):
        seq = len(cluster.records)
        cluster.record(Origin("client:t", 0, seq), NoteAdded("a", "s", str(seq)))


async def take(source: Any, count: int) -> list[int]:
    """Indexes of the next entries."""
    async with asyncio.timeout(20):
        taken: list[Recorded] = [await anext(source) for _ in range(count)]
    return [recorded.entry.index for recorded in taken]


# Addresses


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:7101", "http://127.0.0.1:7101"),
        ("http://h:1/", "http://h:1"),
        ("https://h", "https://h:7101"),
        ("[::1]:7", "http://[::1]:7"),
        ("http://[::1]", "http://[::1]:7101"),
    ],
)
def test_an_address_may_be_short(given: str, meant: str) -> None:
    assert base_url(given) == meant


@pytest.mark.parametrize(
    ("given", "said"),
    [("", "empty"), ("ftp://h:1", "use http or https"), ("h:port", "not host:port")],
)
def test_a_malformed_address_is_named(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Client([given])


def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no server address"):
        Client([])


def test_each_server_is_asked_once_a_round() -> None:
    ring = ServerRing(["a:1", "b:1", "a:1", "c:1"])
    assert list(ring.round()) == ["http://a:1", "http://b:1", "http://c:1"]
    ring.advance()
    assert list(ring.round()) == ["http://b:1", "http://c:1", "http://a:1"]


def test_servers_learned_come_after_those_given_and_are_forgotten() -> None:
    """Members come and go; the addresses given are the user's word."""
    ring = ServerRing(["a:1"])
    ring.learn(["b:1", "a:1", ""])
    assert ring.urls == ("http://a:1", "http://b:1")
    ring.advance()
    ring.learn(["c:1", "b:1"])
    assert (ring.current, ring.urls) == ("http://b:1", ("http://a:1", "http://c:1", "http://b:1"))
    ring.learn(["c:1"])
    assert ring.current == "http://a:1"


# Reads


async def test_one_address_is_enough_to_survive_the_loss_of_that_server() -> None:
    """Answers name the members, for reads and for writes."""
    async with http_cluster() as (cluster, servers), Client(cluster.urls[:1]) as client:
        await client.cluster()
        await servers[0].stop()
        page = await client.events(1, 1)
        assert [one.entry.index for one in page.events] == [1]
        await client.note("s", "t")


async def test_a_read_fails_over_to_the_next_server() -> None:
    async with http_cluster() as (cluster, servers):
        add_notes(cluster, 5)
        urls = cluster.urls
        await servers[0].stop()
        servers[1].fail = (503, {"code": "no_leader", "message": "no leader", "leader": ""})
        async with Client(urls) as client:
            page = await client.events(2, 3)
            assert [one.entry.index for one in page.events] == [2, 3, 4]
            assert page.next == 5
            assert page.applied_index == 6
            assert len(servers[2].requests) == 1
            await client.events(2, 3)
            # A server that worked is asked first from then on.
            assert (len(servers[1].requests), len(servers[2].requests)) == (1, 2)


async def test_a_server_that_hangs_leaves_a_read_the_time_for_another() -> None:
    async with http_cluster() as (cluster, servers):
        servers[0].server.mute = True
        async with Client(cluster.urls, timeout_s=1.0) as client:
            await client.cluster()
        assert len(servers[0].requests) == 1


async def test_a_read_says_whether_it_may_be_stale_and_who_asks() -> None:
    async with http_cluster(1) as (cluster, servers), Client(cluster.urls, actor="al") as client:
        await client.cluster()
        await client.cluster(stale=True)
        asked = [dict(one.query) for one in servers[0].requests]
        assert [query.get("stale") for query in asked] == [None, "1"]
        # Less than our own patience, so that its reason arrives in time.
        assert 0 < int(asked[0]["timeout_ms"]) < ATTEMPT_S * 1000
        assert servers[0].requests[0].headers["X-Coord-Actor"] == "al"


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (404, {"code": "unknown_job", "message": "no job 'x'"}, NotFound),
        (400, {"code": "invalid", "message": "limit is 0"}, InvalidRequest),
        (409, {"code": "leads", "message": "node 1 leads; transfer first"}, NotDone),
        (410, {"code": "events_gone", "message": "gone", "first_index": 7}, EventsGone),
        (503, {"code": "no_leader", "message": "no leader confirmed this read"}, Unavailable),
        (429, {"code": "busy", "message": "busy", "retry_after_ms": 300}, Busy),
    ],
)
async def test_an_error_of_a_read_is_typed_and_never_may_have_happened(
    status: int, error: dict[str, Any], expected: type[Exception]
) -> None:
    async with http_cluster(1) as (cluster, servers):
        servers[0].fail = (status, error)
        async with Client(cluster.urls, timeout_s=0.5) as client:
            with pytest.raises(expected) as caught:
                await client.job("x")
            assert type(caught.value) is expected
            assert not getattr(caught.value, "may_have_happened", None)
            if expected is not EventsGone:
                assert error["message"] in str(caught.value)


async def test_without_any_server_a_read_names_the_last_problem() -> None:
    async with http_cluster(2) as (cluster, servers):
        urls = cluster.urls
        for server in servers:
            await server.stop()
        async with Client(urls, timeout_s=0.3) as client:
            with pytest.raises(
                Unavailable, match=r"within 0\.3 s; the last: http://.*: connection refused$"
            ):
                await client.hosts()


async def test_servers_that_answer_are_not_called_absent() -> None:
    """What they said is what helps, not where to look for them."""
    async with http_cluster(1) as (cluster, servers):
        servers[0].fail = (503, {"code": "joiner_away", "message": "start node 4 first"})
        async with Client(cluster.urls, timeout_s=0.3) as client:
            with pytest.raises(Unavailable, match=r"last answer: .*start node 4 first") as caught:
                await client.hosts()
            assert caught.value.reason == "joiner_away"


async def test_a_change_is_repeated_only_after_a_definite_no() -> None:
    async with http_cluster(2) as (cluster, servers):
        urls = cluster.urls
        servers[0].fail = (503, {"code": "no_leader", "message": "no leader is known"})
        async with Client(urls, timeout_s=2) as client:
            await client.transfer(2)
            keys = [one.requests[0].headers["Idempotency-Key"] for one in servers]
            assert keys[0] == keys[1]
            servers[1].fail = (504, {"code": "unknown", "message": "who knows",
                                     "may_have_happened": True})  # fmt: skip
            with pytest.raises(OutcomeUnknown, match="who knows"):
                await client.remove_member(2)


async def test_a_client_may_take_stale_answers_for_all_reads() -> None:
    async with http_cluster(1) as (cluster, servers), Client(cluster.urls, stale=True) as client:
        await client.cluster()
        await client.events(1, 1)
        assert [one.query["stale"] for one in servers[0].requests] == ["1", "1"]


async def test_a_closed_client_says_so() -> None:
    client = Client(["127.0.0.1:1"])
    with pytest.raises(ClientClosed):
        await client.jobs()
    with pytest.raises(ClientClosed):
        client.watch()


# Watches


async def test_a_watch_goes_on_with_another_server_without_missing_or_repeating() -> None:
    async with http_cluster() as (cluster, servers):
        add_notes(cluster, 10)
        async with Client(cluster.urls) as client:
            watch = client.watch(1)
            seen = await take(watch, 11)
            for stopped in (0, 1):
                await servers[stopped].stop()
                add_notes(cluster, 5)
                seen += await take(watch, 5)
            await watch.aclose()
        assert seen == list(range(1, 22))


async def test_a_watch_that_moves_to_a_server_that_lags_waits_for_it() -> None:
    async with http_cluster(2) as (cluster, servers):
        add_notes(cluster, 9)
        async with Client(cluster.urls) as client:
            watch = client.watch(1)
            assert await take(watch, 10) == list(range(1, 11))
            servers[1].lag = 6
            await servers[0].stop()
            add_notes(cluster, 1)
            following = asyncio.ensure_future(take(watch, 1))
            await eventually(lambda: servers[1].requests, 5)
            servers[1].lag = 0
            assert await following == [11]
            await watch.aclose()


async def test_a_watch_from_now_on_sees_only_what_comes() -> None:
    async with http_cluster(1) as (cluster, servers):
        add_notes(cluster, 9)
        async with Client(cluster.urls) as client:
            watch = client.watch()
            following = asyncio.ensure_future(take(watch, 2))
            await eventually(lambda: len(servers[0].requests) >= 2, 5)
            add_notes(cluster, 2)
            assert await following == [11, 12]
            await watch.aclose()


async def test_a_watch_asks_for_confirmation_after_waiting_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server cut off from the leader has nothing new for ever; only a barrier shows it."""
    monkeypatch.setattr("coord.client.watch.WAIT_MS", 30)
    async with http_cluster(1) as (cluster, servers), Client(cluster.urls) as client:
        watch = client.watch(2)
        waiting = asyncio.ensure_future(take(watch, 1))
        await eventually(lambda: len(servers[0].requests) >= 4, 5)
        waits = [one.query["wait_ms"] for one in servers[0].requests]
        assert waits[:4] == ["0", "30", "0", "30"]
        add_notes(cluster, 1)
        assert await waiting == [2]
        await watch.aclose()


async def test_a_watch_of_deleted_entries_names_the_first_that_is_kept() -> None:
    async with http_cluster(1) as (cluster, servers):
        add_notes(cluster, 20)
        servers[0].first_index = 12
        async with Client(cluster.urls) as client:
            with pytest.raises(EventsGone, match=r"index 3 .* oldest kept is 12") as caught:
                await anext(client.watch(3))
            assert (caught.value.start, caught.value.first_index) == (3, 12)


async def test_a_watch_tells_of_each_time_no_server_answered() -> None:
    async with http_cluster(1) as (cluster, servers):
        add_notes(cluster, 1)
        troubles: list[str] = []
        async with Client(cluster.urls, timeout_s=0.2) as client:
            watch = client.watch(1, on_trouble=lambda error: troubles.append(str(error)))
            assert await take(watch, 2) == [1, 2]
            await servers[0].stop()
            following = asyncio.ensure_future(take(watch, 1))
            await eventually(lambda: troubles, 5)
            await servers[0].start()
            add_notes(cluster, 1)
            assert await following == [3]
            await watch.aclose()
        assert "no server could answer within 0.2 s" in troubles[0]


async def test_a_watch_gives_up_when_no_server_answers_for_long() -> None:
    async with http_cluster(1) as (cluster, servers):
        add_notes(cluster, 1)
        async with Client(cluster.urls, timeout_s=0.1) as client:
            watch = client.watch(1, patience_s=0.3)
            assert await take(watch, 2) == [1, 2]
            await servers[0].stop()
            with pytest.raises(Unavailable):
                await take(watch, 1)


# Export


async def test_an_export_is_copied_to_the_file() -> None:
    async with http_cluster(2) as (cluster, servers):
        urls = cluster.urls
        await servers[0].stop()
        async with Client(urls) as client:
            file = io.BytesIO()
            assert await client.export_incident(file, start=3, stop=9, format="jsonl") == 100_000
            assert len(file.getvalue()) == 100_000
            assert dict(servers[1].requests[0].query) == {
                "format": "jsonl",
                "from": "3",
                "to": "9",
            }


async def test_an_export_that_breaks_off_says_how_much_there_is() -> None:
    async with http_cluster(2) as (cluster, servers):
        for server in servers:
            server.cut_after_bytes = 70_000
        async with Client(cluster.urls) as client:
            file = io.BytesIO()
            with pytest.raises(Unavailable, match="broke off after 70000 bytes"):
                await client.export_incident(file)
            assert len(file.getvalue()) == 70_000


async def test_an_export_that_cannot_be_parsed_ends_in_time() -> None:
    """What is no part of the body stops aiohttp's own clock for reads."""
    async with http_cluster(1) as (cluster, servers):
        servers[0].garbled = True
        async with asyncio.timeout(20), Client(cluster.urls, timeout_s=0.5) as client:
            with pytest.raises(Unavailable, match="broke off after 100000 bytes"):
                await client.export_incident(io.BytesIO())


# The channel on real sockets


async def test_writes_over_a_websocket_survive_the_death_of_the_leader() -> None:
    async with http_cluster() as (cluster, servers):
        async with Client(cluster.urls, actor="alice") as client:
            await asyncio.gather(*(client.note("s", str(number)) for number in range(50)))
            assert len(servers[0].server.sessions) == 1

            async def write(number: int) -> None:
                await client.note("s", str(number))

            cluster.always = "unanswered"
            writes = [asyncio.ensure_future(write(number)) for number in range(50, 100)]
            await eventually(lambda: len(cluster.accepted(NoteAdded)) == 100, 5)
            cluster.always = ""
            await servers[0].stop()
            cluster.elect(2)
            await asyncio.gather(*writes)
        notes = [one.text for one in cluster.accepted(NoteAdded) if isinstance(one, NoteAdded)]
        assert sorted(notes, key=int) == [str(number) for number in range(100)]


async def test_many_writers_share_messages_on_the_wire() -> None:
    async with http_cluster(1) as (cluster, servers), Client(cluster.urls) as client:

        async def write() -> None:
            for number in range(20):
                await client.note("s", str(number))

        await asyncio.gather(*(write() for _ in range(64)))
        (session,) = servers[0].server.sessions
        submits = [one for one in session.received if isinstance(one, Submit)]
        assert sum(len(one.submissions) for one in submits) == 64 * 20
        assert len(submits) < 64 * 20 / 8


def test_an_http_server_is_not_left_behind() -> None:
    """Every server of these tests can be started, stopped and started again at its address."""

    async def story() -> None:
        async with http_cluster(1) as (cluster, servers):
            url = cluster.urls[0]
            await servers[0].stop()
            await servers[0].start()
            assert cluster.urls == [url]
            assert isinstance(servers[0], HttpServer)

    asyncio.run(story())
