"""What became of clients' requests, so that a repeated one is not done twice."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a client's request."""

    seq: int
    index: int
    rejection: str = ""
    result: int = 0


class RequestLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest requests of one client, by seq ascending. `floor`: all up to it are forgotten."""

    client: str
    last_used: int
    floor: int = 0
    recent: tuple[Request, ...] = ()
