"""One relay in virtual time, between a server and whoever a test lets speak."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from coord.client.agent import Agent
from coord.client.channel import ChannelClosed
from coord.codec import decode_to_client, encode_to_server
from coord.model.channel import Beat, Hello, Submit, ToClient, ToServer, Welcome
from coord.model.entry import Origin, Submission
from coord.model.events import AnyEvent, HostRegistered
from coord.relay.config import RelayConfig, RelayLimits
from coord.relay.downstream import converse
from coord.relay.metrics import Metrics
from coord.relay.relay import Relay
from coord.relay.upstream import Upstream

from .memory import Accept, End, MemoryDialer, pipe

SERVER = "http://server-1:7101"
RELAY = "http://relay-1:7201"


class World:
    """A relay `r1` at RELAY, below the server at SERVER."""

    def __init__(
        self, accept: Accept, group: asyncio.TaskGroup, limits: RelayLimits | None = None
    ) -> None:
        self.group = group
        self.servers: dict[str, Accept] = {SERVER: accept}
        self.dialer = MemoryDialer(self.servers, group)
        self.relay = self.add_relay("r1", RELAY, (SERVER,), limits or RelayLimits())

    def add_relay(
        self, name: str, url: str, servers: tuple[str, ...], limits: RelayLimits
    ) -> Relay:
        config = RelayConfig(servers=servers, name=name, limits=limits)
        loop = asyncio.get_running_loop()
        relay = Relay(config, 1_000, loop.time, Metrics())
        upstream = Upstream(relay, self.dialer, random.Random(1))
        self.group.create_task(upstream.run())

        async def accept(end: End) -> None:
            await converse(relay, end)

        self.servers[url] = accept
        return relay

    def connect(self) -> End:
        """A connection to the relay, by hand."""
        here, there = pipe()
        self.group.create_task(converse(self.relay, there))
        return here

    async def talker(self, host: str) -> Talker:
        await eventually(lambda: self.relay.connected)
        talker = Talker(host, self.connect())
        await talker.say(Hello(f"host:{host}"))
        assert isinstance(await talker.hear(), Welcome)
        return talker

    def agent(self, host: str, url: str = RELAY) -> Agent:
        numbers = count(1)
        return Agent(
            [SERVER],
            host=host,
            agent_id=f"agent-{host}",
            boot="boot",
            address="127.0.0.1",
            next_seq=numbers.__next__,
            relays=[url],
            dialer=MemoryDialer(self.servers, self.group),
            rng=random.Random(host),
        )

    def count(self, name: str) -> float:
        """Of one of the relay's counters, over all labels."""
        return sum(
            sample.value
            for metric in self.relay.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == name
        )


class Talker:
    """An agent by hand, who may say anything."""

    def __init__(self, host: str, end: End) -> None:
        self.host = host
        self.end = end
        self.sequence = 0
        self.seq = 0

    async def say(self, message: ToServer) -> None:
        await self.end.send(encode_to_server(message))

    async def hear(self, timeout_s: float = 5.0) -> ToClient:
        """The next message. Raises ChannelClosed after the last."""
        async with asyncio.timeout(timeout_s):
            frame = await self.end.receive()
        if not isinstance(frame, bytes):
            raise ChannelClosed("closed")
        return decode_to_client(frame)

    async def hear_kind(self, kind: type[ToClient]) -> ToClient:
        """The next message of this kind, whatever comes before it."""
        while not isinstance(message := await self.hear(), kind):
            pass
        return message

    async def beat(self, slot: int, incarnation: int = 1) -> int:
        self.sequence += 1
        await self.say(Beat(slot, incarnation, 0, self.sequence))
        return self.sequence

    def submission(self, event: AnyEvent, incarnation: int = 1) -> Submission:
        self.seq += 1
        return Submission(Origin(f"host:{self.host}", incarnation, self.seq), event)

    async def submit(self, *events: AnyEvent) -> None:
        await self.say(Submit(tuple(self.submission(event) for event in events)))

    async def register(self) -> None:
        event = HostRegistered(self.host, f"agent-{self.host}", "boot", "127.0.0.1")
        origin = Origin(f"client:agent-{self.host}", 0, 1)
        await self.say(Submit((Submission(origin, event),)))


class _Over(Exception):
    """The test is over."""


@asynccontextmanager
async def world(accept: Accept, limits: RelayLimits | None = None) -> AsyncIterator[World]:
    try:
        async with asyncio.TaskGroup() as group:
            yield World(accept, group, limits)
            raise _Over
    except* _Over:
        pass


async def eventually(holds: object, within_s: float = 10.0) -> None:
    """Wait until it holds; fails when it does not within the time."""
    assert callable(holds)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not holds():
        assert loop.time() < deadline_s, f"not so within {within_s:g} s"
        await asyncio.sleep(0.005)
