"""One connection to one server, as messages. The port that a simulator replaces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import aiohttp

from coord.codec import (
    MalformedMessage,
    UnencodableMessage,
    decode_to_client,
    encode_to_server,
)
from coord.model.channel import Hello, Refused, Submit, ToClient, ToServer, Welcome

MESSAGE_LIMIT_BYTES = 1 << 20
"""A larger Submit is sent as several; a larger single event is refused here."""
RECEIVE_LIMIT_BYTES = 64 << 20
"""Plans carry the environment of every task of a host."""
PING_AFTER_PERIODS = 1.2
"""A relay that is silent for so many heartbeat periods is pinged, and given up if it does not
answer within half a period: it acknowledges a beat a period, unless it hangs."""
CLOSE_TIMEOUT_S = 0.5
"""A server that hangs must not hold up the move to another one."""


class ChannelClosed(Exception):
    """The connection is gone or was never there. What was sent may have arrived."""


class ChannelRefused(Exception):
    """The server ended the conversation and said why. `code` as in `channel.proto`, Refused."""

    def __init__(self, server: str, refused: Refused) -> None:
        super().__init__(f"{server} refused: {refused.code}: {refused.message}")
        self.server = server
        self.code = refused.code


class EventUnsendable(Exception):
    """One event of a Submit cannot be sent at all; none of the Submit was. `position` in it."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


class Channel(Protocol):
    """An open connection after Hello and Welcome.

    One task may send while another receives. After `ChannelClosed` from either, only `close`.
    """

    @property
    def server(self) -> str:
        """The URL it was dialled at."""

    @property
    def welcome(self) -> Welcome: ...

    async def send(self, message: ToServer) -> None:
        """Raises ChannelClosed, EventUnsendable."""

    async def receive(self) -> ToClient:
        """The next message. Raises ChannelClosed; ChannelRefused for a Refused."""

    async def close(self) -> None:
        """Idempotent."""


class Dialer(Protocol):
    """Opens channels."""

    async def dial(self, server: str, hello: Hello, timeout_s: float) -> Channel:
        """Raises ChannelClosed when the server cannot be reached or does not answer in time,
        ChannelRefused when it does not want us."""

    async def close(self) -> None:
        """Release what all channels share. Idempotent."""


class WebSocketDialer:
    """Channels over `/v1/channel`: one protobuf message a WebSocket frame.

    Those to a URL in `watched` are pinged when they are silent. Servers are not: a busy one would
    be left by all its agents.
    """

    def __init__(self, watched: Iterable[str] = ()) -> None:
        self._watched = frozenset(watched)
        self._session: aiohttp.ClientSession | None = None

    async def dial(self, server: str, hello: Hello, timeout_s: float) -> WebSocketChannel:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open(self._session, server, hello)
        except TimeoutError as error:
            raise ChannelClosed(f"{server} did not answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ChannelClosed(f"{server} cannot be reached: {error}") from error

    async def _open(
        self, session: aiohttp.ClientSession, server: str, hello: Hello
    ) -> WebSocketChannel:
        socket = await session.ws_connect(
            f"{server}/v1/channel",
            max_msg_size=RECEIVE_LIMIT_BYTES,
            compress=0,
            autoping=False,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
        )
        channel = WebSocketChannel(server, socket)
        try:
            await channel.send(hello)
            first = await channel.receive()
            if not isinstance(first, Welcome):
                raise ChannelClosed(f"{server} answered Hello with {type(first).__name__}")
            channel.welcome = first
            if server in self._watched:
                channel.period_s = first.settings.heartbeat_ms / 1000
        except BaseException:
            await channel.close()
            raise
        return channel

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class WebSocketChannel:
    """See Channel."""

    def __init__(self, server: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.server = server
        self.welcome = Welcome(cluster="", node=0)
        self.period_s = 0.0
        """Of heartbeats, if the other side is watched (see PING_AFTER_PERIODS)."""
        self._socket = socket

    async def send(self, message: ToServer) -> None:
        for frame in frames_of(message):
            try:
                await self._socket.send_bytes(frame)
            except (aiohttp.ClientError, OSError, RuntimeError) as error:
                # aiohttp raises RuntimeError for a transport that is closing.
                raise ChannelClosed(f"{self.server} went away: {error}") from error

    async def receive(self) -> ToClient:
        frame = await self._next_frame()
        if frame.type is not aiohttp.WSMsgType.BINARY:
            raise ChannelClosed(self._why_closed(frame))
        try:
            message = decode_to_client(frame.data)
        except MalformedMessage as error:
            raise ChannelClosed(f"{self.server} sent a malformed message: {error}") from error
        if isinstance(message, Refused):
            raise ChannelRefused(self.server, message)
        return message

    async def _next_frame(self) -> aiohttp.WSMessage:
        """The next one that is no ping or pong, if it comes in time."""
        pinged = False
        while True:
            try:
                frame = await self._socket.receive(self._patience_s(pinged))
            except TimeoutError:
                if pinged:
                    raise ChannelClosed(f"{self.server} hangs: it answers no ping") from None
                await self._control(self._socket.ping, b"")
                pinged = True
                continue
            if frame.type is aiohttp.WSMsgType.PING:
                await self._control(self._socket.pong, frame.data)
            elif frame.type is not aiohttp.WSMsgType.PONG:
                return frame
            pinged = False

    def _patience_s(self, pinged: bool) -> float | None:
        if not self.period_s:
            return None
        return self.period_s * (0.5 if pinged else PING_AFTER_PERIODS)

    async def _control(self, send: Callable[[bytes], Awaitable[None]], content: bytes) -> None:
        try:
            await send(content)
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            raise ChannelClosed(f"{self.server} went away: {error}") from error

    async def close(self) -> None:
        await self._socket.close()

    def _why_closed(self, frame: aiohttp.WSMessage) -> str:
        if frame.type is aiohttp.WSMsgType.TEXT:
            return f"{self.server} sent text where protobuf was expected"
        error = self._socket.exception()
        return f"{self.server} closed the connection{f': {error}' if error else ''}"


def stop_if_cancelled() -> None:
    """Raise CancelledError if this task was asked to end.

    Python 3.11's TaskGroup forgets a cancellation that comes together with an error of the group;
    whoever catches such an error and goes on must ask.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def frames_of(message: ToServer) -> list[bytes]:
    """The message's frame, or several for a Submit that would be too large for one."""
    try:
        frame = encode_to_server(message)
    except UnencodableMessage as error:
        if not isinstance(message, Submit):
            raise
        if len(message.submissions) > 1:
            return _halves(message)
        raise EventUnsendable(0, str(error)) from error
    if len(frame) <= MESSAGE_LIMIT_BYTES or not isinstance(message, Submit):
        return [frame]
    if len(message.submissions) > 1:
        return _halves(message)
    kind = type(message.submissions[0].event).__name__
    raise EventUnsendable(
        0,
        f"{kind} takes {len(frame)} bytes; the limit for one event is {MESSAGE_LIMIT_BYTES}. "
        f"Shorten its longest field",
    )


def _halves(message: Submit) -> list[bytes]:
    middle = len(message.submissions) // 2
    first = Submit(message.submissions[:middle], message.timeout_ms)
    second = Submit(message.submissions[middle:], message.timeout_ms)
    frames = frames_of(first)
    try:
        return frames + frames_of(second)
    except EventUnsendable as error:
        raise EventUnsendable(middle + error.position, str(error)) from error
