"""Frames on an asyncio stream: a four-byte big-endian length, then an encoded PeerFrame."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from coord.codec import MalformedMessage, decode_peer_frame, encode_peer_frame
from coord.raft.guard_append import Message

FRAME_LIMIT_BYTES = 16 * 1024 * 1024
"""Two entries of the largest size and what goes with them fit."""

HELLO_LIMIT_BYTES = 4096
"""Who has not said who he is may not make us keep more."""

_READ_BYTES = 256 * 1024
_LENGTH = struct.Struct(">I")


class FrameRefused(Exception):
    """The other side sent a frame that is too long or cannot be read."""


class ConnectionEnded(Exception):
    """The other side closed the connection."""


class FrameStream:
    """One connection. `limit_bytes` may be raised once the other side has proved itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.limit_bytes = HELLO_LIMIT_BYTES
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()

    @property
    def remote(self) -> str:
        name = self._writer.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "unknown"

    @property
    def closing(self) -> bool:
        return self._writer.transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        return int(self._writer.transport.get_write_buffer_size())

    def send(self, message: Message) -> None:
        frame = encode_peer_frame(message)
        self._writer.write(_LENGTH.pack(len(frame)) + frame)

    async def drain(self) -> None:
        await self._writer.drain()

    async def receive(self) -> Message:
        """The next message. Raises FrameRefused and ConnectionEnded."""
        while True:
            message, used = self._parse(0)
            if message is not None:
                del self._buffer[:used]
                return message
            await self._read_more()

    async def receive_all(self, handle: Callable[[Message], None]) -> None:
        """Hand over every message, as many at once as have arrived, until the connection ends."""
        while True:
            used = 0
            while True:
                message, end = self._parse(used)
                if message is None:
                    break
                used = end
                handle(message)
            del self._buffer[:used]
            await self._read_more()

    def close(self) -> None:
        """Close after what was written, without waiting."""
        self._writer.close()

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()

    def _parse(self, start: int) -> tuple[Message | None, int]:
        """The message that begins at `start` and where it ends; None if it is not all here."""
        if len(self._buffer) < start + _LENGTH.size:
            return None, start
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        if length > self.limit_bytes:
            raise FrameRefused(
                f"a frame of {length} bytes; the limit is {self.limit_bytes}, so that nobody can "
                "make this server keep more"
            )
        end = start + _LENGTH.size + length
        if len(self._buffer) < end:
            return None, start
        try:
            frame = bytes(memoryview(self._buffer)[start + _LENGTH.size : end])
            return decode_peer_frame(frame), end
        except MalformedMessage as error:
            raise FrameRefused(str(error)) from error

    async def _read_more(self) -> None:
        try:
            chunk = await self._reader.read(_READ_BYTES)
        except OSError as error:
            raise ConnectionEnded(str(error)) from error
        if not chunk:
            raise ConnectionEnded("closed by the other side")
        self._buffer += chunk
