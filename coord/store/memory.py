"""An EventStore without a disk, for tests and simulations of what stands above it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coord.model.entry import Recorded
from coord.store.ports import StorageFull
from coord.store.rows import decode_entry, encode_entry, index_key, row_key, split_row
from coord.store.snapshot import SnapshotHeader, SnapshotReader, verify_snapshot, write_snapshot

Tables = dict[str, dict[str, bytes]]


class _Contents:
    """All of a store, at one moment."""

    def __init__(self) -> None:
        self.entries: dict[int, Recorded] = {}
        self.tables: Tables = {}
        self.base_state = b""
        self.first_index = 1
        self.last_index = 0
        self.raft_index = 0
        self.state_index = 0
        self.state_raft_index = 0

    def copy(self) -> _Contents:
        other = _Contents()
        other.__dict__.update(self.__dict__)
        other.entries = dict(self.entries)
        other.tables = {table: dict(rows) for table, rows in self.tables.items()}
        return other


class MemoryEventStore:
    """What `flush` has seen outlives a crash (`reopened`); the rest does not.

    While `full` is set, nothing becomes durable and `flush` raises StorageFull.
    """

    def __init__(self, cluster: str = "") -> None:
        self.full = False
        self._cluster = cluster
        self._now = _Contents()
        self._durable = _Contents()

    def reopened(self) -> MemoryEventStore:
        """The store that a restarted process would find."""
        other = MemoryEventStore(self._cluster)
        other._durable = self._durable.copy()
        found = self._durable.copy()
        found.last_index, found.raft_index = found.state_index, found.state_raft_index
        found.entries = {
            index: record for index, record in found.entries.items() if index <= found.last_index
        }
        other._now = found
        return other

    def append(self, records: tuple[Recorded, ...], raft_index: int) -> None:
        now = self._now
        for record in records:
            index = record.entry.index
            if index != now.last_index + 1:
                raise ValueError(f"entry {index} cannot follow on entry {now.last_index}")
            now.entries[index] = record
            now.last_index = index
        now.raft_index = raft_index

    def put_state(self, changes: dict[str, dict[str, bytes | None]]) -> None:
        now = self._now
        for table, rows in changes.items():
            stored = now.tables.setdefault(table, {})
            for name, row in rows.items():
                if row is None:
                    stored.pop(name, None)
                else:
                    stored[name] = row
        now.state_index, now.state_raft_index = now.last_index, now.raft_index

    def load_state(self) -> tuple[int, Tables]:
        tables = {table: dict(rows) for table, rows in self._durable.tables.items() if rows}
        return self._durable.state_raft_index, tables

    def read(self, start: int, limit: int) -> list[Recorded]:
        first = max(start, self.first_index)
        stop = min(first + limit, self.last_index + 1)
        return [self._now.entries[index] for index in range(first, stop)]

    def scan(self, start: int, stop: int) -> Iterator[Recorded]:
        return iter(self.read(start, max(0, stop - max(start, self.first_index))))

    @property
    def first_index(self) -> int:
        return self._now.first_index

    @property
    def last_index(self) -> int:
        return self._now.last_index

    def base_state(self) -> bytes:
        return self._now.base_state

    def retain(self, first_index: int, base_state: bytes) -> None:
        now = self._now
        if first_index <= now.first_index:
            return
        if first_index > now.state_index + 1:
            raise ValueError(
                f"entries up to {first_index - 1} cannot go: the stored state covers only those up "
                f"to {now.state_index}; put_state first"
            )
        for index in range(now.first_index, first_index):
            del now.entries[index]
        now.first_index, now.base_state = first_index, base_state
        self.flush()

    def begin_snapshot(self) -> Callable[[str], None]:
        now = self._now
        if (now.state_index, now.state_raft_index) != (now.last_index, now.raft_index):
            raise ValueError(
                f"the stored state covers entries up to {now.state_index} (raft index "
                f"{now.state_raft_index}), not all up to {now.last_index} (raft index "
                f"{now.raft_index}); put_state first"
            )
        self.flush()
        fixed, cluster = self._durable.copy(), self._cluster
        return lambda path: _write(path, cluster, fixed)

    def install_snapshot(self, path: str) -> None:
        verify_snapshot(path, self._cluster)
        if self.full:
            raise StorageFull("the store in memory is set to be full; nothing was written")
        with open(path, "rb") as file:
            reader = SnapshotReader(path, file)
            found = _Contents()
            found.base_state = reader.base_state()
            for key, value in reader.state_rows():
                table, name, row = split_row(path, key, value)
                found.tables.setdefault(table, {})[name] = row
            for key, value in reader.entries():
                record = decode_entry(path, key, value)
                found.entries[record.entry.index] = record
        header = reader.header
        found.first_index, found.last_index = header.first_index, header.last_index
        found.state_index = header.last_index
        found.raft_index = found.state_raft_index = header.raft_index
        self._now = found
        self.flush()

    def size_bytes(self) -> int:
        """Of the state alone; entries are kept as objects."""
        rows = [row for table in self._now.tables.values() for row in table.values()]
        return sum(map(len, rows))

    def flush(self) -> None:
        if self.full:
            raise StorageFull("the store in memory is set to be full; nothing was written")
        self._durable = self._now.copy()


def _write(path: str, cluster: str, fixed: _Contents) -> None:
    rows = []
    for table, names in fixed.tables.items():
        for name, row in names.items():
            key, prefix = row_key(table, name)
            rows.append((key, prefix + row))
    header = SnapshotHeader(
        cluster=cluster,
        raft_index=fixed.raft_index,
        first_index=fixed.first_index,
        last_index=fixed.last_index,
        state_rows=len(rows),
        entries=len(fixed.entries),
    )
    entries = ((index_key(index), encode_entry(record)) for index, record in fixed.entries.items())
    write_snapshot(path, header, fixed.base_state, sorted(rows), entries)
