"""/v1/jobs/{name}/logs: a task's output, fetched from the agent that holds its files"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import msgspec
from aiohttp import ClientError, ClientTimeout, web

from coord.api.errors import ApiError
from coord.api.exchange import answer, fresh, integer
from coord.api.jobs import job_of
from coord.api.keys import NODE, PEER_HTTP
from coord.model.channel import LogChunk
from coord.model.decisions import TasksPlaced
from coord.model.entities import Job
from coord.model.entry import Recorded
from coord.model.ids import task_key
from coord.node.node import Node

READ_LIMIT_BYTES = 1024 * 1024
WAIT_LIMIT_MS = 30_000
AGENT_TIMEOUT_S = 3.0
POLL_S = 0.2

routes = web.RouteTableDef()


class _PeerChunk(msgspec.Struct):
    data: bytes
    offset: int
    exists: bool
    ended: bool


@routes.get("/v1/jobs/{name}/logs")
async def read_log(request: web.Request) -> web.StreamResponse:
    """`data` is base64; with `format=text` the bytes alone. `wait_ms` waits for more of it."""
    await fresh(request)
    node = request.app[NODE]
    job = job_of(request)
    stream = request.query.get("stream", "stdout")
    if stream not in ("stdout", "stderr"):
        raise ApiError(400, "invalid", f"stream is {stream!r}; it must be stdout or stderr")
    role = request.query.get("role", "") or job.spec.roles[0].name
    if job.spec.role(role) is None:
        raise ApiError(404, "unknown_role", f"job {job.name!r} has no role {role!r}")
    index = integer(request, "index", 0)
    generation = integer(request, "generation", 0) or _newest_generation(node, job, role, index)
    key = task_key(job.name, role, index, generation)
    host = await _host_of(node, job, key)
    reader = _Reader(request, host, key, stream)
    chunk = await reader.read(wait_ms=integer(request, "wait_ms", 0, most=WAIT_LIMIT_MS))
    if request.query.get("format") == "text":
        return web.Response(body=chunk.data, content_type="text/plain", charset="utf-8")
    return answer(
        request,
        {
            "task": key,
            "host": host,
            "data": base64.b64encode(chunk.data).decode(),
            "offset": chunk.offset,
            "next": chunk.offset + len(chunk.data),
            "exists": chunk.exists,
            "ended": chunk.ended,
        },
    )


class _Reader:
    """Reads one piece, here if the agent is connected here, else through the node that has it."""

    def __init__(self, request: web.Request, host: str, key: str, stream: str) -> None:
        self._request = request
        self._node = request.app[NODE]
        self._host = host
        self._key = key
        self._stream = stream
        self._offset = integer(request, "offset", 0)
        self._limit = integer(request, "limit", 65_536, least=1, most=READ_LIMIT_BYTES)

    async def read(self, wait_ms: int) -> LogChunk:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1_000
        while True:
            chunk = await self._once()
            if chunk.data or chunk.ended or loop.time() >= deadline:
                return chunk
            await asyncio.sleep(POLL_S)

    async def _once(self) -> LogChunk:
        session = self._node.sessions.agent_of(self._host)
        if session is not None:
            chunk = await self._node.sessions.read_log(
                session,
                self._key,
                self._stream,
                offset=self._offset,
                limit=self._limit,
                timeout_s=AGENT_TIMEOUT_S,
            )
            if chunk is not None:
                return chunk
        if self._request.query.get("local", "") != "1":
            for member in self._node.status.members:
                if member.node != self._node.config.node:
                    found = await self._from_peer(member.api_address)
                    if found is not None:
                        return found
        raise ApiError(
            503,
            "agent_away",
            f"{self._key} ran on host {self._host}, whose agent answers no server now; its files "
            "are still on that machine",
            retry_after_ms=1_000,
        )

    async def _from_peer(self, address: str) -> LogChunk | None:
        _, _, generation = self._key.rpartition("#")
        params = {
            **self._request.query,
            "generation": generation,
            "local": "1",
            "stale": "1",
            "wait_ms": "0",
            "format": "json",
        }
        url = f"http://{address}{self._request.path}"
        timeout = ClientTimeout(total=AGENT_TIMEOUT_S + 1)
        try:
            async with self._request.app[PEER_HTTP].get(
                url, params=params, timeout=timeout
            ) as answered:
                if answered.status != 200:
                    return None
                found = msgspec.json.decode(await answered.read(), type=_PeerChunk)
        except (ClientError, OSError, TimeoutError, msgspec.DecodeError):
            return None
        return LogChunk(0, found.data, found.offset, found.exists, found.ended)


def _newest_generation(node: Node, job: Job, role: str, index: int) -> int:
    for key in job.gangs:
        gang = node.state.gangs.get(key)
        if gang is not None and gang.role == role and gang.index in (-1, index):
            return gang.generation
    return job.generation


async def _host_of(node: Node, job: Job, key: str) -> str:
    """Where the task ran: from the state while it is there, else from the log."""
    task = node.state.tasks.get(key)
    if task is not None:
        return task.host
    events = node.events
    records = events.store.scan(max(job.submitted, events.first_index), events.last_index + 1)
    found = await asyncio.to_thread(_find_placement, records, job.name, key)
    if not found:
        raise ApiError(
            404, "unknown_task", f"{key} was never placed; see `coordctl job show {job.name}`"
        )
    return found


def _find_placement(records: Iterator[Recorded], job: str, key: str) -> str:
    for record in records:
        for decision in record.decisions:
            if type(decision) is TasksPlaced and decision.job == job:
                for placement in decision.placements:
                    if placement.task == key:
                        return placement.host
    return ""
