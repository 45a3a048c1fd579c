"""/v1/channel: a conversation with an agent or a client over WebSocket, one message a frame."""

from __future__ import annotations

from aiohttp import web

from coord.api.conversation import converse
from coord.api.errors import ApiError
from coord.api.keys import NODE
from coord.listening.connection import WebSocketConnection, websocket

routes = web.RouteTableDef()


@routes.get("/v1/channel")
async def channel(request: web.Request) -> web.WebSocketResponse:
    node = request.app[NODE]
    socket = websocket(node.config.limits.message_bytes)
    if not socket.can_prepare(request):
        raise ApiError(400, "no_websocket", "/v1/channel is a WebSocket; ask for an Upgrade to it")
    await socket.prepare(request)
    await converse(node, WebSocketConnection(socket, request.remote))
    return socket
