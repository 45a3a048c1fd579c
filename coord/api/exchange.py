"""Reading requests and writing answers, the same way everywhere."""

from __future__ import annotations

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
    raw = await request.read()
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise ApiError(
            400, "invalid", f"the body is no {kind.__name__}: {_with_path(str(error))}"
        ) from error


def integer(
    request: web.Request, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1
) -> int:
    """A number of the query string; one above `most` counts as `most`."""
    text = request.query.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ApiError(400, "invalid", f"{name} is {text!r}; it must be a number from {least} on")
    return min(value, most)


def _with_path(message: str) -> str:
    """msgspec's `- at `$.roles[0]`` in our words."""
    said, separator, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.') or 'the whole'}: {said}" if separator else said
