"""What the application's handlers share."""

from __future__ import annotations

from itertools import count

import aiohttp
from aiohttp import web

from coord.model.entry import Origin
from coord.node.node import Node

NODE: web.AppKey[Node] = web.AppKey("node", Node)


class OriginSource:
    """Numbers the requests that carry no key of their own. `boot` differs between two lives of a
    server, so that no number is used twice."""

    def __init__(self, node: int, boot: str) -> None:
        self._actor = f"client:api-{node}-{boot}"
        self._numbers = count(1)

    def origin(self, key: str, seen_index: int) -> Origin:
        """With a key, the same origin for ever: however often it comes, it has one effect."""
        if key:
            return Origin(f"client:key:{key}", 0, 1, seen_index)
        return Origin(self._actor, 0, next(self._numbers), seen_index)


ORIGINS: web.AppKey[OriginSource] = web.AppKey("origins", OriginSource)
PEER_HTTP: web.AppKey[aiohttp.ClientSession] = web.AppKey("peer_http", aiohttp.ClientSession)
"""For what only another server can answer."""
