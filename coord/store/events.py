"""Applied entries and the state they led to, in the node's LMDB environment."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from coord.model.entry import Recorded
from coord.sites import reach
from coord.store.environment import Environment, ReadTransaction, Row
from coord.store.ports import StorageCorrupt
from coord.store.rows import (
    check_entry,
    damaged,
    decode_entry,
    encode_entry,
    index_key,
    index_of,
    number_in,
    row_key,
    split_row,
)
from coord.store.snapshot import SnapshotHeader, SnapshotReader, verify_snapshot, write_snapshot

_INDEX = struct.Struct(">Q")

_FIRST_INDEX = b"first_index"
_BASE_STATE = b"base_state"
_STATE_INDEX = b"state_index"
_STATE_RAFT_INDEX = b"state_raft_index"


class LmdbEventStore:
    """The EventStore of a server. Shares its environment, and so its commits, with the raft log."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._where = f"{environment.path}/data.mdb"
        self._recover()

    def _recover(self) -> None:
        self._first_index = self._number(_FIRST_INDEX) or 1
        self._last_index = self._state_index = self._number(_STATE_INDEX)
        self._raft_index = self._state_raft_index = self._number(_STATE_RAFT_INDEX)
        newest = self._environment.last("events")
        if newest is not None and index_of(self._where, newest[0]) > self._state_index:
            self._environment.stage_range_delete("events", index_key(self._state_index + 1), b"")

    def append(self, records: tuple[Recorded, ...], raft_index: int) -> None:
        for record in records:
            index = record.entry.index
            if index != self._last_index + 1:
                raise ValueError(f"entry {index} cannot follow on entry {self._last_index}")
            self._environment.stage("events", index_key(index), encode_entry(record))
            self._last_index = index
        self._raft_index = raft_index

    def put_state(self, changes: dict[str, dict[str, bytes | None]]) -> None:
        for table, rows in changes.items():
            for name, row in rows.items():
                key, prefix = row_key(table, name)
                value = None if row is None else prefix + row
                self._environment.stage("state", key, value)
        self._state_index, self._state_raft_index = self._last_index, self._raft_index
        self._stage_number(_STATE_INDEX, self._last_index)
        self._stage_number(_STATE_RAFT_INDEX, self._raft_index)

    def load_state(self) -> tuple[int, dict[str, dict[str, bytes]]]:
        tables: dict[str, dict[str, bytes]] = {}
        with self._environment.read_transaction() as transaction:
            stored = transaction.get("store_meta", _STATE_RAFT_INDEX)
            raft_index = number_in(self._where, _STATE_RAFT_INDEX, stored)
            for key, value in transaction.range("state", b"", b""):
                table, name, row = split_row(self._where, key, value)
                tables.setdefault(table, {})[name] = row
        return raft_index, tables

    def read(self, start: int, limit: int) -> list[Recorded]:
        at = max(start, self._first_index)
        unbroken = self._unbroken(at, min(at + limit, self._last_index + 1))
        found = self._environment.range("events", index_key(at), b"", limit)
        return list(unbroken(self._decode(key, value) for key, value in found))

    def scan(self, start: int, stop: int) -> Iterator[Recorded]:
        bounds = (index_key(max(start, 0)), index_key(max(stop, 0)))
        staged = self._environment.staged("events", *bounds)
        unbroken = self._unbroken(start, min(stop, self._last_index + 1))
        return unbroken(self._scan(bounds, staged))

    def _scan(
        self, bounds: tuple[bytes, bytes], staged: list[tuple[bytes, bytes]]
    ) -> Iterator[Recorded]:
        """The durable entries and then those staged when `scan` was called: an entry never
        changes, so one that has become durable since is simply taken from the disk."""
        newest = b""
        with self._environment.read_transaction() as transaction:
            for key, value in transaction.range("events", *bounds):
                newest = key
                yield self._decode(key, value)
        for key, value in staged:
            if key > newest:
                yield self._decode(key, value)

    def _unbroken(
        self, start: int, stop: int
    ) -> Callable[[Iterator[Recorded]], Iterator[Recorded]]:
        """Passes on entries from `start` to before `stop`, and raises StorageCorrupt for one that
        is missing and was not deleted by retention: a damaged page may hide what is below it."""

        def check(records: Iterator[Recorded]) -> Iterator[Recorded]:
            expected = start
            for record in records:
                index = record.entry.index
                if index > max(expected, self._first_index):
                    raise self._missing(max(expected, self._first_index))
                expected = index + 1
                yield record
            if max(expected, self._first_index) < stop:
                raise self._missing(max(expected, self._first_index))

        return check

    def _missing(self, index: int) -> StorageCorrupt:
        return damaged(self._where, f"entry {index} is missing")

    @property
    def first_index(self) -> int:
        return self._first_index

    @property
    def last_index(self) -> int:
        return self._last_index

    def base_state(self) -> bytes:
        return self._environment.get("store_meta", _BASE_STATE) or b""

    def retain(self, first_index: int, base_state: bytes) -> None:
        if first_index <= self._first_index:
            return
        if first_index > self._state_index + 1:
            raise ValueError(
                f"entries up to {first_index - 1} cannot go: the stored state covers only those up "
                f"to {self._state_index}; put_state first"
            )
        self._environment.stage_range_delete("events", b"", index_key(first_index))
        self._environment.stage("store_meta", _BASE_STATE, base_state)
        self._stage_number(_FIRST_INDEX, first_index)
        self._first_index = first_index
        reach("store.retain.staged")
        self.flush()

    def begin_snapshot(self) -> Callable[[str], None]:
        if (self._state_index, self._state_raft_index) != (self._last_index, self._raft_index):
            raise ValueError(
                f"the stored state covers entries up to {self._state_index} (raft index "
                f"{self._state_raft_index}), not all up to {self._last_index} (raft index "
                f"{self._raft_index}); put_state first"
            )
        self.flush()
        cluster = self._environment.identity.cluster
        where = self._where
        reading = contextlib.ExitStack()
        transaction = reading.enter_context(self._environment.read_transaction())

        def write(path: str) -> None:
            with reading:
                _write(path, cluster, where, transaction)

        return write

    def install_snapshot(self, path: str) -> None:
        header = verify_snapshot(path, self._environment.identity.cluster)

        def contents() -> Iterator[Row]:
            with open(path, "rb") as file:
                reader = SnapshotReader(path, file)
                yield "store_meta", _BASE_STATE, reader.base_state()
                for key, value in reader.state_rows():
                    yield "state", key, value
                for key, value in reader.entries():
                    yield "events", key, value
            yield "store_meta", _FIRST_INDEX, _INDEX.pack(header.first_index)
            yield "store_meta", _STATE_INDEX, _INDEX.pack(header.last_index)
            yield "store_meta", _STATE_RAFT_INDEX, _INDEX.pack(header.raft_index)

        self._environment.replace(("state", "events"), contents)
        reach("store.state.replaced")
        self._recover()

    def size_bytes(self) -> int:
        return self._environment.size_bytes()

    def flush(self) -> None:
        self._environment.commit()

    def _number(self, key: bytes) -> int:
        return number_in(self._where, key, self._environment.get("store_meta", key))

    def _stage_number(self, key: bytes, number: int) -> None:
        self._environment.stage("store_meta", key, _INDEX.pack(number))

    def _decode(self, key: bytes, value: bytes) -> Recorded:
        return decode_entry(self._where, key, value)


def _write(path: str, cluster: str, where: str, transaction: ReadTransaction) -> None:
    """A snapshot of what the transaction sees, which ends with a state that covers every entry.
    Raises StorageCorrupt rather than hand a damaged entry on to the peers."""

    def number(key: bytes) -> int:
        return number_in(where, key, transaction.get("store_meta", key))

    header = SnapshotHeader(
        cluster=cluster,
        raft_index=number(_STATE_RAFT_INDEX),
        first_index=number(_FIRST_INDEX) or 1,
        last_index=number(_STATE_INDEX),
        state_rows=transaction.count("state"),
        entries=transaction.count("events"),
    )
    write_snapshot(
        path,
        header,
        transaction.get("store_meta", _BASE_STATE) or b"",
        transaction.range("state", b"", b""),
        _checked(where, header, transaction.range("events", b"", b"")),
    )


def _checked(
    where: str, header: SnapshotHeader, entries: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """All of them, each whole, and none missing."""
    expected = header.first_index
    for key, value in entries:
        check_entry(where, key, value)
        if index_of(where, key) != expected:
            raise damaged(where, f"entry {expected} is missing")
        expected += 1
        yield key, value
    if expected != header.last_index + 1:
        raise damaged(where, f"entry {expected} is missing")
