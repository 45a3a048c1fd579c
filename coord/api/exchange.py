"""Reading requests and writing answers, the same way everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from coord.api.errors import ApiError, check
from coord.api.keys import NODE, ORIGINS
from coord.model.channel import Result
from coord.model.entry import Submission
from coord.model.events import AnyEvent

Body = TypeVar("Body")

KEY_LENGTH_LIMIT = 200
ACTOR_LENGTH_LIMIT = 200
WRITE_TIMEOUT_MS = 5_000
TIMEOUT_LIMIT_MS = 60_000
READ_TIMEOUT_MS = 5_000
BODY_TIMEOUT_S = 10.0
"""For a body of the largest size over a slow line; a connection must not be held for ever."""


def answer(request: web.Request, content: Mapping[str, Any], status: int = 200) -> web.Response:
    """JSON with the applied index."""
    body = {**content, "applied_index": request.app[NODE].state.meta.applied_index}
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


async def fresh(request: web.Request) -> None:
    """Let the read see everything acknowledged before it came, unless `?stale=1`."""
    if request.query.get("stale", "0") in ("", "0", "false"):
        timeout_ms = integer(request, "timeout_ms", READ_TIMEOUT_MS, least=1, most=TIMEOUT_LIMIT_MS)
        await request.app[NODE].read_index(timeout_ms / 1_000)


async def submit(request: web.Request, event: AnyEvent, subject: str) -> Result:
    """Have an event decided within `timeout_ms` of the query; ApiError unless it took effect."""
    node = request.app[NODE]
    timeout_ms = integer(request, "timeout_ms", WRITE_TIMEOUT_MS, least=1, most=TIMEOUT_LIMIT_MS)
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > KEY_LENGTH_LIMIT:
        raise ApiError(
            400,
            "invalid",
            f"Idempotency-Key has {len(key)} characters; the limit is {KEY_LENGTH_LIMIT}",
        )
    origin = request.app[ORIGINS].origin(key, node.state.meta.applied_index)
    result = await node.submit(Submission(origin, event), timeout_ms / 1_000)
    check(result, subject, node.config.limits.event_bytes)
    return result


def actor_of(request: web.Request) -> str:
    """Who asks, as they say."""
    actor = request.headers.get("X-Coord-Actor", "") or "unnamed"
    if len(actor) > ACTOR_LENGTH_LIMIT:
        raise ApiError(
            400,
            "invalid",
            f"X-Coord-Actor has {len(actor)} characters; the limit is {ACTOR_LENGTH_LIMIT}",
        )
    return actor


async def body_of(request: web.Request, kind: type[Body]) -> Body:
    """The JSON body as a struct. An error names the path of what is wrong."""
    raw = await _raw_body(request)
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise ApiError(
            400, "invalid", f"the body is no {kind.__name__}: {_with_path(str(error))}"
        ) from error


async def _raw_body(request: web.Request) -> bytes:
    """All of it; what says that it will be too large is refused before it comes."""
    limit_bytes = request.app[NODE].config.limits.job_bytes
    size_bytes = request.content_length or 0
    if size_bytes > limit_bytes:
        raise web.HTTPRequestEntityTooLarge(limit_bytes, size_bytes)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise ApiError(
            408,
            "too_slow",
            f"the body did not come within {BODY_TIMEOUT_S:g} s; nothing was done, send it again",
        ) from None
    except web.RequestPayloadError as error:
        raise ApiError(
            400, "invalid", f"the body cannot be read ({error}); nothing was done"
        ) from error


def integer(
    request: web.Request, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1
) -> int:
    """A number of the query string; one above `most` counts as `most`."""
    text = request.query.get(name, "")
    return whole_number(name, text, least, most) if text else default


def whole_number(name: str, text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A number as text; one above `most` counts as `most`."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ApiError(400, "invalid", f"{name} is {text[:40]!r}; write a number from {least} on")
    return min(value, most)


def _with_path(message: str) -> str:
    """msgspec's `- at `$.roles[0]`` in our words."""
    said, separator, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.') or 'the whole'}: {said}" if separator else said
