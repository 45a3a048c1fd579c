"""One conversation from below, over whatever carries frames; the rules are those of a server.

See `api/conversation.py` for the other end of the same promise.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from coord.codec import MalformedMessage, decode_to_server, encode_to_client
from coord.model.channel import PROTOCOL, Hello, Refused, ToServer
from coord.relay.config import NAME_LENGTH_LIMIT
from coord.relay.conversations import HOST_ACTOR, RELAY_ACTOR, Conversation
from coord.relay.relay import Ended, Relay

HELLO_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 10.0
"""For a reader to take what it is sent, once the buffers of both ends are full."""
PING_S = 15.0
"""After so long without a frame the other side is pinged; half as long after that it is given up,
by whatever carries the frames."""
GOODBYE_S = 1.0

log = structlog.get_logger()


class Connection(Protocol):
    """The relay's end of an open connection. One task may send while another receives."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""

    async def receive(self) -> bytes | str | None:
        """The next frame; a `str` is one of text, None the end."""

    async def send(self, frame: bytes) -> None:
        """Waits while the buffers are full. Raises ConnectionError."""

    async def close(self) -> None:
        """Idempotent."""


async def converse(relay: Relay, connection: Connection) -> None:
    """From Hello to goodbye. The connection is closed on return, unless it was lost."""
    conversation: Conversation | None = None
    try:
        hello = await _hello(relay, connection)
        conversation = relay.attach(hello.actor)
        assert relay.welcome is not None, "refusal() lets nobody in before a Welcome"
        await connection.send(encode_to_client(relay.welcome))
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(relay, conversation, connection))
            group.create_task(_receive(relay, conversation, connection))
    except* Ended as ended:
        await _say_goodbye(relay, connection, ended)
    except* (ConnectionError, TimeoutError):
        relay.metrics.dropped.labels("lost").inc()
    finally:
        if conversation is not None:
            relay.detach(conversation)


async def _hello(relay: Relay, connection: Connection) -> Hello:
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            message, _ = await _next(relay, connection)
    except TimeoutError:
        raise Ended(
            Refused("malformed", f"no Hello within {HELLO_TIMEOUT_S:g} s; send it first")
        ) from None
    if not isinstance(message, Hello):
        raise Ended(Refused("malformed", f"{type(message).__name__} came before Hello"))
    refused = relay.refusal()
    if refused is not None:
        raise Ended(refused)
    if message.protocol != PROTOCOL:
        raise Ended(
            Refused(
                "protocol",
                f"you speak protocol {message.protocol}, this relay {PROTOCOL}; use a release "
                "that speaks the same",
            )
        )
    assert relay.welcome is not None, "refusal() lets nobody in before a Welcome"
    cluster = relay.welcome.cluster
    if message.cluster and message.cluster != cluster:
        raise Ended(
            Refused(
                "wrong_cluster",
                f"this relay belongs to cluster {cluster!r}, not {message.cluster!r}; check the "
                "address",
            )
        )
    kind, _, name = message.actor.partition(":")
    known = (HOST_ACTOR.rstrip(":"), RELAY_ACTOR.rstrip(":"))
    if kind not in known or not 0 < len(name) <= NAME_LENGTH_LIMIT:
        raise Ended(
            Refused(
                "malformed",
                f"actor is {message.actor[:NAME_LENGTH_LIMIT]!r}; a relay serves host:NAME and "
                f"relay:NAME with a name of 1 to {NAME_LENGTH_LIMIT} characters; clients ask a "
                "server",
            )
        )
    return message


async def _next(relay: Relay, connection: Connection) -> tuple[ToServer, bytes]:
    limit_bytes = relay.config.limits.message_bytes
    frame = await connection.receive()
    if isinstance(frame, bytes):
        if len(frame) > limit_bytes:
            raise Ended(
                Refused(
                    "malformed",
                    f"a message of {len(frame)} bytes; the limit is {limit_bytes}. Send less at "
                    "once; nothing of it was done",
                )
            )
        try:
            return decode_to_server(frame), frame
        except MalformedMessage as error:
            raise Ended(Refused("malformed", f"{error}; nothing of it was done")) from error
    if isinstance(frame, str):
        raise Ended(Refused("malformed", "a text frame; send protobuf in binary frames"))
    raise Ended


async def _receive(relay: Relay, conversation: Conversation, connection: Connection) -> None:
    while True:
        message, frame = await _next(relay, connection)
        wait_s = relay.receive(conversation, message, frame)
        if wait_s:
            # Whoever floods is read no faster than it may send.
            await asyncio.sleep(wait_s)


async def _send(relay: Relay, conversation: Conversation, connection: Connection) -> None:
    while True:
        await conversation.ready.wait()
        over = conversation.over
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for frame in conversation.take():
                    await connection.send(frame)
        except TimeoutError:
            relay.metrics.dropped.labels("too_slow").inc()
            raise Ended from None
        if over:
            relay.metrics.dropped.labels(conversation.refused_code or "by_server").inc()
            raise Ended


async def _say_goodbye(
    relay: Relay, connection: Connection, ended: BaseExceptionGroup[Ended]
) -> None:
    """Tell the reason if the other side still listens, and close."""
    refused = next((error.refused for error in _leaves(ended) if error.refused is not None), None)
    try:
        async with asyncio.timeout(GOODBYE_S):
            if refused is not None and not connection.closed:
                relay.metrics.dropped.labels(refused.code).inc()
                now_s = asyncio.get_running_loop().time()
                relay.complaints.tell(f"session_{refused.code}", now_s, message=refused.message)
                await connection.send(encode_to_client(refused))
            await connection.close()
    except (ConnectionError, TimeoutError) as error:
        log.debug("session_gone", error=repr(error))


def _leaves(group: BaseExceptionGroup[Ended]) -> list[Ended]:
    found: list[Ended] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
