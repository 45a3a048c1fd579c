"""/v1/channel: a conversation with an agent or a client over WebSocket, one message a frame."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import WSMsgType, web

from coord.api.errors import ApiError
from coord.api.keys import NODE
from coord.codec import MalformedMessage, decode_to_server, encode_to_client
from coord.model.channel import (
    PROTOCOL,
    Beat,
    Hello,
    LogChunk,
    Refused,
    Submit,
    ToServer,
)
from coord.node.node import Node
from coord.node.sessions import Session

HELLO_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 10.0
"""For a reader to take what it is sent, once the buffers of both ends are full."""
PING_S = 15.0
ACTOR_LENGTH_LIMIT = 200

routes = web.RouteTableDef()
log = structlog.get_logger()


class Ended(Exception):
    """The conversation is over. `refused` is what the other side is told, if anything."""

    def __init__(self, refused: Refused | None = None) -> None:
        super().__init__(refused.message if refused is not None else "closed")
        self.refused = refused


@routes.get("/v1/channel")
async def channel(request: web.Request) -> web.WebSocketResponse:
    node = request.app[NODE]
    # A message beyond our limit but within aiohttp's can still be answered with a reason.
    socket = web.WebSocketResponse(
        heartbeat=PING_S,
        compress=False,
        max_msg_size=2 * node.config.limits.message_bytes,
    )
    if not socket.can_prepare(request):
        raise ApiError(400, "no_websocket", "/v1/channel is a WebSocket; ask for an Upgrade to it")
    await socket.prepare(request)
    session: Session | None = None
    try:
        hello = await _hello(node, socket)
        session = node.sessions.attach(hello.actor)
        await socket.send_bytes(encode_to_client(node.welcome()))
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(node, session, socket))
            group.create_task(_receive(node, session, socket))
    except* Ended as ended:
        await _say_goodbye(socket, ended)
    except* (ConnectionError, TimeoutError) as gone:
        log.info("session_lost", peer=request.remote, error=repr(gone.exceptions[0]))
    finally:
        if session is not None:
            node.sessions.detach(session)
    return socket


async def _hello(node: Node, socket: web.WebSocketResponse) -> Hello:
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            message, _ = await _next(node, socket)
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
    if kind not in ("client", "host") or not 0 < len(name) <= ACTOR_LENGTH_LIMIT:
        raise Ended(
            Refused(
                "malformed",
                f"actor is {message.actor[:ACTOR_LENGTH_LIMIT]!r}; it must be client:NAME or "
                f"host:NAME with a name of 1 to {ACTOR_LENGTH_LIMIT} characters",
            )
        )
    return message


async def _next(node: Node, socket: web.WebSocketResponse) -> tuple[ToServer, int]:
    """The next message and its size in bytes."""
    limit_bytes = node.config.limits.message_bytes
    frame = await socket.receive()
    if frame.type is WSMsgType.BINARY:
        size_bytes = len(frame.data)
        if size_bytes > limit_bytes:
            raise Ended(
                Refused(
                    "malformed",
                    f"a message of {size_bytes} bytes; the limit is {limit_bytes}. Send less at "
                    "once; nothing of it was done",
                )
            )
        try:
            return decode_to_server(frame.data), size_bytes
        except MalformedMessage as error:
            raise Ended(Refused("malformed", f"{error}; nothing of it was done")) from error
    if frame.type is WSMsgType.TEXT:
        raise Ended(Refused("malformed", "a text frame; send protobuf in binary frames"))
    raise Ended


async def _receive(node: Node, session: Session, socket: web.WebSocketResponse) -> None:
    while True:
        message, size_bytes = await _next(node, socket)
        if session.refused is not None:
            continue  # The sender is about to say so and to close.
        if isinstance(message, Submit):
            node.receive(session, message, size_bytes)
        elif isinstance(message, Beat):
            node.beat(session, message)
        elif isinstance(message, LogChunk):
            node.sessions.chunk_arrived(message)
        else:
            raise Ended(Refused("malformed", "a second Hello; open another connection for it"))


async def _send(node: Node, session: Session, socket: web.WebSocketResponse) -> None:
    while True:
        await session.ready.wait()
        messages = session.take(node.state, node.welcome)
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for message in messages:
                    await socket.send_bytes(encode_to_client(message))
        except TimeoutError:
            session.refuse("too_slow", f"nothing was read for {SEND_TIMEOUT_S:g} s")
        if session.refused is not None:
            node.metrics.too_slow.labels(session.refused.code).inc()
            raise Ended(session.refused)


async def _say_goodbye(socket: web.WebSocketResponse, ended: BaseExceptionGroup[Ended]) -> None:
    """Tell the reason if the other side still listens, and close."""
    refused = next((error.refused for error in _leaves(ended) if error.refused is not None), None)
    try:
        async with asyncio.timeout(1.0):
            if refused is not None and not socket.closed:
                log.info("session_refused", code=refused.code, message=refused.message)
                await socket.send_bytes(encode_to_client(refused))
            await socket.close()
    except (ConnectionError, TimeoutError) as error:
        log.info("session_gone", error=repr(error))


def _leaves(group: BaseExceptionGroup[Ended]) -> list[Ended]:
    found: list[Ended] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
