"""A disk, a clock and a state machine for tests: all of them lose, jump or remember on command."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from coord.store.environment import Identity
from coord.store.ports import StorageFull

T = TypeVar("T")


class FakeEnvironment:
    """`store.environment.Environment` in memory. `crash` forgets what was not committed; `full`
    makes commits fail; `commits` counts those that did not."""

    def __init__(self, path: str, node: int = 1, cluster: str = "test") -> None:
        self.path = path
        self.identity = Identity(cluster, node)
        self.durable: dict[str, dict[bytes, bytes]] = {}
        self.full = False
        self.commits = 0
        self.last_commit_ms = 0.0
        self._view: dict[str, dict[bytes, bytes]] = {}
        self._staged: list[tuple[str, bytes, bytes | None]] = []

    @property
    def dirty(self) -> bool:
        return bool(self._staged)

    def stage(self, database: str, key: bytes, value: bytes | None) -> None:
        self._staged.append((database, key, value))
        _put(self._view, database, key, value)

    def stage_range_delete(self, database: str, start: bytes, stop: bytes) -> None:
        for key, _ in self.range(database, start, stop):
            self.stage(database, key, None)

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._view.get(database, {}).get(key)

    def range(
        self, database: str, start: bytes, stop: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        found = sorted(
            (key, value)
            for key, value in self._view.get(database, {}).items()
            if key >= start and (not stop or key < stop)
        )
        return found[:limit]

    def commit(self) -> None:
        if not self._staged:
            return
        if self.full:
            raise StorageFull(f"{self.path}: the disk is full")
        staged, self._staged = self._staged, []
        for database, key, value in staged:
            _put(self.durable, database, key, value)
        self.commits += 1

    def replace(
        self, databases: tuple[str, ...], contents: Callable[[], list[tuple[str, bytes, bytes]]]
    ) -> None:
        """As the real one: what is staged for these is dropped, and then all or nothing."""
        self._staged = [one for one in self._staged if one[0] not in databases]
        if self.full:
            for database in databases:
                self._view[database] = dict(self.durable.get(database, {}))
            raise StorageFull(f"{self.path}: the disk is full")
        for database in databases:
            self.durable[database] = {}
            self._view[database] = {}
        for row in contents():
            self.stage(*row)
        self.commit()

    def crash(self) -> None:
        """The power goes: only what was committed is found again."""
        self._staged = []
        self._view = {name: dict(rows) for name, rows in self.durable.items()}


def _put(
    rows: dict[str, dict[bytes, bytes]], database: str, key: bytes, value: bytes | None
) -> None:
    if value is None:
        rows.setdefault(database, {}).pop(key, None)
    else:
        rows.setdefault(database, {})[key] = value


Applied = tuple[int, int, bytes]
"""(raft index, term, payload)."""


class ListMachine:
    """Remembers everything applied, durably with the environment's commits."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self.fails_at = b""
        """Applying this payload raises."""
        self.applied: list[Applied] = [
            msgspec.msgpack.decode(value, type=Applied)
            for _, value in environment.range("events", b"", b"")
        ]
        self.installed: list[int] = []

    def applied_raft_index(self) -> int:
        return self.applied[-1][0] if self.applied else 0

    def apply(self, raft_index: int, term: int, payload: bytes) -> None:
        if self.fails_at and payload == self.fails_at:
            raise ValueError(f"cannot apply {payload!r}")
        self._keep((raft_index, term, payload))

    def write_snapshot(self) -> Callable[[str], None]:
        encoded = msgspec.msgpack.encode(self.applied)

        def write(path: str) -> None:
            with open(path, "wb") as file:
                file.write(encoded)

        return write

    def install_snapshot(self, path: str, raft_index: int) -> None:
        with open(path, "rb") as file:
            applied = msgspec.msgpack.decode(file.read(), type=list[Applied])
        assert applied[-1][0] == raft_index
        self._environment.replace(
            ("events",), lambda: [("events", *self._row(entry)) for entry in applied]
        )
        self.applied = applied
        self.installed.append(raft_index)

    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.applied]

    def _keep(self, entry: Applied) -> None:
        self.applied.append(entry)
        self._environment.stage("events", *self._row(entry))

    def _row(self, entry: Applied) -> tuple[bytes, bytes]:
        return entry[0].to_bytes(8, "big"), msgspec.msgpack.encode(entry)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it, and which runs
    at once what is meant for a worker thread."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:
        future = self.create_future()
        future.set_result(function(*arguments))
        return future

    def jump(self, seconds: float) -> None:
        self._now_s += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set: a deadlock")
        self._loop.jump(timeout)
        return []


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a `VirtualLoop`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
