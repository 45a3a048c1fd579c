"""The aiohttp application of one server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from coord.api import (
    channel,
    cluster,
    events,
    health,
    hosts,
    jobs,
    logs,
    maintenance,
    queues,
    topology,
)
from coord.api.errors import errors_as_json, note_begun
from coord.api.keys import NODE, ORIGINS, PEER_HTTP, OriginSource
from coord.node.node import Node

SERVERS_HEADER = "Coord-Servers"
FAMILIES = (
    channel,
    cluster,
    events,
    health,
    hosts,
    jobs,
    logs,
    maintenance,
    queues,
    topology,
)


def make_app(node: Node, boot: str) -> web.Application:
    """`boot` must differ between two lives of the same node (see OriginSource)."""
    app = web.Application(
        middlewares=[errors_as_json], client_max_size=node.config.limits.job_bytes
    )
    app[NODE] = node
    app[ORIGINS] = OriginSource(node.config.node, boot)
    app.on_response_prepare.extend([_name_servers, note_begun])
    for family in FAMILIES:
        app.add_routes(family.routes)
    app.cleanup_ctx.append(_peer_http)
    return app


async def _name_servers(request: web.Request, response: web.StreamResponse) -> None:
    """Tell every client whom else to ask, so that one address is enough to begin with."""
    members = request.app[NODE].status.members
    addresses = [member.api_address for member in members if member.api_address]
    if addresses:
        response.headers[SERVERS_HEADER] = ",".join(addresses)


async def _peer_http(app: web.Application) -> AsyncIterator[None]:
    app[PEER_HTTP] = aiohttp.ClientSession()
    yield
    await app[PEER_HTTP].close()
