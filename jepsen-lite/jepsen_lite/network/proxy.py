"""The process of the proxy: listens where parties are reached, and obeys lines on its stdin.

A process of its own, so that the load of the suite does not slow the network. Commands are JSON,
one a line, each answered by one line on stdout; it ends when stdin does.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Any

import msgspec

from jepsen_lite.network.connection import Connection
from jepsen_lite.network.owners import Owners
from jepsen_lite.network.passage import Passage
from jepsen_lite.network.port import Shape
from jepsen_lite.network.wrong import Wrong, wrong_by

LINE_BYTES = 1 << 22
BACKLOG = 512


class Listen(msgspec.Struct, tag="listen"):
    """Whoever connects to `at` wants the party that listens at `to`."""

    party: str
    at: tuple[str, int]
    to: tuple[str, int]


class Reshape(msgspec.Struct, tag="reshape"):
    """From now on these shapes, and no others."""

    shapes: list[tuple[str, str, Shape]]


class Reset(msgspec.Struct, tag="reset"):
    """Break what is open between the two."""

    source: str
    target: str


class Count(msgspec.Struct, tag="count"):
    """Tell the open connections, by dialler and target."""


Command = Listen | Reshape | Reset | Count


class Answer(msgspec.Struct, omit_defaults=True):
    """`problem` says what went wrong; `connections` answers Count."""

    problem: str = ""
    connections: list[tuple[str, str, int]] = []


class Proxy:
    """Everything that is open."""

    def __init__(self, owners: Owners, rng: random.Random, wrong: Wrong | None = None) -> None:
        self._owners = owners
        self._passage = Passage(rng, wrong)
        self._open: dict[Connection, None] = {}
        self._servers: list[asyncio.Server] = []

    async def obey(self, command: Command) -> Answer:
        if isinstance(command, Listen):
            return await self._listen(command)
        if isinstance(command, Reshape):
            self._passage.reshape({(s, t): shape for s, t, shape in command.shapes})
        elif isinstance(command, Reset):
            await asyncio.gather(*(c.reset(command.source, command.target) for c in self._open))
        else:
            return Answer(connections=self._counts())
        return Answer()

    async def _listen(self, wanted: Listen) -> Answer:
        host, port = wanted.at

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._carry(wanted, reader, writer)

        try:
            server = await asyncio.start_server(accepted, host, port, backlog=BACKLOG)
        except OSError as error:
            return Answer(
                f"port {port} of {host} cannot be listened at ({error.strerror}): end what uses "
                "it, or choose another port"
            )
        self._servers.append(server)
        return Answer()

    async def _carry(
        self, wanted: Listen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        theirs, ours = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        dialler = self._owners.party(theirs, ours) if theirs and ours else None
        if dialler is None:
            writer.transport.abort()
            return
        connection = Connection(dialler, wanted.party, self._passage, reader, writer)
        self._open[connection] = None
        try:
            await connection.run(*wanted.to)
        finally:
            del self._open[connection]

    def _counts(self) -> list[tuple[str, str, int]]:
        counts: dict[tuple[str, str], int] = {}
        for connection in self._open:
            counts[connection.forth.pair] = counts.get(connection.forth.pair, 0) + 1
        return [(dialler, target, count) for (dialler, target), count in sorted(counts.items())]


async def serve(mark_name: str, mark: str, seed: int) -> None:
    """Obey stdin until it ends."""
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    proxy = Proxy(Owners(mark_name, mark), random.Random(seed), wrong_by())
    decoder = msgspec.json.Decoder(Command)
    while line := await commands.readline():
        answer = await proxy.obey(decoder.decode(line))
        _say(answer)
    os._exit(0)  # Connections held by a cut need not end first.


def _say(answer: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """`python -m jepsen_lite.network.proxy MARK_NAME MARK SEED`."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mark_name, mark, seed = sys.argv[1:]
    asyncio.run(serve(mark_name, mark, int(seed)))


if __name__ == "__main__":
    main()
