"""Connections that send events packed, each waiting for the answers to one message before the next.

A program: `URL CONNECTIONS EVENTS_A_MESSAGE SECONDS`; prints what was acknowledged as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial

from coord.codec import encode_to_server
from coord.model.channel import Hello
from coord.pb import channel_pb2
from tests.bench.etcd.frames import BINARY, PING, PONG, Frames, address_of, masked, upgrade_request

TEXT = "x" * 200
"""With the rest of the event about 256 bytes."""


class Packer(asyncio.Protocol):
    """One connection. `done` is set to the number of events when its time is up."""

    def __init__(self, name: str, events: int, seconds: float) -> None:
        self._actor = f"client:{name}"
        self._events = events
        self._seconds = seconds
        self._frames = Frames()
        self._seq = 0
        self._owed = 0
        self._acknowledged = 0
        self._end_s = 0.0
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(upgrade_request())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"{self._actor} lost its connection"))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for opcode, payload in self._frames.feed(data):
            if opcode == BINARY:
                self._on_message(channel_pb2.ToClient.FromString(payload))
            elif opcode == PING:
                self._transport.write(masked(PONG, payload))
        if self._frames.just_upgraded:
            self._frames.just_upgraded = False
            self._transport.write(masked(BINARY, encode_to_server(Hello(self._actor))))

    def _on_message(self, message: channel_pb2.ToClient) -> None:
        kind = message.WhichOneof("kind")
        if kind == "welcome":
            self._end_s = time.monotonic() + self._seconds
            self._send()
        elif kind == "results":
            results = message.results.results
            self._owed -= len(results)
            self._acknowledged += sum(
                one.outcome == "committed" and not one.rejection for one in results
            )
            if not self._owed:
                self._send()

    def _send(self) -> None:
        assert self._transport is not None
        if time.monotonic() >= self._end_s:
            if not self.done.done():
                self.done.set_result(self._acknowledged)
            return
        message = channel_pb2.ToServer()
        for _ in range(self._events):
            self._seq += 1
            one = message.submit.submissions.add()
            one.origin.actor, one.origin.seq = self._actor, self._seq
            note = one.event.note_added
            note.actor, note.subject, note.text = "bench", "packed", TEXT
        self._owed = self._events
        self._transport.write(masked(BINARY, message.SerializeToString()))


def _same(packer: Packer) -> Packer:
    return packer


async def main(url: str, connections: str, events: str, seconds: str) -> None:
    """All at once; a connection that is lost is an error."""
    loop = asyncio.get_running_loop()
    host, port = address_of(url)
    began_s = time.monotonic()
    packers = [
        Packer(f"packer-{time.time_ns()}-{number}", int(events), float(seconds))
        for number in range(int(connections))
    ]
    for packer in packers:
        await loop.create_connection(partial(_same, packer), host, port)
    acknowledged = sum(await asyncio.gather(*(packer.done for packer in packers)))
    wall_s = time.monotonic() - began_s
    print(json.dumps({"events": acknowledged, "wall_s": wall_s, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
