"""Real HTTP servers on loopback over nodes in memory."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from typing import Any, Self

import aiohttp
from aiohttp import web

from coord.api.app import make_app
from coord.codec import decode_to_client, encode_to_server
from coord.model.channel import Hello, Results, Submit, ToClient, ToServer
from coord.node.node import Node
from coord.raft.memory import InMemoryHub
from coord.raft.ports import Member
from tests.node.cluster import Cluster


def listening_socket() -> socket.socket:
    """On a port that the system chose."""
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()
    made.setblocking(False)
    return made


class Served(Cluster):
    """A cluster with an API server for each node, and an HTTP client."""

    def __init__(self, size: int = 1, **options: Any) -> None:
        self._sockets = [listening_socket() for _ in range(size)]
        members = [
            Member(number, f"peer-{number}:1", f"127.0.0.1:{made.getsockname()[1]}")
            for number, made in enumerate(self._sockets, 1)
        ]
        super().__init__(size, hub=InMemoryHub(members), **options)
        self.urls = {member.node: f"http://{member.api_address}" for member in members}
        self._stack = AsyncExitStack()
        self.http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.http = await self._stack.enter_async_context(aiohttp.ClientSession())
        for number, made in enumerate(self._sockets, 1):
            runner = web.AppRunner(
                make_app(self.nodes[number], f"boot{number}"), access_log=None, shutdown_timeout=1
            )
            await runner.setup()
            self._stack.push_async_callback(runner.cleanup)
            await web.SockSite(runner, made).start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for node in self.nodes.values():
            await node.end_conversations()
        await self._stack.aclose()
        await super().__aexit__(*error)
        for made in self._sockets:
            made.close()

    def url(self, path: str, node: Node | None = None) -> str:
        return self.urls[(node or self.leader).config.node] + path

    async def get(
        self, path: str, status: int = 200, node: Node | None = None, **options: Any
    ) -> dict[str, Any]:
        async with self.http.get(self.url(path, node), **options) as answer:
            assert answer.status == status, await answer.text()
            body: dict[str, Any] = await answer.json()
            return body

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        status: int = 200,
        node: Node | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        async with self.http.request(
            method, self.url(path, node), json=body or {}, **options
        ) as answer:
            assert answer.status == status, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found

    async def dial(
        self, actor: str = "client:a", node: Node | None = None, **hello: Any
    ) -> Conversation:
        socket = await self.http.ws_connect(
            self.url("/v1/channel", node), compress=0, max_msg_size=64 << 20
        )
        conversation = Conversation(socket)
        await conversation.send(Hello(actor, **hello))
        return conversation


class Conversation:
    """A client's side of a channel."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, message: ToServer) -> None:
        await self.socket.send_bytes(encode_to_server(message))

    async def next(self) -> ToClient:
        return decode_to_client(await self.socket.receive_bytes(timeout=5))

    async def until(self, kind: type[Any]) -> Any:
        """The next message of this kind; those before are dropped."""
        while not isinstance(message := await self.next(), kind):
            pass
        return message

    async def decided(self, submit: Submit) -> Results:
        await self.send(submit)
        found: Results = await self.until(Results)
        return found

    async def ended(self) -> bool:
        """The server has closed the connection."""
        return (await self.socket.receive(timeout=5)).type in (
            aiohttp.WSMsgType.CLOSE,
            aiohttp.WSMsgType.CLOSED,
        )
