"""The Unix socket through which workers report: lines of JSON, each answered by one line.

The first line of a connection is `{"type":"hello","task":KEY}`; KEY is COORD_TASK. Then:

    {"type":"progress","step":N,"busy_us":0}           -> {"ok":true,"stop":false}
    {"type":"should_stop"}                             -> {"ok":true,"stop":false}
    {"type":"stand_by"}                                -> {"ok":true,"stop":false,"env":{...}}
                                                       `env` once a hot spare has a rank
    {"type":"checkpoint_begun","step":N,"path":DIR}    -> {"ok":true}  once recorded
    {"type":"shard_saved","step":N,"path":DIR,"shard":FILE,"digest":HEX,"size_bytes":N}
    {"type":"weights_published","version":N,"step":N,"uri":TEXT}
    {"type":"weights_loaded","version":N}

Whatever cannot be done is answered with `{"ok":false,"error":TEXT}`, and the connection stays. Only
a line over LINE_LIMIT_BYTES ends it, since nobody can say where the next one begins. Answers come
in the order of the lines, so a worker that waits for a checkpoint uses a second connection for
progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import stat
import struct
import termios
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Protocol

import msgspec

LINE_LIMIT_BYTES = 65_536
Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]

PENDING_LINES_LIMIT = 256
"""Lines of one connection that wait for an earlier one's answer; then we stop reading."""
DRAIN_S = 0.1
ACCEPT_TURNS = 4
TEXT_LIMIT = 4_096
STEP_LIMIT = 1 << 53
"""The same for every JSON library."""


class Line(msgspec.Struct, frozen=True, tag=True, tag_field="type"):
    """Base of what workers may say."""


class Hello(Line, frozen=True, tag="hello"):
    task: str


class Progress(Line, frozen=True, tag="progress"):
    step: int
    busy_us: int = 0
    """What it has worked on its steps so far, all together, without waiting for others."""


class ShouldStop(Line, frozen=True, tag="should_stop"):
    pass


class StandBy(Line, frozen=True, tag="stand_by"):
    """Asked by a hot spare until it has a rank."""


class CheckpointBegun(Line, frozen=True, tag="checkpoint_begun"):
    step: int
    path: str


class ShardSaved(Line, frozen=True, tag="shard_saved"):
    step: int
    path: str
    shard: str
    digest: str
    size_bytes: int = 0


class WeightsPublished(Line, frozen=True, tag="weights_published"):
    version: int
    step: int
    uri: str


class WeightsLoaded(Line, frozen=True, tag="weights_loaded"):
    version: int


Recorded = CheckpointBegun | ShardSaved | WeightsPublished | WeightsLoaded
"""What is answered once the coordinator has recorded it."""
Request = Hello | Progress | ShouldStop | StandBy | Recorded
_DECODER: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    stop: bool | None = None
    error: str = ""
    env: dict[str, str] = {}
    """What a hot spare gets with its rank: its whole environment."""


class Refusal(Exception):
    """A line that has no effect; the message is the answer."""


class WorkerDesk(Protocol):
    """Who takes in what workers say. Called on the loop, with tasks as they named themselves."""

    def progress(self, task: str, step: int, busy_us: int = 0) -> bool:
        """Returns whether the task is to stop. Raises Refusal."""

    def should_stop(self, task: str) -> bool:
        """Raises Refusal."""

    def rank(self, task: str) -> dict[str, str]:
        """The environment of a rank; empty for a hot spare that has none yet, or is to end. Raises
        Refusal."""

    async def record(self, task: str, line: Recorded) -> None:
        """Returns once the coordinator has recorded it. Raises Refusal."""


class WorkerSocket:
    """See `ports.WorkerListener`. Listens at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server: asyncio.Server | None = None
        self._connections: dict[int, _Connection] = {}
        self._opened = 0

    async def start(self, desk: WorkerDesk, spawn: Spawn) -> None:
        directory = self.path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = directory.stat()
        if owner.st_uid != os.geteuid() or stat.S_IMODE(owner.st_mode) & 0o022:
            raise PermissionError(
                f"{directory} can be written by others, who could take the place of the workers' "
                "socket; remove it, or set XDG_RUNTIME_DIR"
            )
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: self._connection(desk, spawn), str(self.path)
        )

    async def close(self) -> None:
        """Close all connections; workers connect again to the next agent."""
        if self._server is not None:
            self._server.close()
            # The loop tells each of them that it is lost; that ends what it waits for.
            for number in sorted(self._connections):
                self._connections[number].close()
            await self._server.wait_closed()
            self._server = None
            self.path.unlink(missing_ok=True)

    async def drain(self, task: str) -> None:
        """Take in all that a task had said when it ended, so that it counts before its end."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_S
        for turn in itertools.count():
            # A few turns of the loop take in a connection that is only now being made.
            unread = any(connection.unread() for connection in self._of(task))
            if loop.time() >= deadline or (turn >= ACCEPT_TURNS and not unread):
                return
            await asyncio.sleep(0)

    def _of(self, task: str) -> list[_Connection]:
        return [one for one in self._connections.values() if one.task in ("", task)]

    def _connection(self, desk: WorkerDesk, spawn: Spawn) -> _Connection:
        self._opened += 1
        number = self._opened
        connection = _Connection(desk, spawn, lambda: self._connections.pop(number, None))
        self._connections[number] = connection
        return connection


class _Connection(asyncio.Protocol):
    """Lines are taken in at once while each can be answered at once; from the first that has to
    wait, a task of this connection goes on with them in order."""

    def __init__(self, desk: WorkerDesk, spawn: Spawn, on_lost: Callable[[], object]) -> None:
        self.task = ""
        """Whom the connection speaks for; empty before its hello."""
        self._desk = desk
        self._spawn = spawn
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._waiting: deque[bytes] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._stuffed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answering is not None:
            self._answering.cancel()
        self._on_lost()

    def pause_writing(self) -> None:
        # It does not read its answers; then it need not be heard either.
        self._stuffed = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._stuffed = False
        if self._transport is not None and self._answering is None:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def unread(self) -> bool:
        """Whether the kernel holds bytes of the worker that we have not read."""
        transport = self._transport
        if transport is None or transport.is_closing() or not transport.is_reading():
            return False
        buffer = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, buffer)
        return int(struct.unpack("i", buffer)[0]) > 0

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            if len(line) > LINE_LIMIT_BYTES:
                self._too_long(len(line))
                return
            self._take(bytes(line))
        if len(rest) > LINE_LIMIT_BYTES:
            self._too_long(len(rest))

    def _too_long(self, size: int) -> None:
        self._answer(
            Answer(False, error=f"a line of {size} bytes or more; the limit is {LINE_LIMIT_BYTES}")
        )
        self.close()

    def _take(self, line: bytes) -> None:
        if self._answering is None:
            request = self._answer_now(line)
            if request is not None:
                self._answering = self._spawn(self._answer_later(request))
                self._answering.add_done_callback(self._answered)
            return
        self._waiting.append(line)
        if len(self._waiting) >= PENDING_LINES_LIMIT and self._transport is not None:
            self._transport.pause_reading()

    def _answered(self, done: asyncio.Task[None]) -> None:
        self._answering = None
        if done.cancelled() or self._transport is None:
            return
        if not self._stuffed:
            self._transport.resume_reading()
        while self._waiting and self._answering is None:
            self._take(self._waiting.popleft())

    def _answer_now(self, line: bytes) -> Recorded | None:
        """Answer the line, or return it as a request whose answer takes time."""
        try:
            request = _decode(line)
            if isinstance(request, Hello):
                self.task = request.task
                self._answer(Answer(True, stop=self._desk.should_stop(request.task)))
            elif not self.task:
                raise Refusal('the first line must be {"type":"hello","task":COORD_TASK}')
            elif isinstance(request, Progress):
                stop = self._desk.progress(self.task, request.step, request.busy_us)
                self._answer(Answer(True, stop=stop))
            elif isinstance(request, ShouldStop):
                self._answer(Answer(True, stop=self._desk.should_stop(self.task)))
            elif isinstance(request, StandBy):
                stop, env = self._desk.should_stop(self.task), self._desk.rank(self.task)
                self._answer(Answer(True, stop=stop, env=env))
            else:
                return request
        except Refusal as refusal:
            self._answer(Answer(False, error=str(refusal)))
        return None

    async def _answer_later(self, request: Recorded) -> None:
        try:
            await self._desk.record(self.task, request)
        except Refusal as refusal:
            self._answer(Answer(False, error=str(refusal)))
        else:
            self._answer(Answer(True))

    def _answer(self, answer: Answer) -> None:
        if self._transport is not None:
            self._transport.write(msgspec.json.encode(answer) + b"\n")


def _decode(line: bytes) -> Request:
    try:
        request = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(f"not understood: {error}") from None
    if isinstance(request, Hello | ShouldStop | StandBy):
        return request
    if isinstance(request, WeightsPublished | WeightsLoaded):
        if not 1 <= request.version <= STEP_LIMIT:
            raise Refusal(f"version is {request.version}; it must be 1 to {STEP_LIMIT}")
        if isinstance(request, WeightsLoaded):
            return request
        _check_length("uri", request.uri)
    if not 0 <= request.step <= STEP_LIMIT:
        raise Refusal(f"step is {request.step}; it must be 0 to {STEP_LIMIT}")
    if isinstance(request, WeightsPublished):
        return request
    if isinstance(request, Progress):
        if not 0 <= request.busy_us <= STEP_LIMIT:
            raise Refusal(f"busy_us is {request.busy_us}; it must be 0 to {STEP_LIMIT}")
        return request
    _check_length("path", request.path)
    if isinstance(request, ShardSaved):
        _check_length("shard", request.shard)
        if len(request.digest) != 64 or set(request.digest) - set("0123456789abcdef"):
            raise Refusal("digest is not SHA-256 in 64 lower-case hexadecimal digits")
        if not 0 <= request.size_bytes <= STEP_LIMIT:
            raise Refusal(f"size_bytes is {request.size_bytes}; it must be 0 to {STEP_LIMIT}")
    return request


def _check_length(name: str, text: str) -> None:
    if not 1 <= len(text) <= TEXT_LIMIT:
        raise Refusal(f"{name} has {len(text)} characters; it must be 1 to {TEXT_LIMIT}")
