"""A server's disk, and `store.environment.Environment` on it.

A `SimDisk` outlives the processes that open it. What was synced survives a crash; what was staged
does not; a commit that was under way is there as a whole or not at all, as LMDB has it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator

from coord.store.environment import DATABASES, KEY_LENGTH_LIMIT, Identity, Row
from coord.store.ports import (
    DataDirectoryInUse,
    StorageCorrupt,
    StorageFull,
    WrongDataDirectory,
)
from coord_sim.kernel import Kernel, SimProcess, current_process
from coord_sim.world.sorted_rows import Item, SortedRows

Write = tuple[str, bytes, bytes | None]
"""Database, key, value or None for gone."""
Tables = dict[str, SortedRows]


class FsyncFailed(OSError):
    """The device reported an error: nobody knows what of the last writes is on it."""


class DiskFaults:
    """What may happen to a disk's commits; all off at first."""

    def __init__(self) -> None:
        self.full = False
        """Commits raise StorageFull."""
        self.slow_s: tuple[float, float] = (0.0, 0.0)
        """Each commit takes between so and so many seconds, in which the process stands still."""
        self.slow_share = 1.0
        """That many of the commits do."""
        self.fails_next = False
        """The next commit fails for good, having been written or not."""
        self.dies_in_commit = False
        """The process dies in its next commit, which is there or not."""
        self.lies = False
        """Commits are acknowledged and only remembered: a crash loses them. No honest disk does
        this; it shows what the checks see."""


class SimDisk:
    """What is on the platter. `directory` is a real one, for snapshot files."""

    def __init__(self, kernel: Kernel, name: str, directory: str) -> None:
        self.name = name
        self.directory = directory
        self.faults = DiskFaults()
        self.tables: Tables = {database: SortedRows() for database in DATABASES}
        """What a process finds committed, synced or not."""
        self.commits = 0
        self.flipped: list[str] = []
        """Where bits were turned over, since the disk was last wiped."""
        self._before_flips: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}
        """What stands there now, and what stood there before."""
        self.broken = False
        """An fsync failed since the process opened it."""
        self.opened: SimEnvironment | None = None
        self.on_removed: Callable[[list[Item]], None] | None = None
        """Told of the entries of the raft log that a commit took away, with what they were."""
        self._kernel = kernel
        self._rng = kernel.rng(f"disk/{name}")
        self._unsynced: list[list[Write]] = []
        """For each commit that is not on the platter yet, oldest first, what undoes it."""
        os.makedirs(directory, exist_ok=True)

    @property
    def rng(self) -> random.Random:
        return self._rng

    def crash(self, *, lose_unsynced: bool = True) -> None:
        """The process is gone; with `lose_unsynced` so is the power. Commits that were under way
        are there or not: if one is lost, so are all later ones."""
        self.opened = None
        self.broken = False
        if not lose_unsynced:
            self._unsynced.clear()
        kept = 0 if self.faults.lies else self._rng.randint(0, len(self._unsynced))
        while len(self._unsynced) > kept:
            for database, key, value in reversed(self._unsynced.pop()):
                _put(self.tables[database], key, value)
        self._unsynced.clear()
        self._tear_files()

    def survives(self, database: str, key: bytes) -> bytes | None:
        """The value that a crash right now would leave for certain."""
        value = self.tables[database].values.get(key)
        for undo in reversed(self._unsynced):
            for name, written, before in reversed(undo):
                if name == database and written == key:
                    value = before
        return value

    def undamaged(self, database: str, key: bytes) -> bytes | None:
        """The same, had no bit turned over: what its process made durable."""
        value = self.survives(database, key)
        now, before = self._before_flips.get((database, key), (None, None))
        return before if value is not None and value == now else value

    def flip_bit(self, databases: tuple[str, ...] = ("raft_log", "events")) -> str:
        """Turn over one bit of a stored value, of a disk that nobody has open: of term and vote as
        often as of an entry. Says where; empty when nothing is stored there."""
        found = [(name, key) for name in databases for key in self.tables[name].keys]
        if b"hard_state" in self.tables["raft_meta"].values:
            found.append(("raft_meta", b"hard_state"))
        if not found or self.opened is not None:
            return ""
        database, key = self._rng.choice(found)
        value = bytearray(self.tables[database].values[key])
        if not value:
            return ""
        at = self._rng.randrange(len(value) * 8)
        value[at // 8] ^= 1 << (at % 8)
        self._before_flips[database, key] = bytes(value), self.tables[database].values[key]
        self.tables[database].values[key] = bytes(value)
        where = f"{database}/{key.hex()} bit {at}"
        self.flipped.append(where)
        return where

    def wipe(self) -> None:
        """A new disk in place of the old."""
        self.tables = {database: SortedRows() for database in DATABASES}
        self.flipped.clear()
        self._before_flips.clear()
        self._unsynced.clear()
        shutil.rmtree(self.directory, ignore_errors=True)
        os.makedirs(self.directory)

    def apply(self, writes: Iterable[Write], emptied: tuple[str, ...], rows: list[Row]) -> None:
        """One commit, in LMDB's order. The process stands still while a slow device takes it."""
        faults = self.faults
        stall_s = self._slowness_s()
        undo = self._write(writes, emptied, rows)
        self.commits += 1
        if self.on_removed is not None:
            self._tell_removed(undo)
        # A stall begins once the process gives way, so another commit may come before: it cannot
        # be on the platter sooner than the one before it.
        waits = bool(stall_s or self._unsynced)
        if not (waits or faults.lies or faults.dies_in_commit):
            return
        self._unsynced.append(undo)
        process = current_process()
        if faults.dies_in_commit and process is not None:
            faults.dies_in_commit = False
            process.die()
        if waits and not faults.lies:
            if process is not None:
                process.stall(stall_s)
                self._kernel.call_at(process.stalled_until_s, self._synced, undo)
            else:
                self._synced(undo)

    def _write(
        self, writes: Iterable[Write], emptied: tuple[str, ...], rows: list[Row]
    ) -> list[Write]:
        """Returns what undoes it, in the order in which it was done."""
        undo: list[Write] = []
        for database, key, value in writes:
            table = self.tables[database]
            undo.append((database, key, table.values.get(key)))
            _put(table, key, value)
        for database in emptied:
            gone = self.tables[database].delete_range(b"", b"")
            undo += [(database, key, value) for key, value in gone]
        for database, key, value in rows:
            table = self.tables[database]
            undo.append((database, key, table.values.get(key)))
            table.put(key, value)
        return undo

    def _tell_removed(self, undo: list[Write]) -> None:
        log = self.tables["raft_log"].values
        removed = [
            (key, before)
            for database, key, before in undo
            if database == "raft_log" and before is not None and log.get(key) != before
        ]
        if removed and self.on_removed is not None:
            self.on_removed(removed)

    def fail(self, writes: Iterable[Write], emptied: tuple[str, ...], rows: list[Row]) -> None:
        """An fsync that fails: the writes are there or not, and the process is told so."""
        self.faults.fails_next = False
        self.broken = True
        if self._rng.random() < 0.5:
            self.apply(writes, emptied, rows)
        raise FsyncFailed(5, f"{self.directory}/data.mdb: Input/output error")

    def _slowness_s(self) -> float:
        low, high = self.faults.slow_s
        if high <= 0 or self._rng.random() >= self.faults.slow_share:
            return 0.0
        return self._rng.uniform(low, high)

    def _synced(self, undo: list[Write]) -> None:
        """That commit, and all before it, are on the platter."""
        for position, known in enumerate(self._unsynced):
            if known is undo:
                del self._unsynced[: position + 1]
                return

    def _tear_files(self) -> None:
        """Files that were being written end anywhere."""
        for folder, _, names in sorted(os.walk(self.directory)):
            for name in sorted(names):
                if name.endswith(".writing") or name.startswith("fetch-"):
                    path = os.path.join(folder, name)
                    os.truncate(path, self._rng.randint(0, os.path.getsize(path)))


class SimReadTransaction:
    """`ReadTransaction` on a disk's tables as they were."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._tables[database].values.get(key)

    def range(self, database: str, start: bytes, stop: bytes) -> Iterator[Item]:
        return iter(self._tables[database].range(start, stop))

    def backwards(self, database: str) -> Iterator[Item]:
        return self._tables[database].backwards()

    def count(self, database: str) -> int:
        return len(self._tables[database].keys)


class SimEnvironment:
    """`store.environment.Environment` on a `SimDisk`, for one process.

    What a process does after it was killed, while its stack unwinds, reaches the disk no more.
    """

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.last_commit_ms = 0.0
        self._owner: SimProcess | None = current_process()
        self._view: Tables = {name: rows.copy() for name, rows in disk.tables.items()}
        self._staged: list[Write] = []
        self._ranges = 0
        self._readers = 0
        self._closed = False

    @classmethod
    def open(
        cls, disk: SimDisk, identity: Identity | None = None, create: bool = True
    ) -> SimEnvironment:
        """As the real one: refuses a directory in use, or of another cluster or node."""
        if disk.opened is not None:
            raise DataDirectoryInUse(f"{disk.directory} is in use")
        stored = disk.tables["store_meta"].values
        if not stored and (identity is None or not create):
            raise WrongDataDirectory(f"{disk.directory} holds no data of a server")
        environment = cls(disk)
        if not stored and identity is not None:
            environment.stage("store_meta", b"format", b"1")
            environment.stage("store_meta", b"cluster", identity.cluster.encode())
            environment.stage("store_meta", b"node", str(identity.node).encode())
            environment.commit()
        elif identity is not None and environment.identity != identity:
            raise WrongDataDirectory(
                f"{disk.directory} is {environment.identity}'s, not {identity}'s"
            )
        disk.opened = environment
        return environment

    @property
    def path(self) -> str:
        return self.disk.directory

    @property
    def identity(self) -> Identity:
        cluster, node = self.get("store_meta", b"cluster"), self.get("store_meta", b"node")
        if cluster is None or node is None:
            raise StorageCorrupt(f"{self.path}: store_meta lacks cluster or node")
        return Identity(cluster.decode(), int(node))

    # Writing

    @property
    def dirty(self) -> bool:
        return bool(self._staged or self._ranges)

    def stage(self, database: str, key: bytes, value: bytes | None) -> None:
        if not 0 < len(key) <= KEY_LENGTH_LIMIT:
            raise ValueError(
                f"a key of {len(key)} bytes for {database}; it must have 1 to {KEY_LENGTH_LIMIT}"
            )
        _put(self._view[database], key, value)
        self._staged.append((database, key, value))

    def stage_range_delete(self, database: str, start: bytes, stop: bytes) -> None:
        self._ranges += 1
        gone = self._view[database].delete_range(start, stop)
        self._staged += [(database, key, None) for key, _ in gone]

    def staged(self, database: str, start: bytes, stop: bytes) -> list[Item]:
        found = dict.fromkeys(
            key
            for name, key, _ in self._staged
            if name == database and key >= start and (not stop or key < stop)
        )
        values = self._view[database].values
        return [(key, values[key]) for key in sorted(found) if key in values]

    def commit(self) -> None:
        if self.dirty:
            self._commit((), [])

    def replace(self, databases: tuple[str, ...], contents: Callable[[], Iterable[Row]]) -> None:
        self._commit(databases, list(contents()))
        for database in databases:
            self._view[database] = self.disk.tables[database].copy()

    def _commit(self, emptied: tuple[str, ...], rows: list[Row]) -> None:
        disk = self.disk
        if self._owner is not None and not self._owner.alive:
            self._owner.die()
        if self._closed:
            raise RuntimeError(f"{self.path} is closed")
        if disk.broken:
            raise FsyncFailed(5, f"{self.path}: a commit has failed before")
        if disk.faults.full:
            raise StorageFull(f"{self.path}: the disk is full")
        if self._readers:
            # Whoever reads keeps the tables that he began with.
            disk.tables = {name: table.copy() for name, table in disk.tables.items()}
        staged, self._staged, self._ranges = self._staged, [], 0
        if disk.faults.fails_next:
            disk.fail(staged, emptied, rows)
        disk.apply(staged, emptied, rows)
        for database, key, value in rows:
            if database not in emptied:
                self._view[database].put(key, value)

    # Reading

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._view[database].values.get(key)

    def range(
        self, database: str, start: bytes, stop: bytes, limit: int | None = None
    ) -> list[Item]:
        return self._view[database].range(start, stop, limit)

    def first(self, database: str) -> Item | None:
        return self._view[database].first()

    def last(self, database: str) -> Item | None:
        return self._view[database].last()

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[SimReadTransaction]:
        if self._closed:
            raise RuntimeError(f"{self.path} is closed; nothing can be read from it")
        self._readers += 1
        try:
            yield SimReadTransaction(self.disk.tables)
        finally:
            self._readers -= 1

    # The file

    def size_bytes(self) -> int:
        return 4096 + sum(table.size_bytes() for table in self.disk.tables.values())

    @property
    def map_size_bytes(self) -> int:
        return 1 << 34

    def limit_map(self, max_map_size_bytes: int) -> None:
        """A simulated disk is full when `DiskFaults.full` says so."""

    def close(self) -> None:
        if self._readers and not self._closed:
            raise RuntimeError(f"{self.path} cannot be closed under {self._readers} readers")
        self._closed = True
        if self.disk.opened is self:
            self.disk.opened = None


def _put(table: SortedRows, key: bytes, value: bytes | None) -> None:
    if value is None:
        table.delete(key)
    else:
        table.put(key, value)
