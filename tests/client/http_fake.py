"""Servers on real sockets over the cluster in memory: the channel and the endpoints read here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from coord.codec import decode_to_server, encode_to_client
from coord.model.channel import Hello, Refused

from .fake import FakeCluster, FakeServer, FakeSession


class HttpServer:
    """One FakeServer behind aiohttp. `fail` makes every request answer with that status."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.fail: tuple[int, dict[str, Any]] | None = None
        self.first_index = 1
        self.lag = 0
        """Entries that this server does not have yet."""
        self.requests: list[web.Request] = []
        self.cut_after_bytes = 0
        """Break an export off after so many bytes."""
        self.garbled = False
        """Say something else in the middle of an export, and then nothing."""
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        app = web.Application()
        app.on_response_prepare.append(self._name_servers)
        app.router.add_get("/v1/channel", self._channel)
        app.router.add_get("/v1/incident.log", self._export)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        address = site._server.sockets[0].getsockname()  # type: ignore[union-attr]
        self._port = address[1]
        self.server.url = f"http://127.0.0.1:{self._port}"
        self.server.up = True

    async def stop(self) -> None:
        self.server.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _name_servers(self, request: web.Request, response: web.StreamResponse) -> None:
        urls = [url.removeprefix("http://") for url in self.server.cluster.urls]
        response.headers["Coord-Servers"] = ",".join(urls)

    async def _channel(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        hello = decode_to_server((await socket.receive()).data)
        assert isinstance(hello, Hello)
        cluster = self.server.cluster
        if hello.cluster not in ("", cluster.name):
            refused = Refused("wrong_cluster", f"this is {cluster.name}")
            await socket.send_bytes(encode_to_client(refused))
            return socket
        session = self.server.attach(hello)
        await socket.send_bytes(encode_to_client(self.server.welcome()))
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(self._send(session, socket))
            while (frame := await socket.receive()).type is WSMsgType.BINARY:
                self.server.handle(session, decode_to_server(frame.data))
            session.cut()
            sender.cancel()
        return socket

    async def _send(self, session: FakeSession, socket: web.WebSocketResponse) -> None:
        while (message := await session.inbox.get()) is not None:
            await socket.send_bytes(encode_to_client(message))
        await socket.close()

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        cluster = self.server.cluster
        index = cluster.state.meta.applied_index - self.lag
        if self.server.mute:
            await asyncio.Event().wait()
        if self.fail is not None:
            status, error = self.fail
            return _json({"error": error, "applied_index": index}, status)
        if request.path == "/v1/cluster":
            return _json(
                {"cluster": cluster.name, "node": self.server.node, "leader": 1}, 200, index
            )
        if request.path == "/v1/events":
            return await self._events(request)
        if request.method != "GET":
            return _json({}, 200, index)
        error = {"code": "unknown_path", "message": f"no such path: {request.path}"}
        return _json({"error": error}, 404)

    async def _events(self, request: web.Request) -> web.Response:
        cluster = self.server.cluster
        start = int(request.query["from"])
        if start < self.first_index:
            error = {
                "code": "events_gone",
                "message": "no longer kept",
                "first_index": self.first_index,
            }
            return _json({"error": error}, 410)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + int(request.query["wait_ms"]) / 1000
        while True:
            index = cluster.state.meta.applied_index - self.lag
            events = cluster.records[start - 1 : index][: int(request.query["limit"])]
            if events or loop.time() >= deadline_s or not self.server.up:
                break
            await asyncio.sleep(0.005)
        content = {
            "events": events,
            "next": start + len(events),
            "first_index": self.first_index,
        }
        return _json(content, 200, index)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        response = web.StreamResponse()
        if not self.garbled:
            response.content_length = 100_000
        await response.prepare(request)
        await response.write(b"x" * (self.cut_after_bytes or 100_000))
        if self.garbled and request.transport is not None:
            await response.drain()
            request.transport.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
            await asyncio.Event().wait()
        if self.cut_after_bytes and request.transport is not None:
            await response.drain()
            request.transport.abort()
        return response


def _json(content: dict[str, Any], status: int, index: int = 0) -> web.Response:
    body = msgspec.json.encode({**content, "applied_index": index})
    return web.Response(status=status, body=body, content_type="application/json")


@contextlib.asynccontextmanager
async def http_cluster(nodes: int = 3) -> AsyncIterator[tuple[FakeCluster, list[HttpServer]]]:
    """Servers that listen on free ports, stopped at the end."""
    cluster = FakeCluster(nodes)
    servers = [HttpServer(server) for server in cluster.servers]
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            await server.start()
            stack.push_async_callback(server.stop)
        yield cluster, servers
