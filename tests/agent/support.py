"""A coordinator in memory, orders to give, and waiting for what must come."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from coord.agent.config import AgentConfig
from coord.agent.daemon import Daemon
from coord.agent.ports import ProcessRunner
from coord.agent.posix import posix_ports
from coord.agent.proctable import boot_id
from coord.agent.records import Records
from coord.client.errors import Rejected
from coord.client.inbox import Superseded
from coord.client.views import Decided
from coord.model.channel import LogChunk, LogRead
from coord.model.events import AnyEvent, TaskFound
from coord.model.plans import Action, HostPlan, TaskOrder
from coord.model.settings import Settings

HOST = "h1"
PATIENCE_S = 20.0
"""How long a test waits for what must come; far longer than it ever takes."""


class FakeChannel:
    """Takes every report and accepts it at once, unless told otherwise."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.on_log_read: Any = None
        self.lease_deadline: float | None = None
        self.incarnation = 0
        self.refuse: Rejected | None = None
        """What registrations are answered with, if not with an incarnation."""
        self.refused = 0
        self.registrations: list[tuple[TaskFound, ...]] = []
        self.events: list[AnyEvent] = []
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.judge: Callable[[AnyEvent], str] = lambda event: ""
        """The rejection of an event; empty to accept it."""
        self.undecided: list[tuple[asyncio.Future[Decided], AnyEvent]] = []
        self._queue: asyncio.Queue[HostPlan | Superseded] = asyncio.Queue()

    async def register(self, tasks: Iterable[TaskFound] = ()) -> int:
        found = tuple(tasks)
        await self.reachable.wait()
        if self.refuse is not None:
            self.refused += 1
            raise self.refuse
        self.incarnation += 1
        self.registrations.append(found)
        return self.incarnation

    async def plans(self) -> AsyncIterator[HostPlan | Superseded]:
        while True:
            yield await self._queue.get()

    def deliver(self, item: HostPlan | Superseded) -> None:
        self._queue.put_nowait(item)

    def report(self, event: AnyEvent) -> asyncio.Future[Decided]:
        future: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.undecided.append((future, event))
        if self.reachable.is_set():
            self.decide_all()
        return future

    def decide_all(self) -> None:
        """The coordinator is there: everything under way is decided, in order."""
        for future, event in self.undecided:
            self.events.append(event)
            rejection = self.judge(event)
            if rejection:
                future.set_exception(Rejected(type(event).__name__, rejection))
            else:
                future.set_result(Decided(len(self.events)))
        self.undecided.clear()

    async def flush(self, timeout_s: float) -> bool:
        return not self.undecided

    def of(self, task: str) -> list[str]:
        """The names of the events about a task, progress aside, in order."""
        names = [
            type(event).__name__ for event in self.events if getattr(event, "task", "") == task
        ]
        return [name for name in names if name != "ProgressReported"]

    def one(self, kind: type[Any], task: str) -> Any:
        """The only event of this kind about this task."""
        found = [
            event
            for event in self.events
            if isinstance(event, kind) and getattr(event, "task", "") == task
        ]
        assert len(found) == 1, f"{len(found)} {kind.__name__} of {task}: {found}"
        return found[0]


def key(index: int = 0, generation: int = 1) -> str:
    return f"job/role/{index}#{generation}"


def order(
    command: Iterable[str] = ("true",),
    *,
    index: int = 0,
    generation: int = 1,
    action: Action = Action.RUN,
    **fields: Any,
) -> TaskOrder:
    return TaskOrder(
        task=key(index, generation),
        job="job",
        role="role",
        index=index,
        generation=generation,
        action=action,
        command=tuple(command),
        **{"grace_ms": 5_000, **fields},
    )


def stop_order(**fields: Any) -> TaskOrder:
    return order((), action=Action.STOP, **fields)


def plan(*orders: TaskOrder, version: int, incarnation: int = 1) -> HostPlan:
    return HostPlan(HOST, incarnation, version, tuple(orders))


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def until(condition: Callable[[], Any], what: str = "") -> Any:
    """Returns what the condition yields once it is truthy; fails after PATIENCE_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not (value := condition()):
        assert loop.time() < deadline, f"waited {PATIENCE_S} s for {what or 'a condition'}"
        await asyncio.sleep(0.002)
    return value


async def until_file(path: Path) -> str:
    """The text of a file once it has a whole line."""

    def whole() -> str:
        text = path.read_text() if path.exists() else ""
        return text if text.endswith("\n") else ""

    return str(await until(whole, f"{path}"))


def config_for(data_dir: Path, **fields: Any) -> AgentConfig:
    """An agent within the test's process, without a keeper."""
    defaults = {"owns_process": False, "keeper": False, "host": HOST}
    return AgentConfig(servers=("http://127.0.0.1:1",), data_dir=data_dir, **{**defaults, **fields})


@contextlib.asynccontextmanager
async def running(
    config: AgentConfig,
    channel: FakeChannel,
    runner: ProcessRunner | None = None,
    disk: Records | None = None,
) -> AsyncIterator[Daemon]:
    """An agent in this process, until the end of the block."""
    disk = disk or Records.open(config.data_dir, config.host, uuid.uuid4().hex, boot_id())
    ports = posix_ports(config, disk)
    if runner is not None:
        ports = ports._replace(runner=runner)
    daemon = Daemon(config, ports, channel)
    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(daemon.run(stop))
            try:
                await until(daemon.socket_path.exists)
                yield daemon
            finally:
                stop.set()
    finally:
        disk.close()


async def read_all(channel: FakeChannel, task: str, stream: str) -> bytes:
    """A stream from its start, in small pieces."""
    found, offset = b"", 0
    while True:
        chunk: LogChunk = await channel.on_log_read(LogRead(1, task, stream, offset, 1_000))
        assert chunk.exists
        found += chunk.data
        offset = chunk.offset + len(chunk.data)
        if chunk.ended or not chunk.data:
            return found
