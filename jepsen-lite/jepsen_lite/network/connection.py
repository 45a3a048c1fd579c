"""One connection through the proxy: two directions, each held, delayed and broken on its own.

What a party sends is taken from it and queued with the time at which it is due; an end of the
stream and a reset stand in the queue like data, so that they do not overtake it and a cut holds
them too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque

from jepsen_lite.network.passage import Due, Pair, Passage

CHUNK_BYTES = 16 * 1024
HELD_BYTES = 256 * 1024
"""A party whose data is held is let to send so much; then its writes stall, as TCP has it."""
CATCH_S = 0.15
"""A reset waits so long for something under way, to deliver half of it."""

_END = b""
_RESET = None
_ABORTING = struct.pack("ii", 1, 0)


class Direction:
    """What goes from one party of a connection to the other."""

    def __init__(self, pair: Pair, passage: Passage) -> None:
        self.pair = pair
        self.delivered_bytes = 0
        self._passage = passage
        self._queue: deque[tuple[Due, bytes | None]] = deque()
        self._held_bytes = 0
        self._moved = asyncio.Event()
        """Something was queued or taken."""
        self.blocked = False
        """A reset goes on: nothing is delivered but what it chooses."""
        self.ended = False
        """The source has closed it, or is gone."""

    async def fill(self, reader: asyncio.StreamReader) -> None:
        """Queue what comes until it ends."""
        while True:
            try:
                chunk = await reader.read(CHUNK_BYTES)
            except OSError:
                self.put(_RESET)
                return
            self.put(chunk)
            if not chunk:
                return
            while self._held_bytes >= HELD_BYTES:
                await self._wait_moved()

    async def drain(self, writer: asyncio.StreamWriter) -> bool:
        """Deliver until the end; false when the connection is broken."""
        while True:
            while not self._queue:
                await self._wait_moved()
            due, chunk = self._queue[0]
            await self._passage.wait(self.pair, due)
            if self.blocked:
                await asyncio.Event().wait()
            self._queue.popleft()
            if chunk is _RESET:
                return False
            try:
                if chunk == _END:
                    writer.write_eof()
                    return True
                writer.write(self._passage.carried(chunk))
                await writer.drain()
            except OSError:
                return False
            self.delivered_bytes += len(chunk)
            self._held_bytes -= len(chunk)
            self._wake()

    def put(self, chunk: bytes | None) -> None:
        size_bytes = len(chunk or b"")
        self.ended = self.ended or not chunk
        self._held_bytes += size_bytes
        self._queue.append((self._passage.due(self.pair, size_bytes), chunk))
        self._wake()

    async def half(self) -> bytes:
        """The first half of what is under way, after waiting a little for something; less than the
        whole in any case. From then on nothing else is delivered."""
        self.blocked = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_S):
                while not self._queue:
                    await self._wait_moved()
        if self._passage.is_cut(self.pair):
            return b""
        under_way = b"".join(chunk for _, chunk in self._queue if chunk)
        return under_way[: len(under_way) // 2]

    async def _wait_moved(self) -> None:
        await self._moved.wait()
        self._moved.clear()

    def _wake(self) -> None:
        self._moved.set()


class Connection:
    """Accepted from `dialler`, to be brought to `target`."""

    def __init__(
        self,
        dialler: str,
        target: str,
        passage: Passage,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.forth = Direction((dialler, target), passage)
        self.back = Direction((target, dialler), passage)
        self._passage = passage
        self._reader = reader
        self._writers = [writer]
        self._task: asyncio.Task[None] | None = None
        self._is_reset = False
        _write_through(writer)

    def direction(self, source: str, target: str) -> Direction | None:
        """None when it does not connect the two."""
        for direction in (self.forth, self.back):
            if direction.pair == (source, target):
                return direction
        return None

    async def run(self, host: str, port: int) -> None:
        """Until both sides ended it, one broke it, or it is reset."""
        self._task = asyncio.create_task(self._carry(host, port))
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._is_reset:
                raise

    async def _carry(self, host: str, port: int) -> None:
        clean = False
        filling = asyncio.create_task(self.forth.fill(self._reader))
        try:
            if not await self._reachable():
                return
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except OSError:
                return
            self._writers.append(writer)
            _write_through(writer)
            clean = await self._exchange(reader, writer)
        finally:
            filling.cancel()
            if clean:
                for writer in self._writers:
                    writer.close()
            else:
                self.abort()

    async def _reachable(self) -> bool:
        """As with a first packet and its answer, a cut either way leaves the dialler waiting. False
        when it gave up meanwhile: what it sent never left."""
        pairs = (self.forth.pair, self.back.pair)
        await self._passage.wait(self.forth.pair, self._passage.due(self.forth.pair, 0))
        held = any(self._passage.is_cut(pair) for pair in pairs)
        await self._passage.wait_open(*pairs)
        return not (held and self.forth.ended)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """True when both directions came to their end."""
        async with asyncio.TaskGroup() as group:
            filling = group.create_task(self.back.fill(reader))
            forth = group.create_task(self._deliver(self.forth, writer, self.back))
            back = group.create_task(self._deliver(self.back, self._writers[0], self.forth))
            both = await asyncio.gather(forth, back)
            filling.cancel()
        return all(both)

    async def _deliver(
        self, direction: Direction, writer: asyncio.StreamWriter, other: Direction
    ) -> bool:
        delivered = await direction.drain(writer)
        if not delivered:
            # Whoever was written to, or whoever broke it, is gone: the other side learns of it on
            # its own way, which may be cut.
            other.put(_RESET)
            _break(writer)
        return delivered

    async def reset(self, source: str, target: str) -> None:
        """Deliver half of what is under way from source to target, and break both ends."""
        direction = self.direction(source, target)
        if direction is None:
            return
        other = self.back if direction is self.forth else self.forth
        other.blocked = True
        half = await direction.half()
        at = 1 if direction is self.forth else 0
        if half and at < len(self._writers) and not self._writers[at].is_closing():
            self._writers[at].write(half)
            direction.delivered_bytes += len(half)
        self.abort()
        if self._task is not None:
            self._is_reset = True
            self._task.cancel()

    def abort(self) -> None:
        """Both ends see a reset at once."""
        for writer in self._writers:
            _break(writer)


def _break(writer: asyncio.StreamWriter) -> None:
    """Close it with a reset, whatever is unsent."""
    if not writer.is_closing():
        connection = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # It is gone already, and so reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTING)
        writer.transport.abort()


def _write_through(writer: asyncio.StreamWriter) -> None:
    """Keep nothing in our own buffers, where a cut would not hold it."""
    writer.transport.set_write_buffer_limits(high=0)
