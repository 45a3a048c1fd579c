"""An open connection from below, and the WebSocket that is one."""

from __future__ import annotations

from typing import Protocol

from aiohttp import WSMsgType, web

PING_S = 15.0
"""After so long without a frame the other side is pinged; half as long after that it is given up,
by whatever carries the frames."""


class Connection(Protocol):
    """The listener's end. One task may send while another receives."""

    @property
    def peer(self) -> str | None:
        """Where the other side is, for the log."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""

    async def receive(self) -> bytes | str | None:
        """The next frame; a `str` is one of text, None the end."""

    async def send(self, frame: bytes) -> None:
        """Waits while the buffers are full. Raises ConnectionError."""

    async def close(self) -> None:
        """Idempotent."""


class WebSocketConnection:
    """See Connection. Pings, and their want of an answer, are aiohttp's."""

    def __init__(self, socket: web.WebSocketResponse, peer: str | None) -> None:
        self.peer = peer
        self._socket = socket

    @property
    def closed(self) -> bool:
        return self._socket.closed

    async def receive(self) -> bytes | str | None:
        frame = await self._socket.receive()
        if frame.type is WSMsgType.BINARY or frame.type is WSMsgType.TEXT:
            data: bytes | str = frame.data
            return data
        return None

    async def send(self, frame: bytes) -> None:
        await self._socket.send_bytes(frame)

    async def close(self) -> None:
        await self._socket.close()


def websocket(message_bytes: int) -> web.WebSocketResponse:
    """The answer to a request for a channel on which a message has at most so many bytes: one
    beyond that, but within aiohttp's limit, can still be answered with a reason."""
    return web.WebSocketResponse(heartbeat=PING_S, compress=False, max_msg_size=2 * message_bytes)
