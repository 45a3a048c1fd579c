"""HTTP+JSON, as curl sees it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from coord.api import exchange
from coord.api.joining import WaitingRoom
from coord.client import Client
from coord.client.errors import Unavailable
from coord.core.machine import apply
from coord.core.state import decode_state
from coord.model.entry import Recorded
from coord.node.config import Intervals, Limits, Retention
from coord.store.incident import IncidentReader
from coord.store.ports import StorageCorrupt
from tests.api.servers import Served, listening_socket
from tests.node.cluster import FakeAgent, Writer, turns_until, until

ROLE = {"name": "trainer", "command": ["true"], "replicas": 2, "max_replicas": 4}
JOB = {"name": "digits", "roles": [ROLE]}


async def test_a_job_is_submitted_shown_resized_and_cancelled() -> None:
    """Each answer carries the applied index, so that a reader knows what it reflects."""
    async with Served() as served:
        made = await served.ask("POST", "/v1/jobs", JOB, 201, headers={"X-Coord-Actor": "alice"})
        assert (made["name"], made["status"], made["actor"]) == ("digits", "queued", "alice")
        assert made["applied_index"] >= made["index"] > 0
        shown = await served.get("/v1/jobs/digits")
        assert shown["gangs"][0]["key"] == "digits/trainer"
        assert shown["gangs"][0]["tasks"] == []
        assert shown["checkpoint"] is None
        resize = {"role": "trainer", "replicas": 3, "reason": "more"}
        await served.ask("POST", "/v1/jobs/digits/resize", resize)
        assert (await served.get("/v1/jobs/digits"))["replicas"] == [3]
        await served.ask("POST", "/v1/jobs/digits/cancel", {"reason": "enough"})
        listed = await served.get("/v1/jobs")
        assert [(job["name"], job["status"]) for job in listed["jobs"]] == [("digits", "cancelled")]


async def test_every_answer_names_the_servers() -> None:
    """Errors too: one address is enough to begin with."""
    async with Served(3) as served:
        named = ",".join(url.removeprefix("http://") for url in served.urls.values())
        for path in ("/v1/jobs?stale=1", "/v1/jobs/absent?stale=1", "/livez"):
            async with served.http.get(f"{served.urls[2]}{path}") as answered:
                assert answered.headers["Coord-Servers"] == named


async def test_a_size_that_a_role_does_not_take_is_answered_with_those_it_takes() -> None:
    async with Served() as served:
        await served.ask("POST", "/v1/jobs", JOB, 201)
        resize = {"role": "trainer", "replicas": 9}
        refused = await served.ask("POST", "/v1/jobs/digits/resize", resize, 400)
        assert refused["error"]["code"] == "out_of_range"
        assert "9 replicas (it takes 2 to 4)" in refused["error"]["message"]


async def test_a_running_job_shows_its_tasks_and_a_host_what_is_free() -> None:
    """Gangs with their tasks; a host's capacity less what its tasks take."""
    async with Served() as served:
        agent = FakeAgent(served.leader, "h1")
        await agent.register(devices=4)
        role = {**ROLE, "resources": {"devices": 1, "cpu_millis": 500}}
        await served.ask("POST", "/v1/jobs", {"name": "digits", "roles": [role]}, 201)
        shown = await served.get("/v1/jobs/digits")
        tasks = shown["gangs"][0]["tasks"]
        assert [(task["key"], task["host"]) for task in tasks] == [
            ("digits/trainer/0#1", "h1"),
            ("digits/trainer/1#1", "h1"),
        ]
        host = await served.get("/v1/hosts/h1")
        assert host["free"] == {"devices": 2, "cpu_millis": 3_000, "memory_mib": 4_000}
        assert 0 <= host["last_seen_ms_ago"] < 60_000
        assert [h["host"] for h in (await served.get("/v1/hosts"))["hosts"]] == ["h1"]


async def test_hosts_are_drained_undrained_and_removed() -> None:
    """With the reason and the person in the log."""
    async with Served() as served:
        await FakeAgent(served.leader, "h1").register()
        headers = {"X-Coord-Actor": "bob"}
        done = await served.ask("POST", "/v1/hosts/h1/drain", {"reason": "fans"}, headers=headers)
        record = served.leader.events.read(done["index"], 1)[0]
        assert (record.entry.event.actor, record.entry.event.reason) == ("bob", "fans")
        assert (await served.get("/v1/hosts/h1"))["drain"] == "drained"
        again = await served.ask("POST", "/v1/hosts/h1/drain", {}, 409)
        assert again["error"]["code"] == "nothing_to_do"
        await served.ask("POST", "/v1/hosts/h1/undrain")
        await served.ask("POST", "/v1/hosts/h1/drain")
        await served.ask("POST", "/v1/hosts/h1/remove")
        assert (await served.get("/v1/hosts/h1"))["status"] == "removed"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "message"),
    [
        ("GET", "/v1/jobs/nope", None, 404, "unknown_job", "no job 'nope'"),
        ("GET", "/v1/hosts/nope", None, 404, "unknown_host", "no host 'nope'"),
        ("POST", "/v1/jobs/nope/cancel", {}, 404, "unknown_job", "job 'nope'"),
        ("POST", "/v1/hosts/nope/drain", {}, 404, "unknown_host", "host 'nope'"),
        ("POST", "/v1/jobs", {**JOB, "colour": 1}, 400, "invalid", "unknown field `colour`"),
        (
            "POST",
            "/v1/jobs",
            {"name": "a", "roles": [{**ROLE, "replica": 3}]},
            400,
            "invalid",
            "roles[0]: Object contains unknown field `replica`",
        ),
        (
            "POST",
            "/v1/jobs",
            {"name": "a", "roles": [{**ROLE, "replicas": "three"}]},
            400,
            "invalid",
            "roles[0].replicas: Expected `int`, got `str`",
        ),
        ("POST", "/v1/jobs", {"name": "a b", "roles": [ROLE]}, 400, "invalid", "name is 'a b'"),
        ("GET", "/v1/events?limit=many", None, 400, "invalid", "limit is 'many'"),
        ("GET", "/v1/incident.log?format=xml", None, 400, "invalid", "binary, jsonl"),
        ("GET", "/v1/incident.log?from=900", None, 400, "invalid", "holds no entry"),
        ("GET", "/v1/nothing", None, 404, "unknown_path", "/v1/nothing"),
        ("PUT", "/v1/jobs", {}, 405, "method_not_allowed", "takes GET, HEAD, POST, not PUT"),
        ("DELETE", "/v1/cluster/members/9", None, 404, "unknown_node", "node 9 is no member"),
        ("DELETE", "/v1/cluster/members/1", None, 409, "leads", "node 1 leads"),
        ("GET", "/v1/jobs/nope/logs", None, 404, "unknown_job", "no job 'nope'"),
    ],
)
async def test_errors_name_the_value_and_the_remedy(
    method: str, path: str, body: Any, status: int, code: str, message: str
) -> None:
    """As JSON, with a code for programs, and a clear word on whether it may have happened."""
    async with Served() as served:
        answer = await served.ask(method, path, body, status)
        error = answer["error"]
        assert error["code"] == code
        assert message in error["message"]
        assert error["may_have_happened"] is False
        assert error["leader"] == served.urls[1].removeprefix("http://")
        assert answer["applied_index"] > 0


async def test_a_duplicate_name_is_refused_and_a_repeated_key_is_not() -> None:
    """The key makes the repetition the same request: same index, no second effect."""
    async with Served() as served:
        headers = {"Idempotency-Key": "k1"}
        first = await served.ask("POST", "/v1/jobs", JOB, 201, headers=headers)
        again = await served.ask("POST", "/v1/jobs", JOB, 201, headers=headers)
        assert again["index"] == first["index"]
        other = await served.ask("POST", "/v1/jobs", JOB, 409)
        assert other["error"]["code"] == "duplicate_job"
        assert "choose another name" in other["error"]["message"]


async def test_a_body_beyond_the_limit_names_the_limit() -> None:
    """And nothing of it is read into the log."""
    async with Served(limits=Limits(job_bytes=10_000)) as served:
        role = {**ROLE, "env": {"BIG": "x" * 20_000}}
        answer = await served.ask("POST", "/v1/jobs", {"name": "a", "roles": [role]}, 413)
        assert answer["error"]["code"] == "too_large"
        assert "10000 bytes" in answer["error"]["message"]


async def test_events_are_paged_and_waited_for() -> None:
    """`next` is where to go on; with `wait_ms` the answer comes when there is something."""
    async with Served(3, intervals=Intervals(idle_clock_s=60)) as served:
        for number in range(5):
            await served.ask("POST", "/v1/notes", {"text": f"n{number}"}, 201)
        page = await served.get("/v1/events?from=2&limit=3")
        assert [event["entry"]["index"] for event in page["events"]] == [2, 3, 4]
        assert (page["next"], page["first_index"]) == (5, 1)
        last = page["applied_index"]
        for node in (served.leader, served.followers[0]):
            waiting = asyncio.create_task(
                served.get(f"/v1/events?from={last + 1}&wait_ms=20000", node=node)
            )
            await asyncio.sleep(0)
            note = await served.ask("POST", "/v1/notes", {"text": "news", "subject": "s"}, 201)
            found = await waiting
            assert found["events"][0]["entry"]["event"]["text"] == "news"
            last = max(note["index"], found["applied_index"])
        empty = await served.get(f"/v1/events?from={last + 100}&wait_ms=20")
        assert (empty["events"], empty["next"]) == ([], last + 100)


async def test_events_that_retention_deleted_are_said_to_be_gone() -> None:
    """With the oldest index that is kept, so that the reader can go on from there."""
    options = {"retention": Retention(max_entries=5), "intervals": Intervals(keep_s=0.05)}
    async with Served(**options) as served:
        for number in range(20):
            await served.ask("POST", "/v1/notes", {"text": f"n{number}"}, 201)
        await until(lambda: served.leader.events.first_index > 5)
        gone = await served.get("/v1/events?from=2", 410)
        assert gone["error"]["code"] == "events_gone"
        page = await served.get(f"/v1/events?from={gone['error']['first_index']}&stale=1")
        assert page["events"] or page["first_index"] > gone["error"]["first_index"]


async def test_server_sent_events_go_on_where_the_reader_stopped() -> None:
    """The id is the index; Last-Event-ID resumes after it."""
    async with Served() as served:
        for number in range(3):
            await served.ask("POST", "/v1/notes", {"text": f"n{number}"}, 201)
        url = served.url("/v1/events/stream?from=1")
        async with served.http.get(url, headers={"Last-Event-ID": "3"}) as answer:
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readline() == b"id: 4\n"
            data = (await answer.content.readline()).removeprefix(b"data: ")
            assert json.loads(data)["entry"]["event"]["text"] == "n1"


@pytest.mark.parametrize("file_format", ["binary", "jsonl"])
async def test_an_export_replays_to_the_digests_it_holds(file_format: str) -> None:
    """From the beginning and from the middle, with the state that the middle stands on."""
    async with Served() as served:
        for number in range(30):
            await served.ask("POST", "/v1/notes", {"text": f"n{number}"}, 201)
        for start in (1, 17):
            url = served.url(f"/v1/incident.log?from={start}&to=25&format={file_format}")
            async with served.http.get(url) as answer:
                assert answer.status == 200
                reader = IncidentReader(io.BytesIO(await answer.read()))
            state = decode_state(reader.start_state())
            indexes = []
            for located in reader:
                record = located.record
                assert apply(state, record.entry).digest == record.digest
                indexes.append(record.entry.index)
            assert indexes == list(range(start, 26))
            assert reader.footer is not None


async def test_an_export_that_meets_damage_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon and for certain: an error in the middle of a body would be taken for more of it, and a
    client that cannot parse it waited for ever."""
    async with Served() as served:
        for number in range(30):
            await served.ask("POST", "/v1/notes", {"text": f"n{number}"}, 201)
        store = served.nodes[1].events.store
        whole = store.scan

        def damaged(start: int, stop: int) -> Iterator[Recorded]:
            yield from whole(start, min(stop, 20))
            raise StorageCorrupt("entry 20: its checksum does not match")

        monkeypatch.setattr(store, "scan", damaged)
        async with asyncio.timeout(20), Client([served.urls[1]], timeout_s=5) as client:
            with pytest.raises(Unavailable, match=r"broke off|could answer"):
                await client.export_incident(io.BytesIO())


async def test_reads_are_linearizable_unless_asked_otherwise() -> None:
    """Without a leader a read fails and says how to get what the node has."""
    async with Served(3) as served:
        node = served.followers[0]
        served.hub.auto_elect = False
        served.hub.step_down()
        stale = await served.get("/v1/jobs?stale=1", node=node)
        assert stale["jobs"] == []
        failed = asyncio.create_task(served.get("/v1/jobs?timeout_ms=200", 503, node=node))
        error = (await failed)["error"]
        assert (error["code"], error["leader"]) == ("no_leader", "")
        assert "?stale=1" in error["message"]


async def test_the_cluster_is_shown_and_changed_through_any_node() -> None:
    """Followers pass changes on to the leader."""
    async with Served(3) as served:
        follower = served.followers[0]
        shown = await served.get("/v1/cluster", node=follower)
        assert (shown["cluster"], shown["leader"], shown["role"]) == (
            "test",
            served.hub.leader,
            "follower",
        )
        assert [member["node"] for member in shown["members"]] == [1, 2, 3]
        joining = listening_socket()
        address = f"127.0.0.1:{joining.getsockname()[1]}"
        room = WaitingRoom("test", 4).wait(joining, None, asyncio.Event())
        waiting = asyncio.create_task(room)
        member = {"node": 4, "peer_address": "127.0.0.1:1", "api_address": address}
        added = await served.ask("POST", "/v1/cluster/members", member, node=follower)
        assert [m["node"] for m in added["members"]] == [1, 2, 3, 4]
        assert [told.node for told in await waiting] == [1, 2, 3, 4]
        # One that ended before it kept what it was told waits to hear it again.
        again = asyncio.create_task(WaitingRoom("test", 4).wait(joining, None, asyncio.Event()))
        await served.ask("POST", "/v1/cluster/members", member, node=follower)
        assert [told.node for told in await again] == [1, 2, 3, 4]
        joining.close()
        await served.ask("POST", "/v1/cluster/members", member, node=follower)
        removed = await served.ask("DELETE", "/v1/cluster/members/4", node=follower)
        assert [m["node"] for m in removed["members"]] == [1, 2, 3]
        target = follower.config.node
        moved = await served.ask("POST", "/v1/cluster/transfer", {"node": target}, node=follower)
        assert moved["leader"] == served.hub.leader == target
        made = await served.ask("POST", "/v1/cluster/snapshot", node=served.followers[0])
        assert made["raft_index"] > 0


async def test_a_server_that_does_not_answer_is_not_added() -> None:
    """Nor one of another cluster, or of another number; nothing has changed then."""
    async with Served(1) as served:
        member = {"node": 4, "peer_address": "127.0.0.1:1", "api_address": "127.0.0.1:2"}
        away = await served.ask("POST", "/v1/cluster/members", member, 503)
        assert away["error"]["code"] == "joiner_away"
        assert "coordctl server --join" in away["error"]["message"]
        joining = listening_socket()
        address = f"127.0.0.1:{joining.getsockname()[1]}"
        for cluster, node, said in (("other", 4, "'other', not 'test'"), ("test", 5, "is node 5")):
            stop = asyncio.Event()
            waiting = asyncio.create_task(WaitingRoom(cluster, node).wait(joining, None, stop))
            await asyncio.sleep(0)
            member["api_address"] = address
            for method in ("GET", "POST"):
                async with served.http.request(method, f"http://{address}/v1/jobs") as answered:
                    assert (await answered.json())["error"]["code"] == "not_ready"
            wrong = await served.ask("POST", "/v1/cluster/members", member, 409)
            assert said in wrong["error"]["message"]
            assert "{" not in wrong["error"]["message"]
            stop.set()
            assert await waiting == ()
        joining.close()
        assert len(served.hub.members) == 1


@pytest.mark.parametrize(
    ("member", "status", "said"),
    [
        ({"api_address": "10.1.2.3:7104"}, 400, "api_address is '10.1.2.3:7104', which others can"),
        ({"peer_address": "10.1.2.3:7004"}, 400, "peer_address is '10.1.2.3:7004', which others"),
        ({"api_address": "example.org:80"}, 400, "which others can reach"),
        ({"api_address": "nowhere"}, 400, "api_address is 'nowhere'; it must be HOST:PORT"),
        ({"peer_address": "127.0.0.1:99999"}, 400, "the port must be 0 to 65535"),
        ({"node": 1}, 409, "node 1 is a member already"),
    ],
)
async def test_a_member_that_cannot_be_is_refused_before_anything_is_sent(
    member: dict[str, Any], status: int, said: str
) -> None:
    """Plain text leaves this machine in no direction."""
    good = {"node": 4, "peer_address": "127.0.0.1:1", "api_address": "127.0.0.1:2"}
    async with Served(1) as served:
        refused = await served.ask("POST", "/v1/cluster/members", {**good, **member}, status)
        assert said in refused["error"]["message"]
        assert len(served.hub.members) == 1


async def test_a_body_that_says_it_is_too_large_is_not_waited_for() -> None:
    async with Served() as served:
        said = await _half_a_request(served, b"Content-Length: 99999999\r\n\r\n{")
        assert b"413" in said.splitlines()[0]
        assert b"too_large" in said


async def test_a_body_that_does_not_come_is_not_waited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "BODY_TIMEOUT_S", 0.1)
    async with Served() as served:
        said = await _half_a_request(served, b"Content-Length: 50\r\n\r\n{")
        assert b"408" in said.splitlines()[0]
        assert b"too_slow" in said
        assert b'"may_have_happened":false' in said


async def test_a_body_that_cannot_be_unpacked_is_the_sender_s_mistake() -> None:
    async with Served() as served:
        head = b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"
        said = await _half_a_request(served, head)
        assert b"400" in said.splitlines()[0]
        assert b'"code":"invalid"' in said


async def _half_a_request(served: Served, rest: bytes) -> bytes:
    """What the server answers to a POST whose sender then keeps silent."""
    host, _, port = served.urls[1].removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/notes HTTP/1.1\r\nHost: x\r\n" + rest)
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.splitlines() if b"Content-Length" in line
        )
        body = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return head + body


async def test_a_note_needs_a_text() -> None:
    """Refused by the field's name, before the log would refuse it by none."""
    async with Served() as served:
        refused = await served.ask("POST", "/v1/notes", {"text": ""}, 400)
        assert "text is empty" in refused["error"]["message"]


async def test_the_channel_wants_a_websocket() -> None:
    async with Served() as served:
        refused = await served.ask("GET", "/v1/channel", status=400)
        assert refused["error"]["code"] == "no_websocket"


@pytest.mark.parametrize("last", ["\u00b2", "x", "-1", "9" * 5_000])
async def test_an_event_id_that_is_no_index_is_refused(last: str) -> None:
    async with Served() as served:
        headers = {"Last-Event-ID": last}
        refused = await served.ask("GET", "/v1/events/stream", status=400, headers=headers)
        assert "Last-Event-ID" in refused["error"]["message"]


async def test_evictions_that_are_not_frozen_need_no_permission() -> None:
    """The rejection comes from the log, as for any event."""
    async with Served() as served:
        answer = await served.ask("POST", "/v1/cluster/evictions", {"reason": "seen"}, 409)
        assert answer["error"]["code"] == "nothing_to_do"


async def test_health_and_metrics() -> None:
    """Ready means: a leader is known and this node can answer."""
    async with Served(3) as served:
        assert (await served.get("/livez"))["status"] == "ok"
        assert (await served.get("/readyz"))["status"] == "ok"
        await Writer("a").write(served.leader)
        async with served.http.get(served.url("/metrics")) as answer:
            text = await answer.text()
        for name in (
            "coord_commit_duration_seconds_bucket",
            "coord_apply_duration_seconds_count",
            "coord_loop_lag_seconds_sum",
            "coord_entries_applied_total",
            "coord_raft_is_leader 1.0",
            "coord_proposer_queue_entries",
            "coord_read_only 0.0",
            "coord_storage_size_bytes",
            "process_resident_memory_bytes",
        ):
            assert name in text
        node = served.nodes[1]
        served.hub.auto_elect = False
        served.hub.step_down()
        unready = await served.get("/readyz", 503, node=node)
        assert "no leader is known" in unready["error"]["message"]
        assert (await served.get("/livez", node=node))["status"] == "ok"


async def test_a_write_says_whether_it_may_have_happened() -> None:
    """Unknown once a copy left this server, definite while none did."""
    async with Served(3) as served:
        node = served.followers[0]
        served.hub.auto_elect = False
        url = "/v1/notes?timeout_ms=300"
        writing = asyncio.create_task(served.ask("POST", url, {"text": "x"}, 504, node=node))

        def sent() -> bool:
            return any(request.attempts for request in node.requests.all())

        await turns_until(sent)
        served.hub.partition()
        error = (await writing)["error"]
        assert (error["code"], error["may_have_happened"]) == ("unknown", True)
        assert "same Idempotency-Key" in error["message"]
        error = (await served.ask("POST", url, {"text": "x"}, 503, node=node))["error"]
        assert (error["code"], error["may_have_happened"]) == ("timeout", False)


async def test_the_server_ends_long_answers_when_it_stops() -> None:
    """Nobody holds it up."""
    async with Served() as served:
        url = served.url("/v1/events/stream?from=1000")
        async with served.http.get(url) as answer, asyncio.timeout(5):
            await served.leader.end_conversations()
            assert await answer.content.read() == b": nothing new\n\n"
