"""How a conversation begins and ends, and what is read in between: one protobuf message a frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from coord.codec import MalformedMessage, decode_to_server, encode_to_client
from coord.listening.connection import Connection
from coord.model.channel import PROTOCOL, Hello, Refused, ToServer
from coord.model.entry import ACTOR_LENGTH_LIMIT

HELLO_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 10.0
"""For a reader to take what it is sent, once the buffers of both ends are full."""
GOODBYE_S = 1.0


class Ended(Exception):
    """The conversation is over. `refused` is what the other side is told, if anything."""

    def __init__(self, refused: Refused | None = None) -> None:
        super().__init__(refused.message if refused is not None else "closed")
        self.refused = refused


class House(msgspec.Struct, frozen=True):
    """Who listens, and whom it lets in."""

    what: str
    """What it calls itself."""
    kinds: tuple[str, ...]
    """Of actors."""
    whom: str
    """The same in words, for those of other kinds."""
    cluster: Callable[[], str]
    refusal: Callable[[], Refused | None]
    """Why nobody can come in now."""


async def hello(house: House, connection: Connection, limit_bytes: int) -> Hello:
    """The first message. Raises Ended for one that is none, or of somebody who is not let in."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            message, _ = await next_message(connection, limit_bytes)
    except TimeoutError:
        raise Ended(
            Refused("malformed", f"no Hello within {HELLO_TIMEOUT_S:g} s; send it first")
        ) from None
    if not isinstance(message, Hello):
        raise Ended(Refused("malformed", f"{type(message).__name__} came before Hello"))
    refused = house.refusal() or _objection(house, message)
    if refused is not None:
        raise Ended(refused)
    return message


def _objection(house: House, message: Hello) -> Refused | None:
    if message.protocol != PROTOCOL:
        return Refused(
            "protocol",
            f"you speak protocol {message.protocol}, this {house.what} {PROTOCOL}; use a release "
            "that speaks the same",
        )
    cluster = house.cluster()
    if message.cluster and message.cluster != cluster:
        return Refused(
            "wrong_cluster",
            f"this {house.what} belongs to cluster {cluster!r}, not {message.cluster!r}; check the "
            "address",
        )
    kind, _, name = message.actor.partition(":")
    if kind not in house.kinds or not 0 < len(name) <= ACTOR_LENGTH_LIMIT:
        return Refused(
            "malformed", f"actor is {message.actor[:ACTOR_LENGTH_LIMIT]!r}; {house.whom}"
        )
    return None


async def next_message(connection: Connection, limit_bytes: int) -> tuple[ToServer, bytes]:
    """The next message, and the frame that it came in. Raises Ended."""
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


def refusal_in(ended: BaseExceptionGroup[Ended]) -> Refused | None:
    """What the other side is to be told, of all the reasons for which a conversation ended."""
    return next((error.refused for error in _leaves(ended) if error.refused is not None), None)


def _leaves(group: BaseExceptionGroup[Ended]) -> list[Ended]:
    found: list[Ended] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


async def goodbye(connection: Connection, refused: Refused | None) -> None:
    """Tell the reason if the other side still listens, and close. Raises ConnectionError, and
    TimeoutError when it does not take it."""
    async with asyncio.timeout(GOODBYE_S):
        if refused is not None and not connection.closed:
            await connection.send(encode_to_client(refused))
        await connection.close()
