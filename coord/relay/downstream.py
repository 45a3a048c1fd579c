"""One conversation from below, over whatever carries frames. A server's is in `api/`."""

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
from coord.model.entry import ACTOR_LENGTH_LIMIT
from coord.relay.conversations import Conversation
from coord.relay.relay import Relay

log = structlog.get_logger()


KINDS = ("host", "relay")
WHOM = (
    f"a relay serves host:NAME and relay:NAME with a name of 1 to {ACTOR_LENGTH_LIMIT} characters; "
    "clients ask a server"
)


async def converse(relay: Relay, connection: Connection) -> None:
    """From Hello to goodbye. The connection is closed on return, unless it was lost."""
    conversation: Conversation | None = None
    limit_bytes = relay.config.limits.message_bytes
    try:
        greeting = await hello(_house(relay), connection, limit_bytes)
        conversation = relay.attach(greeting.actor)
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


def _house(relay: Relay) -> House:
    def cluster() -> str:
        assert relay.welcome is not None, "refusal() lets nobody in before a Welcome"
        return relay.welcome.cluster

    return House("relay", KINDS, WHOM, cluster, relay.refusal)


async def _receive(relay: Relay, conversation: Conversation, connection: Connection) -> None:
    limit_bytes = relay.config.limits.message_bytes
    while True:
        message, frame = await next_message(connection, limit_bytes)
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
    refused = refusal_in(ended)
    if refused is not None and not connection.closed:
        relay.metrics.dropped.labels(refused.code).inc()
        now_s = asyncio.get_running_loop().time()
        relay.complaints.tell(f"session_{refused.code}", now_s, message=refused.message)
    try:
        await goodbye(connection, refused)
    except (ConnectionError, TimeoutError) as error:
        log.debug("session_gone", error=repr(error))
