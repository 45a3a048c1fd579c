"""/v1/channel: a conversation with an agent or a client over WebSocket, one message a frame."""

from __future__ import annotations

from aiohttp import WSMsgType, web

from coord.api.conversation import PING_S, converse
from coord.api.errors import ApiError
from coord.api.keys import NODE

routes = web.RouteTableDef()


@routes.get("/v1/channel")
async def channel(request: web.Request) -> web.WebSocketResponse:
    node = request.app[NODE]
    # A message beyond our limit but within aiohttp's can still be answered with a reason.
    socket = web.WebSocketResponse(
        heartbeat=PING_S,
        compress=False,
        max_msg_size=2 * node.config.limits.message_bytes,
    )
    if not socket.can_prepare(request):
        raise ApiError(400, "no_websocket", "/v1/channel is a WebSocket; ask for an Upgrade to it")
    await socket.prepare(request)
    await converse(node, WebSocketConnection(socket, request.remote))
    return socket


class WebSocketConnection:
    """See Connection. Pings, and their want of an answer, are aiohttp's."""

    def __init__(self, socket: web.WebSocketResponse, peer: str | None) -> None:
        self.peer = peer
        self._socket = socket

    @property
    def closed(self) -> bool:
        return self._socket.closed

    async def receive(self) -> bytes | str | None:
        frame = await self._socket.receive()
        if frame.type is WSMsgType.BINARY or frame.type is WSMsgType.TEXT:
            data: bytes | str = frame.data
            return data
        return None

    async def send(self, frame: bytes) -> None:
        await self._socket.send_bytes(frame)

    async def close(self) -> None:
        await self._socket.close()
