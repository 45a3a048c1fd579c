"""A wire between two processes that a test can cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wire:
    """Listens at `url` and passes bytes on to `target` (host:port), until `cut`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def cut(self) -> None:
        """Both ends see the connection reset, and no new one is taken. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = None
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
        self._writers.pop(writer, None)
