"""A relay process: its connections, put together, run and taken apart."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import structlog
from aiohttp import web

from coord import __version__
from coord.client.channel import Dialer, WebSocketDialer
from coord.listening.connection import WebSocketConnection, websocket
from coord.relay.config import RelayConfig
from coord.relay.downstream import converse
from coord.relay.metrics import Metrics
from coord.relay.relay import Relay
from coord.relay.upstream import Upstream

BACKLOG = 4_096
"""A thousand agents may come back at one moment."""
SHUTDOWN_S = 1.0
RELAY: web.AppKey[Relay] = web.AppKey("relay", Relay)

log = structlog.get_logger()
routes = web.RouteTableDef()


class RelayFailed(Exception):
    """The relay could not start or go on; the message says why and what to do."""


async def run_relay(
    config: RelayConfig,
    stop: asyncio.Event,
    *,
    ready: Callable[[str], None] | None = None,
    handle_signals: bool = True,
    dialer: Dialer | None = None,
) -> int:
    """Run until `stop` is set, or SIGTERM or SIGINT comes; returns the exit code.

    `ready` is called with the URL once it listens; a server may not be reached yet. Raises
    RelayFailed.
    """
    problems = config.problems()
    if problems:
        raise RelayFailed("; ".join(problems))
    async with AsyncExitStack() as stack:
        if handle_signals:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
                stack.callback(loop.remove_signal_handler, number)
        relay = Relay(
            config, time.time_ns() // 1_000_000, asyncio.get_running_loop().time, Metrics()
        )
        listening = _listen(config)
        stack.callback(listening.close)
        dialer = dialer or WebSocketDialer(watched=config.servers)
        stack.push_async_callback(dialer.close)
        upstream = Upstream(relay, dialer, random.Random(), __version__)
        await _serve(relay, listening, stack)
        host, port = listening.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        log.info("relay_ready", name=config.name, url=url, version=__version__)
        if ready is not None:
            ready(url)
        await _until(stop, upstream)
    log.info("relay_stopped", name=config.name)
    return 0


async def _until(stop: asyncio.Event, upstream: Upstream) -> None:
    """A defect in the relay ends it: agents go elsewhere, which is what they can do best."""
    running = asyncio.create_task(upstream.run(), name="upstream")
    running.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if running.done():
        await running
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def _serve(relay: Relay, listening: socket.socket, stack: AsyncExitStack) -> None:
    app = web.Application()
    app[RELAY] = relay
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.SockSite(runner, listening, backlog=BACKLOG).start()
    stack.push_async_callback(_send_away, relay)


async def _send_away(relay: Relay) -> None:
    """Agents are told before the runner closes their connections."""
    relay.welcome = None
    relay.refuse_all("stopping", "this relay is stopping; connect to another")
    with suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN_S):
            while relay.table.connections:  # noqa: ASYNC110 it ends with many conversations
                await asyncio.sleep(0.01)


def _listen(config: RelayConfig) -> socket.socket:
    host, _, port = config.listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, int(port)))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise RelayFailed(
            f"it is to listen at {config.listen!r}: {error.strerror or error}; is something else "
            "using that port? Stop it, or choose another with --listen"
        ) from error
    return listening


# What it serves


@routes.get("/v1/channel")
async def channel(request: web.Request) -> web.StreamResponse:
    """Conversations with agents and with relays below."""
    relay = request.app[RELAY]
    socket_ = websocket(relay.config.limits.message_bytes)
    if not socket_.can_prepare(request):
        return web.Response(status=400, text="/v1/channel is a WebSocket; ask for an Upgrade\n")
    await socket_.prepare(request)
    await converse(relay, WebSocketConnection(socket_, request.remote))
    return socket_


@routes.get("/livez")
async def alive(request: web.Request) -> web.Response:
    """The loop runs."""
    return web.json_response({"status": "ok"})


@routes.get("/readyz")
async def is_ready(request: web.Request) -> web.Response:
    """Agents that come here reach a server."""
    if not request.app[RELAY].connected:
        return web.json_response(
            {"error": {"code": "not_ready", "message": "no server is reached; are they up?"}},
            status=503,
        )
    return web.json_response({"status": "ok"})


@routes.get("/metrics")
async def metrics(request: web.Request) -> web.Response:
    """In Prometheus's exposition format."""
    relay = request.app[RELAY]
    gauge = relay.metrics.gauge
    gauge("coord_relay_upstream_connected", "1 while a server is reached", int(relay.connected))
    gauge("coord_relay_connections", "From below", len(relay.table.connections))
    gauge("coord_relay_agents", "Here and behind relays below", len(relay.table))
    gauge("coord_relay_roster_hosts", "Whose beats this relay vouches for", len(relay.beating))
    gauge("coord_relay_queue_bytes", "Reports that wait", relay.upward.size_bytes)
    return web.Response(
        body=relay.metrics.text(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
