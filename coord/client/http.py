"""Requests over HTTP+JSON to whichever server answers.

Reads are asked of one server after another until the deadline. What changes something is asked
again only after a definite "not done".
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import aiohttp
import msgspec

from coord.client.backoff import Backoff
from coord.client.errors import (
    Busy,
    ClientClosed,
    CoordError,
    EventsGone,
    InvalidRequest,
    NotDone,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from coord.client.servers import ServerRing

ATTEMPT_S = 3.0
"""The most for one server to answer a read, beyond what it was asked to wait."""
ATTEMPT_SHARE = 0.5
"""Of the time for a read, for one server of several: the first must not use up all of it."""
CONNECT_S = 1.0
LAST_SHARE = 0.05
"""Of the time for a call: with less than this left, another attempt would only learn less."""
REASON_SHARE = 0.8
"""Of an attempt's time, for the server; the rest brings its answer here."""
BACKOFF_FIRST_S = 0.02
BACKOFF_LIMIT_S = 0.5
CHUNK_BYTES = 1 << 16

SERVERS_HEADER = "Coord-Servers"
"""In every answer: the API addresses of all members, with commas."""

Params = Mapping[str, str | int]
Kind = TypeVar("Kind")

_RETRIED = frozenset({429, 502, 503, 504})


class Applied(msgspec.Struct):
    """What every answer has: the log index that it reflects."""

    applied_index: int = 0


class _Problem(msgspec.Struct):
    code: str = ""
    message: str = ""
    may_have_happened: bool = False
    leader: str = ""
    retry_after_ms: int = 0
    first_index: int = 0


class _Error(msgspec.Struct):
    error: _Problem


class _Answered(Exception):
    """A server answered with an error that another attempt may not meet."""

    def __init__(self, url: str, status: int, problem: _Problem) -> None:
        super().__init__(f"{url}: {problem.message or problem.code or f'HTTP {status}'}")
        self.problem = problem


class Http:
    """Owned by one client, on its loop. Opens nothing before the first request: whoever only
    writes needs no network but the channel's."""

    def __init__(
        self,
        ring: ServerRing,
        actor: str,
        rng: random.Random,
        learn: Callable[[list[str]], None] | None = None,
    ) -> None:
        """`learn` gets the API addresses of all members, as answers name them."""
        self._ring = ring
        self._learn = learn or ring.learn
        self._learned = ""
        self._rng = rng
        self._headers = {"X-Coord-Actor": actor} if actor else {}
        self._opened: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Idempotent; requests under way fail, and later ones are refused."""
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ClientClosed
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=64),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                headers=self._headers,
            )
        return self._opened

    async def get(
        self, path: str, kind: type[Kind], params: Params, timeout_s: float, wait_ms: int = 0
    ) -> Kind:
        """A read, decoded as `kind`. `timeout_s` is beyond the `wait_ms` that the server was asked
        to wait. Raises Unavailable, NotFound, EventsGone, InvalidRequest."""
        wait_s = wait_ms / 1000
        share_s = timeout_s * ATTEMPT_SHARE if len(self._ring.urls) > 1 else timeout_s
        attempt_s = min(ATTEMPT_S, share_s)
        body = await self._ask("GET", path, params, None, {}, timeout_s, attempt_s, wait_s)
        return _decode(body, kind, path)

    async def change(
        self, method: str, path: str, content: Any, key: str, timeout_s: float
    ) -> bytes:
        """Something that changes the cluster itself; `key` says that repetitions are the same."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        body = msgspec.json.encode(content)
        return await self._ask(method, path, {}, body, headers, timeout_s, timeout_s)

    async def download(
        self, path: str, params: Params, sink: Callable[[bytes], object], timeout_s: float
    ) -> int:
        """Give `sink` the body of a long answer in pieces; returns its size in bytes.

        From the first server that begins one within `timeout_s`, which is also the longest pause
        within it. Raises Unavailable when it breaks off: `sink` then has a part.
        """
        problem = ""
        limits = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=timeout_s)
        # Beside `sock_read`, which does not count while aiohttp waits for what it cannot parse.
        pause = partial(asyncio.timeout, timeout_s)
        for url in self._ring.round():
            size_bytes = 0
            try:
                async with self._session().get(
                    f"{url}{path}", params=params, timeout=limits
                ) as got:
                    if got.status != 200:
                        raise _failure(url, got.status, await got.read(), "GET")
                    self._learn_from(got)
                    while True:
                        async with pause():
                            chunk = await got.content.read(CHUNK_BYTES)
                        if not chunk:
                            return size_bytes
                        sink(chunk)
                        size_bytes += len(chunk)
            except (_Answered, TimeoutError, aiohttp.ClientError, OSError) as error:
                problem = _said(error, url)
                if size_bytes:
                    raise Unavailable(
                        f"GET {path}: {url} broke off after {size_bytes} bytes: {problem}",
                        "broken_off",
                    ) from error
        raise Unavailable(f"GET {path}: no server could answer; the last: {problem}")

    async def _ask(
        self,
        method: str,
        path: str,
        params: Params,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
        attempt_s: float,
        held_s: float = 0.0,
    ) -> bytes:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        backoff = Backoff(self._rng, BACKOFF_FIRST_S, BACKOFF_LIMIT_S)
        reads = method == "GET"
        leader_url = ""
        tried = 0
        while True:
            url = leader_url or self._ring.current
            leader_url = ""
            wait_s = 0.0
            begun_s = loop.time()
            remaining_s = deadline_s - begun_s
            budget_s = min(attempt_s, max(remaining_s, 0.001))
            asked = {**params, "timeout_ms": _server_ms(budget_s)} if reads else params
            try:
                async with asyncio.timeout(budget_s + held_s):
                    return await self._once(method, url, path, asked, body, headers)
            except _Answered as error:
                failure: Exception = error
                wait_s = error.problem.retry_after_ms / 1000
                leader_url = self._ring.url_of(error.problem.leader)
            except aiohttp.ClientConnectorError as error:
                failure = error
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                failure = error
                if not reads:
                    raise _unknown(method, url, path, error) from error
            # Time for which it held the request open as asked is not time without an answer.
            deadline_s += min(loop.time() - begun_s, held_s)
            if url == self._ring.current:
                self._ring.advance()
            tried += 1
            if tried % len(self._ring.urls) == 0:
                wait_s = max(wait_s, backoff.next_s())
            if loop.time() + wait_s + LAST_SHARE * timeout_s >= deadline_s:
                raise _out_of_time(method, path, timeout_s, failure, url) from failure
            await asyncio.sleep(wait_s)

    async def _once(
        self,
        method: str,
        url: str,
        path: str,
        params: Params,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> bytes:
        async with self._session().request(
            method, f"{url}{path}", params=params, data=body, headers=headers
        ) as answer:
            content = await answer.read()
            self._learn_from(answer)
            if answer.status < 300:
                return content
            raise _failure(url, answer.status, content, method)

    def _learn_from(self, answer: aiohttp.ClientResponse) -> None:
        named = answer.headers.get(SERVERS_HEADER, "")
        if named and named != self._learned:
            self._learned = named
            self._learn(named.split(","))


def _server_ms(budget_s: float) -> int:
    """What a server may take, so that its reason arrives before we stop listening."""
    return max(1, int(budget_s * 1000 * REASON_SHARE))


def _failure(url: str, status: int, content: bytes, method: str) -> Exception:
    """The error that an answer means; _Answered when asking again may help."""
    try:
        problem = msgspec.json.decode(content, type=_Error).error
    except msgspec.DecodeError:
        problem = _Problem(message=f"HTTP {status}: {content[:200].decode(errors='replace')}")
    if problem.may_have_happened and method != "GET":
        return OutcomeUnknown(problem.message, problem.code)
    if status in _RETRIED:
        return _Answered(url, status, problem)
    return _definite(status, problem)


def _definite(status: int, problem: _Problem) -> CoordError:
    message = problem.message or problem.code or f"HTTP {status}"
    if status == 410 or problem.code == "events_gone":
        return EventsGone(0, problem.first_index)
    if status == 404:
        return NotFound(message, problem.code)
    if status < 500 and status != 409:
        return InvalidRequest(message, problem.code)
    return NotDone(message, problem.code)


def _unknown(method: str, url: str, path: str, error: Exception) -> OutcomeUnknown:
    said = _said(error, url)
    return OutcomeUnknown(f"{method} {path}: {url} did not say what became of it: {said}")


def _said(error: Exception, url: str) -> str:
    """What went wrong with a server, by its address, without the words of the HTTP library."""
    if isinstance(error, _Answered):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        known = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else ""
        return f"{url}: {known.lower() or cause.strerror or error}"
    return f"{url}: {str(error) or 'no answer in time'}"


def _out_of_time(
    method: str, path: str, timeout_s: float, failure: Exception, url: str
) -> Unavailable:
    said = _said(failure, url)
    if not isinstance(failure, _Answered):
        message = (
            f"{method} {path}: no server could answer within {timeout_s:g} s; the last: {said}"
        )
        return Unavailable(message, "unavailable")
    message = f"{method} {path}: not done within {timeout_s:g} s; the last answer: {said}"
    if failure.problem.code == "busy":
        return Busy(message, failure.problem.retry_after_ms)
    return Unavailable(message, failure.problem.code or "unavailable")


def _decode(body: bytes, kind: type[Kind], path: str) -> Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"GET {path}: the answer of {len(body)} bytes is not what this version expects: "
            f"{error}. Use a client as new as the servers",
            "unreadable",
        ) from error
