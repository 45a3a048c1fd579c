"""Many agents in one process, as little of each as the channel's protocol needs.

Run as a program it connects and registers its agents, beats for them, and obeys one JSON object a
line on its standard input; it answers each with one on its standard output (`crowd.py`). Times are
those of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from coord.codec import encode_to_server
from coord.model.channel import Hello, Submit
from coord.model.entry import Origin, Submission
from coord.model.events import AnyEvent, HostRegistered, TaskReaped
from coord.pb import channel_pb2
from tests.bench.etcd.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    Frames,
    address_of,
    masked,
    upgrade_request,
)

CONNECTING = 64
"""Agents that connect and register at once."""
AGAIN_S = 0.5
DEVICES = 8


class Agent(asyncio.Protocol):
    """One host: its connection, its lease and the plans it got."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd = crowd
        self.number = number
        self.host = f"host-{number:06}"
        self.incarnation = 0
        self.last_beat_s = 0.0
        self.dead = False
        self.registered = asyncio.Event()
        self._server = number
        self._slot = 0
        self._sequence = 0
        self._reports = 0
        self._sent_s: dict[int, float] = {}
        self._transport: asyncio.Transport | None = None
        self._welcomed = False
        self._frames = Frames()

    async def connect(self) -> None:
        """To the next server; again and again until one takes us."""
        loop = asyncio.get_running_loop()
        while not self.dead and not self.crowd.ending:
            host, port = address_of(self.crowd.urls[self._server % len(self.crowd.urls)])
            self._server += 1
            try:
                await loop.create_connection(lambda: self, host, port)
                return
            except OSError:
                await asyncio.sleep(random.uniform(0.05, AGAIN_S))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames = Frames()
        self._sent_s.clear()
        transport.write(upgrade_request())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._welcomed = False
        if self.crowd.ending or self.dead:
            return
        self.crowd.lost += 1
        wait_s = random.uniform(0.05, AGAIN_S)
        asyncio.get_running_loop().call_later(wait_s, lambda: self.crowd.start(self.connect()))

    def data_received(self, data: bytes) -> None:
        if self.dead:
            return
        for opcode, payload in self._frames.feed(data):
            if opcode == BINARY:
                self._on_message(channel_pb2.ToClient.FromString(payload))
            elif opcode == PING:
                self._write(masked(PONG, payload))
            elif opcode == CLOSE and self._transport is not None:
                self._transport.close()
        if self._frames.just_upgraded:
            self._frames.just_upgraded = False
            self._write(masked(BINARY, encode_to_server(Hello(f"host:{self.host}"))))

    def _on_message(self, message: channel_pb2.ToClient) -> None:
        kind = message.WhichOneof("kind")
        if kind == "beat_seen":
            sent_s = self._sent_s.pop(message.beat_seen.sequence, None)
            self._sent_s.clear()
            if sent_s is not None:
                self.crowd.seen(time.monotonic() - sent_s)
        elif kind == "host_plan":
            self.crowd.on_plan(self, message.host_plan)
        elif kind == "results":
            for result in message.results.results:
                self._on_result(result)
        elif kind == "welcome":
            self._welcomed = True
            self._beat() if self.incarnation else self._register()
        elif kind == "refused":
            code = message.refused.code
            self.crowd.refused[code] = self.crowd.refused.get(code, 0) + 1
            self.dead = code == "stale_incarnation"

    def _register(self) -> None:
        """Counts as the first beat: the lease runs from when it was sent, or a little later."""
        self.last_beat_s = time.monotonic()
        event = HostRegistered(self.host, self.host, "boot", "127.0.0.1", devices=DEVICES)
        self._submit(Origin(f"client:{self.host}", 0, 1), event)

    def _on_result(self, result: channel_pb2.Result) -> None:
        if self.incarnation:
            return  # A report's.
        if result.outcome != "committed" or result.rejection:
            asyncio.get_running_loop().call_later(AGAIN_S, self._register)
            return
        self._slot, self.incarnation = result.slot, result.result
        period_s = self.crowd.period_s
        asyncio.get_running_loop().call_later(random.uniform(0, period_s), self._keep_beating)
        self.registered.set()

    def _keep_beating(self) -> None:
        if self.dead or self.crowd.ending:
            return
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + self.crowd.period_s, self._keep_beating)
        self._beat()

    def _beat(self) -> None:
        if not self._welcomed:
            return
        self._sequence += 1
        self.last_beat_s = self._sent_s[self._sequence] = time.monotonic()
        beat = channel_pb2.Beat(
            slot=self._slot, incarnation=self.incarnation, sequence=self._sequence
        )
        self._write(masked(BINARY, channel_pb2.ToServer(beat=beat).SerializeToString()))
        self.crowd.sent += 1

    def reap(self, task: str) -> None:
        """Report that nothing of a task is left, so that its devices are free."""
        self._reports += 1
        origin = Origin(f"host:{self.host}", self.incarnation, self._reports)
        self._submit(origin, TaskReaped(self.host, self.incarnation, task))

    def _submit(self, origin: Origin, event: AnyEvent) -> None:
        self._write(masked(BINARY, encode_to_server(Submit((Submission(origin, event),)))))

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def fall_silent(self) -> float:
        """Die as a machine does, with its connection open; when it last beat."""
        self.dead = True
        return self.last_beat_s

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """All agents of this process, and what the benchmark asks of them."""

    def __init__(self, urls: list[str], first: int, agents: int, period_s: float) -> None:
        self.urls = urls
        self.period_s = period_s
        self.agents = {number: Agent(self, number) for number in range(first, first + agents)}
        self.sent = self.lost = 0
        self.refused: dict[str, int] = {}
        self.ending = False
        self._seen_s: list[float] = []
        self._awaited = ""
        self._got_s: dict[int, float] = {}
        self._got_all = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def seen(self, took_s: float) -> None:
        self._seen_s.append(took_s)

    def on_plan(self, agent: Agent, plan: channel_pb2.HostPlan) -> None:
        """Of the action awaited the first time counts; what is to stop has ended at once."""
        now_s = time.monotonic()
        for order in plan.tasks:
            if order.action == self._awaited and agent.number not in self._got_s:
                self._got_s[agent.number] = now_s
                if len(self._got_s) == len(self.agents):
                    self._got_all.set()
            if order.action == "stop":
                agent.reap(order.task)

    # What the benchmark asks for

    async def connect(self) -> dict[str, Any]:
        """Every agent connected and registered."""
        began_s = time.monotonic()
        gate = asyncio.Semaphore(CONNECTING)

        async def one(agent: Agent) -> None:
            async with gate:
                await agent.connect()
                await agent.registered.wait()

        await asyncio.gather(*(one(agent) for agent in self.agents.values()))
        return {"connect_s": time.monotonic() - began_s}

    async def window(self, seconds: float) -> dict[str, Any]:
        """Beats that were acknowledged meanwhile, how fast, and what they cost here."""
        self._seen_s.clear()
        self.sent = self.lost = 0
        began_s, cpu_s = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        seen = sorted(self._seen_s)
        return {
            "seen": len(seen),
            "sent": self.sent,
            "lost": self.lost,
            "wall_s": time.monotonic() - began_s,
            "cpu_s": time.process_time() - cpu_s,
            "p50_ms": 1_000 * seen[len(seen) // 2] if seen else 0.0,
            "p99_ms": 1_000 * seen[len(seen) * 99 // 100] if seen else 0.0,
        }

    async def expect(self, action: str) -> dict[str, Any]:
        """From now on note when plans with this action arrive."""
        self._awaited = action
        self._got_s.clear()
        self._got_all.clear()
        return {}

    async def arrived(self, seconds: float) -> dict[str, Any]:
        """When the plans expected had arrived at all: the last and the middle one of them."""
        async with asyncio.timeout(seconds):
            await self._got_all.wait()
        times = sorted(self._got_s.values())
        return {"last_s": times[-1], "middle_s": times[len(times) // 2], "agents": len(times)}

    async def die(self, agents: list[int]) -> dict[str, Any]:
        """These beat no more; when each last did, by host."""
        own = [self.agents[number] for number in agents if number in self.agents]
        return {"last_beats": {agent.host: agent.fall_silent() for agent in own}}

    async def state(self) -> dict[str, Any]:
        alive = sum(not agent.dead for agent in self.agents.values())
        return {"alive": alive, "lost": self.lost, "refused": self.refused}

    def leave(self) -> None:
        self.ending = True
        for agent in self.agents.values():
            agent.leave()


async def obey(crowd: Crowd) -> None:
    """Until the input ends, which it does with whoever started us."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    commands: dict[str, Callable[..., Any]] = {
        "connect": crowd.connect,
        "window": crowd.window,
        "expect": crowd.expect,
        "arrived": crowd.arrived,
        "die": crowd.die,
        "state": crowd.state,
    }
    while line := await reader.readline():
        asked = json.loads(line)
        try:
            answer = await commands[asked.pop("do")](**asked)
        except TimeoutError:
            answer = {"error": f"not within the time: {asked}; got {len(crowd._got_s)}"}
        print(json.dumps(answer), flush=True)
    crowd.leave()


async def main(urls: str, first: str, agents: str, period_s: str) -> None:
    await obey(Crowd(urls.split(","), int(first), int(agents), float(period_s)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
