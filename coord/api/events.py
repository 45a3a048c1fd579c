"""/v1/events and the export of a span of the log as an incident file"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import msgspec
from aiohttp import web

from coord import __version__
from coord.api.errors import ApiError
from coord.api.exchange import answer, fresh, integer, whole_number
from coord.api.keys import NODE
from coord.core.machine import apply
from coord.core.state import encode_state
from coord.model.entry import Recorded
from coord.node.machine import base_state_of
from coord.node.node import Node
from coord.store.incident import IncidentEncoder, IncidentFormat, incident_header

PAGE_LIMIT = 5_000
WAIT_LIMIT_MS = 60_000
KEEPALIVE_S = 15.0
EXPORT_CHUNK = 1_000

routes = web.RouteTableDef()


@routes.get("/v1/events")
async def read_events(request: web.Request) -> web.Response:
    """A page; with `wait_ms`, held open until there is something."""
    node = request.app[NODE]
    start = integer(request, "from", 0)
    limit = integer(request, "limit", 100, least=1, most=PAGE_LIMIT)
    wait_ms = integer(request, "wait_ms", 0, most=WAIT_LIMIT_MS)
    if not wait_ms or start <= node.events.last_index:
        await fresh(request)
    _check_kept(node, start)
    start = max(start, node.events.first_index)
    if wait_ms and start > node.events.last_index:
        await node.events.wait_beyond(start - 1, wait_ms / 1_000)
    events = await node.events.fetch(start, limit)
    following = events[-1].entry.index + 1 if events else start
    return answer(
        request, {"events": events, "next": following, "first_index": node.events.first_index}
    )


@routes.get("/v1/events/stream")
async def stream_events(request: web.Request) -> web.StreamResponse:
    """Server-sent events, one entry each, its index as the id; goes on after Last-Event-ID."""
    node = request.app[NODE]
    await fresh(request)
    start = integer(request, "from", node.events.last_index + 1)
    last_seen = request.headers.get("Last-Event-ID", "")
    if last_seen:
        start = whole_number("Last-Event-ID", last_seen) + 1
    _check_kept(node, start)
    at = max(start, node.events.first_index)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    while not node.failed:
        events = await node.events.fetch(at, PAGE_LIMIT // 10)
        if events:
            at = events[-1].entry.index + 1
            await response.write(b"".join(_server_sent(record) for record in events))
        elif not await node.events.wait_beyond(at - 1, KEEPALIVE_S):
            await response.write(b": nothing new\n\n")
    return response


def _server_sent(record: Recorded) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (record.entry.index, msgspec.json.encode(record))


@routes.get("/v1/incident.log")
async def export_incident(request: web.Request) -> web.StreamResponse:
    """Entries `from` to `to`, both included, with the state before them, in constant memory."""
    node = request.app[NODE]
    await fresh(request)
    first, last = node.events.first_index, node.events.last_index
    start = integer(request, "from", first, least=1)
    stop = integer(request, "to", last, most=last) + 1
    try:
        file_format = IncidentFormat(request.query.get("format", IncidentFormat.BINARY))
    except ValueError:
        known = ", ".join(IncidentFormat)
        raise ApiError(
            400, "invalid", f"format is {request.query['format']!r}; it must be one of {known}"
        ) from None
    _check_kept(node, start)
    if start >= stop:
        raise ApiError(
            400, "invalid", f"from {start} to {stop - 1} holds no entry; the last is {last}"
        )
    encoder = await _encoder(node, start, file_format)
    response = web.StreamResponse(
        headers={
            "Content-Type": "application/octet-stream",
            "Content-Disposition": 'attachment; filename="incident.log"',
        }
    )
    await response.prepare(request)
    await response.write(encoder.begin())
    for at in range(start, stop, EXPORT_CHUNK):
        records = node.events.store.scan(at, min(at + EXPORT_CHUNK, stop))
        await response.write(await asyncio.to_thread(_encode, encoder, records))
    await response.write(encoder.end())
    return response


async def _encoder(node: Node, start: int, file_format: IncidentFormat) -> IncidentEncoder:
    """Replays from the base state to where the file begins, in a worker."""
    store = node.events.store
    meta = node.state.meta
    cluster, logic_version = meta.cluster, meta.logic_version
    start_state = store.base_state()
    if start > store.first_index:
        records = store.scan(store.first_index, start)
        start_state = await asyncio.to_thread(_advance, start_state, records)
    header = incident_header(cluster, start, start_state, __version__, logic_version)
    return IncidentEncoder(header, file_format)


def _advance(base: bytes, records: Iterator[Recorded]) -> bytes:
    state = base_state_of(base)
    for record in records:
        apply(state, record.entry)
    return encode_state(state)


def _encode(encoder: IncidentEncoder, records: Iterator[Recorded]) -> bytes:
    return b"".join([encoder.record(record) for record in islice(records, EXPORT_CHUNK)])


def _check_kept(node: Node, start: int) -> None:
    first = node.events.first_index
    if 0 < start < first:
        raise ApiError(
            410,
            "events_gone",
            f"entry {start} is no longer kept; the oldest is {first}. Ask from there on, or "
            "another server",
            extra={"first_index": first},
        )
