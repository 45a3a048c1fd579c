"""One conversation with an agent, a client or a relay, over whatever carries frames.

The WebSocket of `channel.py` is one carrier; one protobuf message is one frame.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from coord.codec import MalformedMessage, decode_to_server, encode_to_client
from coord.core.rosters import RELAY_ACTOR
from coord.model.channel import (
    PROTOCOL,
    Beat,
    Hello,
    LogChunk,
    Refused,
    RelayUp,
    Submit,
    ToServer,
)
from coord.node.node import Node
from coord.node.relays import RelayLink
from coord.node.sessions import Session
from coord.sites import reach

HELLO_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 10.0
"""For a reader to take what it is sent, once the buffers of both ends are full."""
PING_S = 15.0
"""After so long without a frame the other side is pinged; half as long after that it is given up,
by whatever carries the frames."""
ACTOR_LENGTH_LIMIT = 200

log = structlog.get_logger()


class Connection(Protocol):
    """The server's end of an open connection. One task may send while another receives."""

    @property
    def peer(self) -> str | None:
        """Where the other side is, for the log of the server."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""

    async def receive(self) -> bytes | str | None:
        """The next frame; a `str` is one of text, None the end."""

    async def send(self, frame: bytes) -> None:
        """Waits while the buffers are full. Raises ConnectionError."""

    async def close(self) -> None:
        """Idempotent."""


class Ended(Exception):
    """The conversation is over. `refused` is what the other side is told, if anything."""

    def __init__(self, refused: Refused | None = None) -> None:
        super().__init__(refused.message if refused is not None else "closed")
        self.refused = refused


async def converse(node: Node, connection: Connection) -> None:
    """From Hello to goodbye. The connection is closed on return, unless it was lost."""
    session: Session | None = None
    link: RelayLink | None = None
    try:
        hello = await _hello(node, connection)
        ready = asyncio.Event()
        session = node.sessions.attach(hello.actor, ready)
        if hello.actor.startswith(RELAY_ACTOR):
            link = node.relays.attach(session)
        await connection.send(encode_to_client(node.welcome()))
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(node, session, ready, link, connection))
            group.create_task(_receive(node, session, link, connection))
    except* Ended as ended:
        await _say_goodbye(connection, ended)
    except* (ConnectionError, TimeoutError) as gone:
        log.info("session_lost", peer=connection.peer, error=repr(gone.exceptions[0]))
    finally:
        if link is not None:
            node.relays.detach(link)
        if session is not None:
            node.sessions.detach(session)


async def _hello(node: Node, connection: Connection) -> Hello:
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            message, _ = await _next(node, connection)
    except TimeoutError:
        raise Ended(
            Refused("malformed", f"no Hello within {HELLO_TIMEOUT_S:g} s; send it first")
        ) from None
    if not isinstance(message, Hello):
        raise Ended(Refused("malformed", f"{type(message).__name__} came before Hello"))
    if node.failed:
        raise Ended(Refused("stopping", "this server is stopping; connect to another"))
    if message.protocol != PROTOCOL:
        raise Ended(
            Refused(
                "protocol",
                f"you speak protocol {message.protocol}, this server {PROTOCOL}; use a release "
                "that speaks the same",
            )
        )
    cluster = node.welcome().cluster
    if message.cluster and message.cluster != cluster:
        raise Ended(
            Refused(
                "wrong_cluster",
                f"this server belongs to cluster {cluster!r}, not {message.cluster!r}; check the "
                "address",
            )
        )
    kind, _, name = message.actor.partition(":")
    if kind not in ("client", "host", "relay") or not 0 < len(name) <= ACTOR_LENGTH_LIMIT:
        raise Ended(
            Refused(
                "malformed",
                f"actor is {message.actor[:ACTOR_LENGTH_LIMIT]!r}; it must be client:NAME, "
                f"host:NAME or relay:NAME with a name of 1 to {ACTOR_LENGTH_LIMIT} characters",
            )
        )
    return message


async def _next(node: Node, connection: Connection) -> tuple[ToServer, int]:
    """The next message and its size in bytes."""
    limit_bytes = node.config.limits.message_bytes
    frame = await connection.receive()
    if isinstance(frame, bytes):
        size_bytes = len(frame)
        if size_bytes > limit_bytes:
            raise Ended(
                Refused(
                    "malformed",
                    f"a message of {size_bytes} bytes; the limit is {limit_bytes}. Send less at "
                    "once; nothing of it was done",
                )
            )
        try:
            return decode_to_server(frame), size_bytes
        except MalformedMessage as error:
            raise Ended(Refused("malformed", f"{error}; nothing of it was done")) from error
    if isinstance(frame, str):
        raise Ended(Refused("malformed", "a text frame; send protobuf in binary frames"))
    raise Ended


async def _receive(
    node: Node, session: Session, link: RelayLink | None, connection: Connection
) -> None:
    while True:
        message, size_bytes = await _next(node, connection)
        if session.refused is not None:
            continue  # The sender is about to say so and to close.
        if link is not None:
            if not isinstance(message, RelayUp):
                kind = type(message).__name__
                raise Ended(Refused("malformed", f"{kind} of a relay; it speaks in RelayUp alone"))
            node.relayed(link, message)
        elif isinstance(message, Submit):
            node.receive(session, message, size_bytes)
        elif isinstance(message, Beat):
            node.beat(session, message)
        elif isinstance(message, LogChunk):
            node.sessions.chunk_arrived(message)
        elif isinstance(message, RelayUp):
            raise Ended(Refused("malformed", f"RelayUp of {session.actor}, which is no relay"))
        else:
            raise Ended(Refused("malformed", "a second Hello; open another connection for it"))


async def _send(
    node: Node,
    session: Session,
    ready: asyncio.Event,
    link: RelayLink | None,
    connection: Connection,
) -> None:
    while True:
        await ready.wait()
        messages = session.take(node.state, node.welcome)
        if link is not None and session.refused is None:
            messages += node.relays.take(link, node.state, node.welcome)
        reach("api.answers.taken")
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for message in messages:
                    await connection.send(encode_to_client(message))
        except TimeoutError:
            session.refuse("too_slow", f"nothing was read for {SEND_TIMEOUT_S:g} s")
        if session.refused is not None:
            node.metrics.too_slow.labels(session.refused.code).inc()
            raise Ended(session.refused)


async def _say_goodbye(connection: Connection, ended: BaseExceptionGroup[Ended]) -> None:
    """Tell the reason if the other side still listens, and close."""
    refused = next((error.refused for error in _leaves(ended) if error.refused is not None), None)
    try:
        async with asyncio.timeout(1.0):
            if refused is not None and not connection.closed:
                log.info("session_refused", code=refused.code, message=refused.message)
                await connection.send(encode_to_client(refused))
            await connection.close()
    except (ConnectionError, TimeoutError) as error:
        log.info("session_gone", error=repr(error))


def _leaves(group: BaseExceptionGroup[Ended]) -> list[Ended]:
    found: list[Ended] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
