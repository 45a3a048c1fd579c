"""Connections between servers: `PeerNetwork` on TCP, with mutual TLS or on loopback.

Of two servers the one with the lower number dials at once and the other after a moment, so that a
newcomer who knows nobody is reached and two rarely dial each other at the same time. Of several
connections to a peer the newest counts (rule G8).
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from coord.raft.guard_append import Message
from coord.raft.handshake import (
    HANDSHAKE_S,
    Introduction,
    NotLoopback,
    PeerRefused,
    check_plaintext,
    hello,
    introduce,
    refusal,
    split_address,
    welcome,
)
from coord.raft.network import FetchFailed, PeerHandler, SnapshotSource
from coord.raft.ports import Member
from coord.raft.transfer import PATIENCE_S, Fetcher, send_file
from coord.raft.wire import FRAME_LIMIT_BYTES, ConnectionEnded, FrameRefused, FrameStream

log = structlog.get_logger()

UNSENT_LIMIT_BYTES = 64 * 1024 * 1024
"""A peer that takes nothing while so much waits for it is disconnected."""

BUS_UNSENT_LIMIT_BYTES = 16 * 1024 * 1024
"""Messages beside raft's are refused while so much waits."""

DEAD_AFTER_MS = 6000
"""A host that acknowledges nothing for so long is taken for gone by the kernel."""

_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0
_SECOND_DIALLER_S = 0.3
_YOUNG_S = 1.0
_TELL_AGAIN_S = 60.0
_BROKEN = (OSError, ConnectionEnded, FrameRefused, PeerRefused, TimeoutError)


class _Link:
    """A connection that has said hello."""

    def __init__(self, peer: Introduction, stream: FrameStream, epoch: int, dialled: bool) -> None:
        self.peer = peer
        self.stream = stream
        self.epoch = epoch
        self.dialled = dialled
        self.since_s = asyncio.get_running_loop().time()
        self.ended = asyncio.Event()


class TcpNetwork:
    """One server's connections. `listen` is the address to bind, `peer_address()` the one that
    others dial, asked for whenever it introduces itself."""

    def __init__(
        self,
        node: int,
        cluster: str,
        *,
        listen: str,
        peer_address: Callable[[], str],
        ssl_context: ssl.SSLContext | None,
        rng: random.Random,
    ) -> None:
        self._own = Introduction(cluster, node, "", "raft")
        self._peer_address = peer_address
        self._listen = listen
        self._ssl = ssl_context
        self._rng = rng
        self._handler: PeerHandler
        self._server: asyncio.Server | None = None
        self._members: dict[int, Member] = {}
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._links: dict[int, _Link] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._fetcher = Fetcher()
        self._told_until_s: dict[str, float] = {}
        self._epoch = 0
        self._running = False

    # The port

    async def start(self, handler: PeerHandler) -> None:
        if self._ssl is None:
            check_plaintext(self._listen)
        self._handler = handler
        host, port = split_address(self._listen)
        self._server = await asyncio.start_server(
            self._accepted, host, port, ssl=self._ssl, limit=1 << 20
        )
        self._running = True
        for member in list(self._members.values()):
            self._keep(member)

    async def stop(self) -> None:
        self._running = False
        if self._server is not None:
            self._server.close()
        for link in self._links.values():
            link.stream.abort()
        tasks = [*self._dialling.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._dialling.clear()
        self._tasks.clear()
        self._links.clear()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def add_peer(self, member: Member) -> None:
        known = self._members.get(member.node)
        self._members[member.node] = member
        if known is not None and known.peer_address != member.peer_address:
            self.drop_peer(member.node)
            self._members[member.node] = member
        if self._running:
            self._keep(member)

    def drop_peer(self, node: int) -> None:
        self._members.pop(node, None)
        task = self._dialling.pop(node, None)
        if task is not None:
            task.cancel()
            self._own_task(task)
        link = self._links.get(node)
        if link is not None:
            self._end(link)

    def send(self, node: int, message: Message) -> bool:
        link = self._links.get(node)
        if link is None or link.stream.closing:
            return False
        unsent_bytes = link.stream.unsent_bytes
        if message["type"] == "bus" and unsent_bytes > BUS_UNSENT_LIMIT_BYTES:
            return False
        if unsent_bytes > UNSENT_LIMIT_BYTES:
            log.warning("peer takes nothing", node=self._own.node, peer=node, unsent=unsent_bytes)
            self._end(link)
            return False
        link.stream.send(message)
        return True

    async def fetch_snapshot(self, node: int, index: int, directory: str) -> SnapshotSource:
        link, member = self._links.get(node), self._members.get(node)
        address = link.peer.peer_address if link else member.peer_address if member else ""
        if not address:
            raise FetchFailed(f"node {node} has no address to fetch from")
        stream = None
        try:
            stream, _ = await self._dial(node, address, "snapshot")
            return await self._fetcher.fetch(stream, index, directory)
        except _BROKEN as error:
            raise FetchFailed(f"from node {node} at {address}: {error!r}") from error
        finally:
            if stream is not None:
                stream.abort()

    # Dialling

    def _keep(self, member: Member) -> None:
        if member.node not in self._dialling:
            self._dialling[member.node] = asyncio.create_task(self._keep_connected(member))

    async def _keep_connected(self, member: Member) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            link = self._links.get(member.node)
            if link is not None:
                await link.ended.wait()
                retry_s = _FIRST_RETRY_S
                continue
            if self._own.node > member.node:
                await asyncio.sleep(_SECOND_DIALLER_S)
                if member.node in self._links:
                    continue
            try:
                stream, peer = await self._dial(member.node, member.peer_address, "raft")
            except _BROKEN as error:
                self._tell_refusal(error, member.peer_address)
                await asyncio.sleep(retry_s * (0.5 + self._rng.random()))
                retry_s = min(retry_s * 2, _LAST_RETRY_S)
                continue
            link = self._establish(peer, stream, dialled=True)
            if link is not None:
                await self._read(link)
                retry_s = _FIRST_RETRY_S

    async def _dial(
        self, node: int, address: str, purpose: str
    ) -> tuple[FrameStream, Introduction]:
        if self._ssl is None:
            check_plaintext(address)
        host, port = split_address(address)
        async with asyncio.timeout(HANDSHAKE_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=self._ssl, limit=1 << 20)
        stream = FrameStream(reader, writer)
        try:
            peer = await introduce(stream, self._introduction(purpose), node)
            _detect_dead_host(writer)
        except BaseException:
            stream.abort()
            raise
        return stream, peer

    def _introduction(self, purpose: str) -> Introduction:
        return msgspec.structs.replace(
            self._own,
            peer_address=self._peer_address(),
            purpose=purpose,
            version=self._handler.version(),
        )

    def _tell_refusal(self, error: BaseException, remote: str) -> None:
        """Once a minute for each reason: who is refused comes again every second."""
        if not isinstance(error, PeerRefused | FrameRefused | NotLoopback) or not self._running:
            return
        now_s, why = asyncio.get_running_loop().time(), str(error)
        if now_s < self._told_until_s.get(why, 0.0):
            return
        if len(self._told_until_s) > 1000:
            self._told_until_s.clear()
        self._told_until_s[why] = now_s + _TELL_AGAIN_S
        log.warning("peer refused", node=self._own.node, remote=remote, why=why)

    # Being dialled

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._serve(FrameStream(reader, writer), writer))

    async def _serve(self, stream: FrameStream, writer: asyncio.StreamWriter) -> None:
        try:
            peer = await welcome(stream, self._own)
            if not self._handler.accepts(peer.node, peer.version):
                raise PeerRefused(
                    "stranger",
                    f"node {peer.node} at {peer.peer_address} is no member of cluster "
                    f"{self._own.cluster!r} as node {self._own.node} knows it; add it first",
                )
            _detect_dead_host(writer)
            stream.limit_bytes = FRAME_LIMIT_BYTES
            if peer.purpose == "snapshot":
                await self._serve_snapshot(stream)
                return
            link = self._establish(peer, stream, dialled=False)
            if link is not None:
                await self._read(link)
        except PeerRefused as error:
            self._tell_refusal(error, stream.remote)
            stream.send(refusal(error))
        except FrameRefused as error:
            self._tell_refusal(error, stream.remote)
            stream.send(refusal(PeerRefused("malformed", str(error))))
        except (OSError, ConnectionEnded, TimeoutError) as error:
            log.debug("connection ended", node=self._own.node, why=repr(error))
        finally:
            stream.close()

    async def _serve_snapshot(self, stream: FrameStream) -> None:
        stream.send(hello(self._introduction("raft")))
        async with asyncio.timeout(PATIENCE_S):
            wanted = await stream.receive()
        if wanted["type"] != "snapshot_wanted":
            raise PeerRefused("malformed", f"{wanted['type']} on a connection for snapshots")
        source = self._handler.snapshot_source(wanted["snapshot_index"])
        if source is None:
            raise PeerRefused("gone", f"snapshot {wanted['snapshot_index']} is no longer here")
        await send_file(stream, source, wanted)

    # Links

    def _establish(self, peer: Introduction, stream: FrameStream, *, dialled: bool) -> _Link | None:
        """Make this the connection to the peer, unless one that both prefer was made just now."""
        before = self._links.get(peer.node)
        self._epoch += 1
        link = _Link(peer, stream, self._epoch, dialled)
        if before is not None and self._outranks(before, link):
            stream.abort()
            return None
        if before is not None:
            self._end(before)
        if not dialled:
            stream.send(hello(self._introduction("raft")))
        self._links[peer.node] = link
        self._handler.connected(peer.node, link.epoch)
        return link

    def _outranks(self, before: _Link, link: _Link) -> bool:
        """Two connections were made at once, and this is not the one that both sides keep."""
        young = link.since_s - before.since_s < _YOUNG_S and not before.stream.closing
        return young and self._preferred(before) and not self._preferred(link)

    def _preferred(self, link: _Link) -> bool:
        """Of two connections made at once, both sides keep the one that the lower node dialled."""
        return link.dialled == (self._own.node < link.peer.node)

    async def _read(self, link: _Link) -> None:
        node, epoch = link.peer.node, link.epoch
        handler = self._handler
        try:
            await link.stream.receive_all(lambda message: handler.received(node, epoch, message))
        except FrameRefused as error:
            self._tell_refusal(error, link.stream.remote)
            link.stream.send(refusal(PeerRefused("malformed", str(error))))
            link.stream.close()
        except (OSError, ConnectionEnded) as error:
            log.debug("connection ended", node=self._own.node, peer=node, why=repr(error))
        finally:
            self._end(link)

    def _end(self, link: _Link) -> None:
        """Idempotent."""
        if link.ended.is_set():
            return
        link.ended.set()
        if not link.stream.closing:
            link.stream.abort()
        if self._links.get(link.peer.node) is link:
            del self._links[link.peer.node]
        if self._running:
            self._handler.disconnected(link.peer.node, link.epoch)

    # Tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._own_task(asyncio.create_task(work))

    def _own_task(self, task: asyncio.Task[None]) -> None:
        """Kept until it ends; a failure that nobody expected is told, not lost."""
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("connection failed", node=self._own.node, exc_info=task.exception())


def _detect_dead_host(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice a host that went away without a word."""
    connection = writer.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 3),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", DEAD_AFTER_MS),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
