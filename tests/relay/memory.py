"""Connections in memory: a relay's agents, and the server above it, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coord.client.channel import ChannelClosed, ChannelRefused, frames_of
from coord.codec import decode_to_client
from coord.model.channel import Hello, Refused, ToClient, ToServer, Welcome

BUFFER_FRAMES = 64
"""What lies between the ends: a writer waits beyond it, as behind full buffers of sockets."""


class End:
    """One end of a connection. See `coord.listening.connection.Connection`."""

    peer = "memory"

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | str | None] = asyncio.Queue(BUFFER_FRAMES)
        self.other: End = self
        self.closed = False

    async def receive(self) -> bytes | str | None:
        if self.closed and self.inbox.empty():
            return None
        return await self.inbox.get()

    async def send(self, frame: bytes | str) -> None:
        if self.closed:
            raise ConnectionResetError("the connection is gone")
        await self.other.inbox.put(frame)

    async def close(self) -> None:
        """What is under way to the other end arrives before its end."""
        if not self.closed:
            if self.other.inbox.full():
                self.cut()
                return
            self.other.inbox.put_nowait(None)
            self.closed = self.other.closed = True
            while not self.inbox.empty():
                self.inbox.get_nowait()
            self.inbox.put_nowait(None)

    def cut(self) -> None:
        """Both ends see its end; what is under way to them is lost."""
        for end in (self, self.other):
            if not end.closed:
                end.closed = True
                while not end.inbox.empty():
                    end.inbox.get_nowait()
                end.inbox.put_nowait(None)


def pipe() -> tuple[End, End]:
    here, there = End(), End()
    here.other, there.other = there, here
    return here, there


Accept = Callable[[End], Awaitable[None]]
"""What a server does with its end of a new connection, to the end of the conversation."""


class MemoryChannel:
    """See coord.client.channel.Channel."""

    def __init__(self, server: str, end: End, welcome: Welcome) -> None:
        self.server = server
        self.welcome = welcome
        self.end = end

    async def send(self, message: ToServer) -> None:
        for frame in frames_of(message):
            try:
                await self.end.send(frame)
            except ConnectionError as error:
                raise ChannelClosed(str(error)) from error

    async def receive(self) -> ToClient:
        return await next_message(self.server, self.end)

    async def close(self) -> None:
        self.end.cut()


async def next_message(server: str, end: End) -> ToClient:
    frame = await end.receive()
    if not isinstance(frame, bytes):
        raise ChannelClosed(f"{server} closed the connection")
    message = decode_to_client(frame)
    if isinstance(message, Refused):
        raise ChannelRefused(server, message)
    return message


class MemoryDialer:
    """See coord.client.channel.Dialer. `servers`: who accepts at which URL."""

    def __init__(self, servers: dict[str, Accept], group: asyncio.TaskGroup) -> None:
        self.servers = servers
        self.ends: list[End] = []
        """The far ends of all connections that were made."""
        self._group = group

    async def dial(self, server: str, hello: Hello, timeout_s: float) -> MemoryChannel:
        accept = self.servers.get(server)
        if accept is None:
            raise ChannelClosed(f"{server} cannot be reached: connection refused")
        here, there = pipe()
        self.ends.append(there)
        self._group.create_task(_accepted(accept, there))
        channel = MemoryChannel(server, here, Welcome("", 0))
        try:
            async with asyncio.timeout(timeout_s):
                await channel.send(hello)
                first = await channel.receive()
        except TimeoutError:
            here.cut()
            raise ChannelClosed(f"{server} did not answer within {timeout_s:g} s") from None
        assert isinstance(first, Welcome)
        channel.welcome = first
        return channel

    async def close(self) -> None:
        pass


async def _accepted(accept: Accept, end: End) -> None:
    try:
        await accept(end)
    finally:
        await end.close()
