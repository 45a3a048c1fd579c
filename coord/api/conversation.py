"""One conversation with an agent, a client or a relay, over whatever carries frames.

The WebSocket of `channel.py` is one carrier; one protobuf message is one frame.
"""

from __future__ import annotations

import asyncio

import structlog

from coord.codec import encode_to_client
from coord.listening.connection import Connection
from coord.listening.talk import (
    SEND_TIMEOUT_S,
    Ended,
    House,
    goodbye,
    hello,
    next_message,
    refusal_in,
)
from coord.model.channel import (
    Beat,
    LogChunk,
    Refused,
    RelayUp,
    Submit,
)
from coord.model.entry import ACTOR_LENGTH_LIMIT, RELAY_ACTOR
from coord.node.node import Node
from coord.node.relays import RelayLink
from coord.node.sessions import Session
from coord.sites import reach

log = structlog.get_logger()


KINDS = ("client", "host", "relay")
WHOM = (
    "it must be client:NAME, host:NAME or relay:NAME with a name of 1 to "
    f"{ACTOR_LENGTH_LIMIT} characters"
)


async def converse(node: Node, connection: Connection) -> None:
    """From Hello to goodbye. The connection is closed on return, unless it was lost."""
    session: Session | None = None
    link: RelayLink | None = None
    limit_bytes = node.config.limits.message_bytes
    try:
        greeting = await hello(_house(node), connection, limit_bytes)
        ready = asyncio.Event()
        session = node.sessions.attach(greeting.actor, ready)
        if greeting.actor.startswith(RELAY_ACTOR):
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


def _house(node: Node) -> House:
    def refusal() -> Refused | None:
        if node.failed:
            return Refused("stopping", "this server is stopping; connect to another")
        return None

    return House("server", KINDS, WHOM, lambda: node.welcome().cluster, refusal)


async def _receive(
    node: Node, session: Session, link: RelayLink | None, connection: Connection
) -> None:
    limit_bytes = node.config.limits.message_bytes
    while True:
        message, frame = await next_message(connection, limit_bytes)
        if session.refused is not None:
            continue  # The sender is about to say so and to close.
        if link is not None:
            if not isinstance(message, RelayUp):
                kind = type(message).__name__
                raise Ended(Refused("malformed", f"{kind} of a relay; it speaks in RelayUp alone"))
            node.relayed(link, message)
        elif isinstance(message, Submit):
            node.receive(session, message, len(frame))
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
    refused = refusal_in(ended)
    if refused is not None and not connection.closed:
        log.info("session_refused", code=refused.code, message=refused.message)
    try:
        await goodbye(connection, refused)
    except (ConnectionError, TimeoutError) as error:
        log.info("session_gone", error=repr(error))
