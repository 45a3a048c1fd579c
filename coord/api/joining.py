"""A server that is not a member yet learns from the leader who the members are.

Until it knows, nothing of it runs but this: `POST /v1/cluster/join`, which the leader asks before
it adds the server. Without that knowledge it would count itself as a majority.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import msgspec
from aiohttp import web

from coord.raft.ports import Member

JOIN_PATH = "/v1/cluster/join"


class JoinBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the leader says: of which cluster, to which server, and who the members are, with the
    server itself as it is to be added (which leaders of an earlier release left out)."""

    cluster: str
    node: int
    members: tuple[Member, ...]


def join_problem(body: JoinBody, cluster: str, node: int) -> str:
    """Why this server will not join; empty when it may."""
    if body.cluster != cluster:
        return f"this server waits to join cluster {cluster!r}, not {body.cluster!r}"
    if body.node != node:
        return f"this server is node {node}, not {body.node}"
    return ""


class WaitingRoom:
    """The little that listens meanwhile, on a copy of the API's socket."""

    def __init__(self, cluster: str, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self._members: asyncio.Future[tuple[Member, ...]] = (
            asyncio.get_running_loop().create_future()
        )

    async def wait(
        self, api_socket: socket.socket, api_ssl: ssl.SSLContext | None, stop: asyncio.Event
    ) -> tuple[Member, ...]:
        """The members, once the leader has said; empty when `stop` was set first."""
        app = web.Application()
        app.router.add_post(JOIN_PATH, self._join)
        app.router.add_get("/livez", self._alive)
        app.router.add_route("*", "/{path:.*}", self._not_yet)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        waking = asyncio.create_task(self._give_up_on(stop))
        try:
            await web.SockSite(runner, api_socket.dup(), ssl_context=api_ssl).start()
            return await self._members
        finally:
            waking.cancel()
            await asyncio.gather(waking, return_exceptions=True)
            await runner.cleanup()

    async def _give_up_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        if not self._members.done():
            self._members.set_result(())

    async def _join(self, request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await request.read(), type=JoinBody)
        except msgspec.DecodeError as error:
            return _answer(400, "invalid", f"the body is no JoinBody: {error}")
        problem = join_problem(body, self._cluster, self._node)
        if problem:
            return _answer(409, "wrong_server", problem)
        if not self._members.done():
            self._members.set_result(body.members)
        return web.json_response({"node": self._node})

    async def _alive(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "applied_index": 0})

    async def _not_yet(self, request: web.Request) -> web.Response:
        return _answer(
            503,
            "not_ready",
            f"node {self._node} waits to be added to the cluster: `coordctl cluster add`",
        )


def _answer(status: int, code: str, message: str) -> web.Response:
    error = {
        "code": code,
        "message": message,
        "may_have_happened": False,
        "leader": "",
        "retry_after_ms": 0,
    }
    return web.json_response({"error": error, "applied_index": 0}, status=status)
