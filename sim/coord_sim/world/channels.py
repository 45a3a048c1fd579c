"""Channels of agents and clients over simulated connections, and all that can befall those.

`SimDialer` is what an `Agent` or a `Client` is given. Its side runs in the process that dials, the
server's in the server's process, as `coord.api.conversation` does it for a WebSocket; between them
frames travel as bytes. Faults are set on `Channels`, for each pair of caller and server.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from coord.api.conversation import converse
from coord.client.channel import (
    CLOSE_TIMEOUT_S,
    ChannelClosed,
    ChannelRefused,
    frames_of,
)
from coord.codec import MalformedMessage, decode_to_client
from coord.model.channel import Hello, Refused, ToClient, ToServer, Welcome
from coord.node.node import Node
from coord_sim.kernel import Kernel, SimProcess, current_process
from coord_sim.world.links import Delay, End, Item, Line, Signal, Way

Rule = Callable[[str, ToServer | ToClient], float | None]
"""(caller, message) to the seconds by which it is held up, or None."""

_URL = re.compile(r"http://sim-(\d+)(?::\d+)?$")


class Servers(Protocol):
    """Whom channels lead to."""

    def node(self, number: int) -> Node | None:
        """The node while it runs."""

    def process(self, number: int) -> SimProcess | None:
        """The process it runs in."""


class Ways:
    """Both ways between one caller and one server."""

    def __init__(self, delay: Delay, rng: random.Random) -> None:
        self.rng = rng
        self.to_server = Way(delay)
        self.to_caller = Way(delay)

    @property
    def both(self) -> tuple[Way, Way]:
        return self.to_server, self.to_caller


class Link:
    """One connection, from the attempt to the last that either side has to do with it."""

    def __init__(self, channels: Channels, number: int, caller: str, server: int) -> None:
        process = current_process()
        if process is None:
            raise RuntimeError(f"{caller} dials from outside of any process; spawn one for it")
        self.number = number
        self.caller = caller
        self.server = server
        self._channels = channels
        self._kernel = channels.kernel
        self.ways = ways = channels.ways(caller, server)
        self.near = End(process, f"sim-{server}")
        self.far = End(None, caller)
        up = Line(self._kernel, ways.to_server, ways.rng, self._at_server)
        down = Line(self._kernel, ways.to_caller, ways.rng, self._at_caller)
        self.near.line_out = self.far.line_in = up
        self.near.line_in = self.far.line_out = down
        self.near.settled = self.far.settled = self._settled
        channels.watch(process)
        up.post(Signal.OPEN, process.stalled_until_s)

    # Faults

    def reset(self, end: End) -> None:
        """This side is told that the connection broke, after whatever still reaches it."""
        if end.line_in.way.cut:
            end.line_in.hold_end()
        else:
            told_s = end.line_in.lose_a_part()
            self._kernel.call_at(told_s, self._tell, end, "connection reset")
        self._settled()

    def sever(self) -> None:
        """Both sides are told at once, and what is on its way is lost."""
        for end in (self.near, self.far):
            end.line_in.lose()
            self._tell(end, "network is unreachable")
        self._settled()

    def unplug(self) -> None:
        """The caller's machine is gone: the server is not told."""
        for end in (self.near, self.far):
            end.line_in.lose()
        self._settled()

    def give_up(self) -> None:
        """The caller waits no longer for its attempt to be answered."""
        if self.far.process is None:
            self.near.line_out.lose()
        self.near.shut()

    def died(self, process: SimProcess) -> None:
        """The system that the process ran on closes what it had open."""
        for end, other in ((self.near, self.far), (self.far, self.near)):
            if end.process is not process:
                continue
            if end.shut_here or end.line_out.lost:
                continue  # It is closed already, or the machine is gone with it.
            if end.line_in.unread_bytes or self.ways.rng.random() < 0.5:
                self.reset(other)
            else:
                end.line_out.post(Signal.END, 0.0)
        self._settled()

    # Inside

    def _at_server(self, item: Item) -> None:
        if item is Signal.OPEN:
            process = self._channels.servers.process(self.server)
            if process is None or not process.alive:
                self.far.over = "nobody listens"
                self.reset(self.near)
                self._settled()
                return
            self.far.process = process
            self._channels.watch(process)
            process.call_soon(self._accept)
        else:
            self._hand_over(self.far, self.near, item)

    def _at_caller(self, item: Item) -> None:
        self._hand_over(self.near, self.far, item)

    def _hand_over(self, end: End, other: End, item: Item) -> None:
        process = end.process
        if process is not None and process.alive:
            process.call_soon(end.arrived, item)
        else:
            self.reset(other)

    def _tell(self, end: End, why: str) -> None:
        if end.process is not None:
            end.process.call_soon(end.broken, why)

    def _accept(self) -> None:
        """In the server's process."""
        node = self._channels.servers.node(self.server)
        if node is None:
            self.far.broken("nobody listens")
            self.reset(self.near)
            return
        self._kernel.trace.note("channel.opened", caller=self.caller, link=self.number)
        self.far.line_out.post(Signal.ACCEPTED, 0.0)
        self.far.begin_pings()
        asyncio.get_running_loop().create_task(self._serve(node))  # The process keeps it.

    async def _serve(self, node: Node) -> None:
        try:
            await converse(node, _Received(self._channels, self.far))
        except Exception as defect:
            self._kernel.trace.note("channel.defect", error=repr(defect))
            self._channels.defects.append(defect)
        finally:
            self.far.shut()

    def _settled(self) -> None:
        never_arrived = self.far.process is None and self.near.line_out.lost
        if self.near.done and (self.far.done or never_arrived):
            self._channels.forget(self)


class _Received:
    """The server's `Connection`."""

    def __init__(self, channels: Channels, end: End) -> None:
        self.peer: str | None = end.peer
        self._channels = channels
        self._end = end

    @property
    def closed(self) -> bool:
        return self._end.closed

    async def receive(self) -> bytes | str | None:
        return await self._end.receive()

    async def send(self, frame: bytes) -> None:
        channels, extra_s = self._channels, 0.0
        if channels.rules:
            extra_s = channels.extra_s(self._end.peer, decode_to_client(frame))
        await self._end.send(frame, extra_s)

    async def close(self) -> None:
        await self._end.close()


class Channels:
    """All connections of agents and clients to servers. Callers are known by name."""

    def __init__(self, kernel: Kernel, servers: Servers, delay: Delay | None = None) -> None:
        self.kernel = kernel
        self.servers = servers
        self.delay = delay or Delay()
        """Of every pair that has not met yet."""
        self.defects: list[Exception] = []
        """What escaped from a server's side of a conversation; must stay empty."""
        self.rules: list[Rule] = []
        self.opened = 0
        self._ways: dict[tuple[str, int], Ways] = {}
        self._links: dict[int, Link] = {}
        self._watched: dict[SimProcess, None] = {}

    # Who is there

    def dialer(self, caller: str) -> SimDialer:
        """For one agent or client, which says under which name."""
        return SimDialer(self, caller)

    def callers(self) -> list[str]:
        """Everyone who has dialled, by name."""
        return sorted({caller for caller, _ in self._ways})

    def links(self, caller: str = "", server: int = 0) -> list[Link]:
        """Connections that somebody still uses; an empty name and 0 stand for all."""
        return [
            link
            for link in self._links.values()
            if caller in ("", link.caller) and server in (0, link.server)
        ]

    def ways(self, caller: str, server: int) -> Ways:
        """How it goes between the two."""
        key = (caller, server)
        if key not in self._ways:
            rng = self.kernel.rng(f"channel/{caller}/{server}")
            self._ways[key] = Ways(self.delay, rng)
        return self._ways[key]

    # Faults. A pair keeps what was done to it until `heal`.

    def cut(self, caller: str, server: int) -> None:
        """Both learn at once that their connections broke; new ones are not answered."""
        self._note("cut", caller, server)
        for link in self.links(caller, server):
            link.sever()
        for way in self.ways(caller, server).both:
            way.cut = True

    def cut_silently(
        self, caller: str, server: int, *, to_server: bool = True, to_caller: bool = True
    ) -> None:
        """Nothing arrives, in one direction or both, and nobody is told."""
        self._note("silent", caller, server, to_server=to_server, to_caller=to_caller)
        ways = self.ways(caller, server)
        ways.to_server.cut = ways.to_server.cut or to_server
        ways.to_caller.cut = ways.to_caller.cut or to_caller
        for link in self.links(caller, server):
            if to_server:
                link.near.line_out.cut()
            if to_caller:
                link.far.line_out.cut()

    def slow(
        self, caller: str, server: int, delay_s: float = 0.0, bytes_per_s: float = 0.0
    ) -> None:
        """Every frame takes so much longer, and no more bytes pass than that (0: any number)."""
        self._note("slow", caller, server, delay_ms=round(delay_s * 1000), rate=bytes_per_s)
        for way in self.ways(caller, server).both:
            way.slow_s, way.bytes_per_s = delay_s, bytes_per_s

    def reset(self, caller: str, server: int) -> int:
        """Break their connections in the middle of what is under way; returns how many."""
        self._note("reset", caller, server)
        links = self.links(caller, server)
        for link in links:
            link.reset(link.near)
            link.reset(link.far)
        return len(links)

    def unplug(self, caller: str) -> None:
        """The caller's machine has lost its power. Servers notice when it answers no ping."""
        self.kernel.trace.note("channel.unplugged", caller=caller)
        for link in self.links(caller):
            link.unplug()

    def heal(self, caller: str, server: int) -> None:
        """Undo cuts and slowness between the two; what was held arrives."""
        self._note("healed", caller, server)
        ways = self.ways(caller, server)
        for way in ways.both:
            way.slow_s = way.bytes_per_s = 0.0
        was_cut = [way.cut for way in ways.both]
        ways.to_server.cut = ways.to_caller.cut = False
        for link in self.links(caller, server):
            if was_cut[0]:
                link.near.line_out.flush()
            if was_cut[1]:
                link.far.line_out.flush()

    def heal_all(self) -> None:
        """Undo everything between all pairs, and forget the rules."""
        self.rules.clear()
        for (caller, server), ways in self._ways.items():
            if any(way.cut or way.slow_s or way.bytes_per_s for way in ways.both):
                self.heal(caller, server)

    def delay_rule(self, rule: Rule) -> Callable[[], None]:
        """Hold up single messages, and with each what follows it on its connection. The function
        returned takes the rule away."""
        self.rules.append(rule)

        def remove() -> None:
            with suppress(ValueError):  # `heal_all` was faster.
                self.rules.remove(rule)

        return remove

    # For links

    def open(self, caller: str, server: int) -> Link:
        """An attempt, by the process that is running."""
        self.opened += 1
        link = self._links[self.opened] = Link(self, self.opened, caller, server)
        return link

    def extra_s(self, caller: str, message: ToServer | ToClient) -> float:
        """By how much the rules hold up this message."""
        return sum(rule(caller, message) or 0.0 for rule in list(self.rules))

    def watch(self, process: SimProcess) -> None:
        """Its connections break when it dies."""
        if process not in self._watched:
            self._watched[process] = None
            process.on_death.append(lambda: self._died(process))

    def forget(self, link: Link) -> None:
        if self._links.pop(link.number, None) is not None:
            self.kernel.trace.note(
                "channel.over", link=link.number, near=link.near.over, far=link.far.over
            )

    def _died(self, process: SimProcess) -> None:
        del self._watched[process]
        for link in self.links():
            link.died(process)

    def _note(self, what: str, caller: str, server: int, **facts: object) -> None:
        self.kernel.trace.note(f"channel.{what}", caller=caller, server=server, **facts)


class SimDialer:
    """See coord.client.channel.Dialer. Servers are `http://sim-<number>`."""

    def __init__(self, channels: Channels, caller: str) -> None:
        self.caller = caller
        self._channels = channels

    async def dial(self, server: str, hello: Hello, timeout_s: float) -> SimChannel:
        found = _URL.match(server)
        if found is None:
            raise ChannelClosed(f"{server} cannot be reached: no such server")
        link = self._channels.open(self.caller, int(found[1]))
        channel = SimChannel(server, self._channels, link)
        try:
            async with asyncio.timeout(timeout_s):
                await link.near.opened()
                await channel.greet(hello)
        except TimeoutError as error:
            link.give_up()
            raise ChannelClosed(f"{server} did not answer within {timeout_s:g} s") from error
        except ConnectionError as error:
            link.give_up()
            raise ChannelClosed(f"{server} cannot be reached: {error}") from error
        except BaseException:
            await channel.close()
            raise
        return channel

    async def close(self) -> None:
        """Nothing is shared."""


class SimChannel:
    """See coord.client.channel.Channel."""

    def __init__(self, server: str, channels: Channels, link: Link) -> None:
        self.server = server
        self.welcome = Welcome(cluster="", node=0)
        self._channels = channels
        self._caller = link.caller
        self._end = link.near

    async def greet(self, hello: Hello) -> None:
        """From Hello to Welcome."""
        await self.send(hello)
        first = await self.receive()
        if not isinstance(first, Welcome):
            raise ChannelClosed(f"{self.server} answered Hello with {type(first).__name__}")
        self.welcome = first

    async def send(self, message: ToServer) -> None:
        frames = frames_of(message)
        extra_s = 0.0
        if self._channels.rules:
            extra_s = self._channels.extra_s(self._caller, message)
        for frame in frames:
            try:
                await self._end.send(frame, extra_s)
            except ConnectionError as error:
                raise ChannelClosed(f"{self.server} went away: {error}") from error

    async def receive(self) -> ToClient:
        frame = await self._end.receive()
        if frame is None:
            raise ChannelClosed(f"{self.server} closed the connection: {self._end.over}")
        try:
            message = decode_to_client(frame)
        except MalformedMessage as error:
            raise ChannelClosed(f"{self.server} sent a malformed message: {error}") from error
        if isinstance(message, Refused):
            raise ChannelRefused(self.server, message)
        return message

    async def close(self) -> None:
        with suppress(TimeoutError):  # The server hangs, or the way to it is cut.
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._end.close()


def pairs(callers: Iterable[str], servers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Every caller with every server, for faults that befall many."""
    numbers = list(servers)
    return ((caller, number) for caller in callers for number in numbers)
