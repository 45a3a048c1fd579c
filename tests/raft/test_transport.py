"""Connections between servers on real sockets: who is let in, what is refused, what is lost."""

from __future__ import annotations

import asyncio
import hashlib
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from coord.codec import decode_peer_frame, encode_peer_frame
from coord.raft import transport
from coord.raft.guard_append import Message
from coord.raft.handshake import NotLoopback, PeerRefused, peer_context
from coord.raft.network import FetchFailed, SnapshotSource
from coord.raft.ports import Member
from coord.raft.transport import TcpNetwork
from coord.raft.wire import ConnectionEnded, FrameStream
from tests.free_ports import free_ports
from tests.raft.certificates import make_authority, make_certificate
from tests.raft.clusters import wait


class Handler:
    """Remembers what the network tells."""

    def __init__(self) -> None:
        self.members = [1, 2, 3]
        self.up: dict[int, int] = {}
        self.epochs: list[tuple[int, int]] = []
        self.heard: list[tuple[int, Message]] = []
        self.source: SnapshotSource | None = None

    def version(self) -> tuple[int, int]:
        return (3, 30)

    def accepts(self, node: int, version: tuple[int, int]) -> bool:
        return node in self.members or version > self.version()

    def connected(self, node: int, epoch: int) -> None:
        self.up[node] = epoch
        self.epochs.append((node, epoch))

    def disconnected(self, node: int, epoch: int) -> None:
        if self.up.get(node) == epoch:
            del self.up[node]

    def received(self, node: int, epoch: int, message: Message) -> None:
        if self.up.get(node) == epoch:
            self.heard.append((node, message))

    def snapshot_source(self, index: int) -> SnapshotSource | None:
        return self.source if self.source and self.source.index == index else None


class Server:
    def __init__(self, node: int, port: int, cluster: str, tls: Any) -> None:
        self.member = Member(node, f"127.0.0.1:{port}", "api:1")
        self.handler = Handler()
        self.network = TcpNetwork(
            node,
            cluster,
            listen=self.member.peer_address,
            peer_address=lambda: self.member.peer_address,
            ssl_context=tls,
            rng=random.Random(node),
        )


Make = Callable[..., Awaitable[Server]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """`await make(node, *others)`: a running server that keeps connections to the others."""
    servers: list[Server] = []

    async def made(node: int, *others: Server, cluster: str = "test", tls: Any = None) -> Server:
        server = Server(node, free_ports(1)[0], cluster, tls)
        servers.append(server)
        for other in others:
            server.network.add_peer(other.member)
        await server.network.start(server.handler)
        return server

    yield made
    for server in servers:
        await server.network.stop()


def bus(payload: bytes) -> Message:
    return {"type": "bus", "topic": "t", "payload": payload}


class Stranger:
    """A raw connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, server: Server) -> Stranger:
        host, _, port = server.member.peer_address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, **message: Any) -> None:
        frame = encode_peer_frame(message)
        self.writer.write(struct.pack(">I", len(frame)) + frame)

    def hello(self, **other: Any) -> None:
        own = {"protocol": 1, "cluster": "test", "node": 2, "purpose": "raft", "peer_address": "x"}
        self.send(type="hello", **{**own, **other})

    async def receive(self) -> Message:
        (length,) = struct.unpack(">I", await self.reader.readexactly(4))
        return decode_peer_frame(await self.reader.readexactly(length))

    async def ended(self) -> bool:
        """Whether the server closes the connection, after whatever it says."""
        async with asyncio.timeout(5):
            while await self.reader.read(65536):
                pass
        return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            return  # reset by the server, which is as closed


async def test_messages_arrive_in_order_both_ways(make: Make) -> None:
    """Over one connection, whoever dialled it."""
    one = await make(1)
    two = await make(2, one)
    one.network.add_peer(two.member)
    await wait(lambda: one.handler.up and two.handler.up)
    for number in range(300):
        assert one.network.send(2, bus(b"%d" % number))
        assert two.network.send(1, bus(b"%d" % number))
    expected = [b"%d" % number for number in range(300)]
    await wait(lambda: len(one.handler.heard) == len(two.handler.heard) == 300)
    assert [message["payload"] for _, message in one.handler.heard] == expected
    assert [message["payload"] for _, message in two.handler.heard] == expected
    assert {sender for sender, _ in one.handler.heard} == {2}


async def test_the_lower_number_reaches_a_newcomer_who_knows_nobody(make: Make) -> None:
    two = await make(2)
    three = await make(3)
    two.network.add_peer(three.member)
    await wait(lambda: 3 in two.handler.up and 2 in three.handler.up)


async def test_a_higher_number_reaches_it_too(make: Make) -> None:
    two = await make(2)
    three = await make(3, two)
    await wait(lambda: 3 in two.handler.up and 2 in three.handler.up)


async def test_connections_come_back(make: Make) -> None:
    """With a new epoch, after the other side was gone for a while."""
    one = await make(1)
    two = await make(2, one)
    one.network.add_peer(two.member)
    await wait(lambda: one.handler.up and two.handler.up)
    before = one.handler.up[2]
    await two.network.stop()
    await wait(lambda: not one.handler.up)
    assert not one.network.send(2, bus(b"lost"))
    await two.network.start(two.handler)
    await wait(lambda: 2 in one.handler.up)
    assert one.handler.up[2] > before


async def test_who_is_dropped_is_let_go(make: Make) -> None:
    one = await make(1)
    two = await make(2, one)
    one.network.add_peer(two.member)
    await wait(lambda: one.handler.up and two.handler.up)
    one.handler.members.remove(2)
    one.network.drop_peer(2)
    await wait(lambda: not one.handler.up and not two.handler.up)
    with pytest.raises(PeerRefused, match=r"node 2 at .* is no member"):
        await two.network._dial(1, one.member.peer_address, "raft")
    assert not one.handler.up


@pytest.mark.parametrize(
    ("hello", "code", "words"),
    [
        ({"node": 9}, "stranger", "node 9 at x is no member of cluster 'test'"),
        ({"cluster": "other"}, "cluster", "node 2 is of cluster 'other', node 1 of 'test'"),
        ({"node": 1}, "node", "two servers call themselves node 1"),
        ({"protocol": 2}, "protocol", "node 2 speaks protocol 2, this release 1"),
    ],
)
async def test_strangers_are_refused_by_name(
    make: Make, hello: dict[str, Any], code: str, words: str
) -> None:
    """They are told why, and nothing of theirs is let in."""
    one = await make(1)
    stranger = await Stranger.dial(one)
    stranger.hello(**hello)
    stranger.send(type="request_vote", term=99, last_log_index=99, last_log_term=99)
    refused = await stranger.receive()
    assert (refused["type"], refused["code"]) == ("refused", code)
    assert words in refused["message"]
    assert await stranger.ended()
    assert (one.handler.epochs, one.handler.heard) == ([], [])
    await stranger.close()


async def test_who_knows_newer_members_is_let_in(make: Make) -> None:
    """We were away while it was added; who was removed knows older ones."""
    one = await make(1)
    for index, accepted in ((29, False), (31, True)):
        newcomer = await Stranger.dial(one)
        newcomer.hello(node=9, configuration_term=3, configuration_index=index)
        answer = await newcomer.receive()
        assert (answer["type"] == "hello") is accepted
        await newcomer.close()
    assert [node for node, _ in one.handler.epochs] == [9]


async def test_nothing_is_read_before_the_hello(make: Make) -> None:
    """Not even a well-formed message."""
    one = await make(1)
    stranger = await Stranger.dial(one)
    stranger.send(type="request_vote", term=99, last_log_index=99, last_log_term=99)
    refused = await stranger.receive()
    assert (refused["code"], refused["message"]) == ("malformed", "request_vote before any hello")
    assert one.handler.heard == []
    await stranger.close()


@pytest.mark.parametrize(
    ("after_hello", "frame"),
    [
        (False, struct.pack(">I", 4097)),
        (False, b"GET / HTTP/1.1\r\n\r\n"),
        (True, struct.pack(">I", 16 * 1024 * 1024 + 1)),
        (True, struct.pack(">I", 3) + b"\xff\xff\xff"),
        (True, struct.pack(">I", 0)),
    ],
    ids=["too long for a stranger", "another protocol", "too long", "garbage", "empty"],
)
async def test_malformed_frames_end_their_connection_only(
    make: Make, after_hello: bool, frame: bytes
) -> None:
    """What came before them counts; the other connections lose nothing."""
    one = await make(1)
    three = await make(3, one)
    one.network.add_peer(three.member)
    await wait(lambda: 3 in one.handler.up and 1 in three.handler.up)
    stranger = await Stranger.dial(one)
    if after_hello:
        stranger.hello()
        assert (await stranger.receive())["type"] == "hello"
        stranger.send(**bus(b"before"))
    stranger.writer.write(frame)
    assert await stranger.ended()
    await wait(lambda: 2 not in one.handler.up)
    three.network.send(1, bus(b"well"))
    expected = [(2, b"before")] if after_hello else []
    await wait(lambda: one.handler.heard and one.handler.heard[-1][0] == 3)
    heard = [(sender, message["payload"]) for sender, message in one.handler.heard]
    assert heard == [*expected, (3, b"well")]
    await stranger.close()


async def test_the_newest_connection_of_a_peer_counts(make: Make) -> None:
    """Rule G8: the older one is closed, and has a lower epoch."""
    one = await make(1)
    first = await Stranger.dial(one)
    first.hello()
    await first.receive()
    second = await Stranger.dial(one)
    second.hello()
    await second.receive()
    assert await first.ended()
    second.send(**bus(b"here"))
    await wait(lambda: one.handler.heard)
    assert [node for node, _ in one.handler.epochs] == [2, 2]
    assert one.handler.epochs[0][1] < one.handler.epochs[1][1] == one.handler.up[2]
    await first.close()
    await second.close()


async def test_a_wrong_address_is_told(make: Make) -> None:
    """Node 3's address was entered for node 2."""
    three = await make(3)
    one = await make(1)
    with pytest.raises(PeerRefused, match="is node 3 of cluster 'test', not 2; check the members"):
        await one.network._dial(2, three.member.peer_address, "raft")
    assert not one.handler.up


async def test_plaintext_is_spoken_on_loopback_only() -> None:
    """Neither listening nor dialling."""
    server = TcpNetwork(
        1,
        "test",
        listen="0.0.0.0:0",
        peer_address=lambda: "10.0.0.1:7",
        ssl_context=None,
        rng=random.Random(1),
    )
    with pytest.raises(NotLoopback, match=r"0\.0\.0\.0 can be reached by others, and without"):
        await server.start(Handler())
    with pytest.raises(NotLoopback, match=r"db\.example is a name"):
        await server._dial(2, "db.example:7", "raft")


async def test_a_peer_that_reads_nothing_is_not_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages beside raft's are refused first, then the connection is given up."""
    one = await make(1)
    lazy = await Stranger.dial(one)
    lazy.hello()
    await wait(lambda: one.handler.up)
    monkeypatch.setattr(transport, "BUS_UNSENT_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr(transport, "UNSENT_LIMIT_BYTES", 1 << 22)
    lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
    taken = 0
    while one.network.send(2, bus(b"x" * (1 << 20))):
        taken += 1
        assert taken < 200
    append = {"type": "append_entries", "term": 1, "commit_index": 1, "sequence": 1}
    while one.network.send(2, {**append, "entries": [(b"x" * (1 << 20), 1, 1)]}):
        taken += 1
        assert taken < 200
    assert not one.handler.up
    await lazy.close()


async def test_servers_talk_over_tls(make: Make, tmp_path: Path) -> None:
    """Each proves itself to the other."""
    authority = make_authority(tmp_path, "authority")
    contexts = [peer_context(*make_certificate(tmp_path, f"node-{n}", authority)) for n in (1, 2)]
    one = await make(1, tls=contexts[0])
    two = await make(2, one, tls=contexts[1])
    one.network.add_peer(two.member)
    await wait(lambda: one.handler.up and two.handler.up)
    one.network.send(2, bus(b"x" * 3_000_000))
    two.network.send(1, bus(b"secret"))
    await wait(lambda: one.handler.heard and two.handler.heard)


async def test_who_cannot_prove_himself_is_refused(make: Make, tmp_path: Path) -> None:
    """A certificate of another authority, and plaintext."""
    authority = make_authority(tmp_path, "authority")
    other = make_authority(tmp_path, "other")
    one = await make(1, tls=peer_context(*make_certificate(tmp_path, "node-1", authority)))
    two = await make(2, tls=peer_context(*make_certificate(tmp_path, "node-2", other)))
    with pytest.raises((OSError, ConnectionEnded)):
        await two.network._dial(1, one.member.peer_address, "raft")
    with pytest.raises((OSError, ConnectionEnded)):
        await one.network._dial(2, two.member.peer_address, "raft")
    plain = await Stranger.dial(one)
    plain.hello(node=3)
    assert await plain.ended()
    assert not one.handler.up
    assert not two.handler.up
    await plain.close()


def snapshot(directory: Path, size_bytes: int = 3_000_000) -> SnapshotSource:
    contents = random.Random(1).randbytes(size_bytes)
    path = directory / "source"
    path.write_bytes(contents)
    return SnapshotSource(
        index=7,
        term=2,
        size_bytes=size_bytes,
        digest=hashlib.sha256(contents).hexdigest(),
        path=str(path),
        entries=((b"a" * 1000, 6, 2), (b"b", 7, 2)),
        members=(Member(1, "p:1", "a:1"), Member(2, "p:2", "a:2")),
    )


def contents_of(source: SnapshotSource) -> bytes:
    return Path(source.path).read_bytes()


async def test_a_snapshot_is_fetched_whole(make: Make, tmp_path: Path) -> None:
    """With the entries and members that go with it, by one who knows only the connection."""
    one = await make(1)
    two = await make(2)
    one.handler.source = snapshot(tmp_path)
    one.network.add_peer(two.member)
    await wait(lambda: 1 in two.handler.up)
    fetched = await two.network.fetch_snapshot(1, 7, str(tmp_path))
    assert contents_of(fetched) == contents_of(one.handler.source)
    assert fetched.path != one.handler.source.path
    assert (fetched.entries, fetched.members, fetched.term) == (
        one.handler.source.entries,
        one.handler.source.members,
        2,
    )


async def test_a_snapshot_that_is_gone_is_told(make: Make, tmp_path: Path) -> None:
    one = await make(1)
    two = await make(2, one)
    await wait(lambda: 1 in two.handler.up)
    with pytest.raises(FetchFailed, match="snapshot 7 is no longer here"):
        await two.network.fetch_snapshot(1, 7, str(tmp_path))


@pytest.mark.parametrize("same_file", [True, False])
async def test_a_fetch_goes_on_where_it_broke_off(
    make: Make, tmp_path: Path, same_file: bool
) -> None:
    """Unless the file is another by now; and what arrives damaged is fetched again."""
    source = snapshot(tmp_path, 1000)
    contents = contents_of(source)
    asked: list[Message] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer)
        await stream.receive()
        hello = {"protocol": 1, "cluster": "test", "node": 1, "purpose": "", "peer_address": "x"}
        stream.send({"type": "hello", **hello})
        wanted = await stream.receive()
        asked.append(wanted)
        first = len(asked) == 1
        offset = wanted["offset"] if same_file else 0
        stream.send(
            {
                "type": "snapshot_begin",
                "snapshot_index": 7,
                "snapshot_term": 2,
                "size_bytes": 1000,
                "digest": source.digest,
                "offset": offset,
                "entries": list(source.entries),
                "members": [],
            }
        )
        if first:
            stream.send({"type": "snapshot_chunk", "data": contents[:400]})
        else:
            damaged = b"?" if len(asked) == 2 and not same_file else b""
            stream.send({"type": "snapshot_chunk", "data": damaged + contents[offset:]})
            stream.send({"type": "snapshot_chunk", "data": b""})
        await stream.drain()
        stream.close()
        await writer.wait_closed()

    port = free_ports(1)[0]
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        two = await make(2)
        two.network._members[1] = Member(1, f"127.0.0.1:{port}", "api:1")
        with pytest.raises(FetchFailed, match="closed by the other side"):
            await two.network.fetch_snapshot(1, 7, str(tmp_path))
        if not same_file:
            with pytest.raises(FetchFailed, match="it will be fetched again"):
                await two.network.fetch_snapshot(1, 7, str(tmp_path))
        fetched = await two.network.fetch_snapshot(1, 7, str(tmp_path))
    assert contents_of(fetched) == contents
    assert [(one["offset"], one["digest"]) for one in asked] == [
        (0, ""),
        (400, source.digest),
        *([] if same_file else [(0, "")]),
    ]
