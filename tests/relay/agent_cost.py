"""What a relay costs its process a beat: `python -m tests.relay.agent_cost [AGENTS] [PERIODS]`.

The relay runs alone in a process of its own behind real sockets; agents are this process's, and so
is the server, which decides at once. Process time of the relay between two readings, over beats.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import resource
import sys
import time
from typing import Any

import aiohttp
from aiohttp import web

from coord.codec import decode_to_client, decode_to_server, encode_to_client, encode_to_server
from coord.model.channel import (
    Beat,
    Hello,
    RelayBeatsSeen,
    RelayDown,
    RelayUp,
    Welcome,
)
from coord.model.settings import Settings
from coord.relay.config import RelayConfig
from coord.relay.server import run_relay

PERIOD_MS = 3_300
SETTINGS = Settings(lease_ms=10_000, heartbeat_ms=PERIOD_MS, suspect_ms=6_600)


def relay_process(server: str, pipe: Any) -> None:
    """Tells its URL, then its process time and greatest memory whenever asked."""

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def asked() -> None:
            if pipe.recv() == "stop":
                stop.set()
            else:
                pipe.send((time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))

        loop.add_reader(pipe.fileno(), asked)
        config = RelayConfig(servers=(server,), name="r1", listen="127.0.0.1:0")
        await run_relay(config, stop, ready=pipe.send, handle_signals=False)

    asyncio.run(serve())


class Server:
    """Decides at once, and counts bytes of what would stand in the log."""

    def __init__(self) -> None:
        self.frames = 0
        self.frame_bytes = 0
        self.excepted = 0

    async def accept(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        await socket.receive()
        await socket.send_bytes(encode_to_client(Welcome("bench", 1, 1, "", 1, SETTINGS)))
        async for frame in socket:
            up = decode_to_server(frame.data)
            assert isinstance(up, RelayUp)
            for beats in up.beats:
                self.frames += len(beats.heard)
                self.frame_bytes += len(encode_to_server(RelayUp(beats=(beats,))))
                self.excepted += sum(len(one.except_slots) for one in beats.heard)
            seen = [RelayBeatsSeen(b.relay, b.incarnation, b.sequence, 1) for b in up.beats]
            if seen:
                await socket.send_bytes(encode_to_client(RelayDown((), tuple(seen))))
        return socket


async def agent(
    session: aiohttp.ClientSession, url: str, slot: int, counts: dict[str, int], rng: random.Random
) -> None:
    socket = await session.ws_connect(f"{url}/v1/channel", compress=0)
    await socket.send_bytes(encode_to_server(Hello(f"host:h{slot}")))
    await socket.receive()
    loop = asyncio.get_running_loop()
    due_s = loop.time() + rng.uniform(0, PERIOD_MS / 1000)
    sequence = 0

    async def read() -> None:
        async for frame in socket:
            decode_to_client(frame.data)
            counts["seen"] += 1

    reading = asyncio.create_task(read())
    try:
        while True:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            due_s += PERIOD_MS / 1000
            sequence += 1
            await socket.send_bytes(encode_to_server(Beat(slot, 1, 0, sequence)))
            counts["sent"] += 1
    finally:
        reading.cancel()


async def measure(agents: int, periods: int) -> None:
    server = Server()
    app = web.Application()
    app.router.add_get("/v1/channel", server.accept)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=relay_process, args=(f"http://127.0.0.1:{port}", there), daemon=True
    )
    process.start()
    loop = asyncio.get_running_loop()
    url = await loop.run_in_executor(None, here.recv)
    await asyncio.sleep(1)
    counts = {"sent": 0, "seen": 0}
    rng = random.Random(1)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        running = [
            asyncio.create_task(agent(session, url, slot, counts, rng)) for slot in range(agents)
        ]
        await asyncio.sleep(3 * PERIOD_MS / 1000)
        per_beat = []
        for _ in range(periods):
            before_s, beats, seen = await _ask(here), counts["sent"], counts["seen"]
            frames, size_bytes = server.frames, server.frame_bytes
            await asyncio.sleep(PERIOD_MS / 1000)
            after_s = await _ask(here)
            beats = counts["sent"] - beats
            per_beat.append((after_s[0] - before_s[0]) * 1e6 / beats)
            print(
                f"{beats} beats, {counts['seen'] - seen} acknowledged: {per_beat[-1]:.1f} us of "
                f"relay CPU a beat; {server.frames - frames} frames, "
                f"{(server.frame_bytes - size_bytes) / beats:.3f} bytes a beat upwards"
            )
        per_beat.sort()
        print(
            f"{agents} agents: median {per_beat[len(per_beat) // 2]:.1f} us of process time a beat "
            f"({per_beat[0]:.1f} to {per_beat[-1]:.1f}); {after_s[1] / 1024:.0f} MiB at most; "
            f"{server.excepted} exceptions"
        )
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    here.send("stop")
    process.join(10)
    await runner.cleanup()


async def _ask(pipe: Any) -> tuple[float, int]:
    pipe.send("time")
    found: tuple[float, int] = await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    return found


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    asyncio.run(measure(*(given + [1_000, 7][len(given) :])))
