"""Snapshot files of one node: written, recorded, offered, fetched, installed (rule G7).

They lie in `snapshots` within the data directory. Files that no record names are left-overs of a
crash and are deleted at start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable

from coord.raft.guard_snapshot import SnapshotPoint, beats_installed
from coord.raft.journal import Journal, JournalEnvironment, SnapshotRecord
from coord.raft.network import SnapshotSource
from coord.raft.ports import StateMachine
from coord.raft.timings import RaftTimings
from coord.sites import reach
from coord.store.directory import DISK_FULL
from coord.store.ports import StorageFull

RunBlocking = Callable[[Callable[[], "tuple[int, str]"]], Awaitable["tuple[int, str]"]]
"""Runs a function in a worker thread, or in a simulation at once."""


class Snapshots:
    """The newest snapshot, and the one that was fetched and waits to be installed."""

    def __init__(
        self,
        journal: Journal,
        machine: StateMachine,
        environment: JournalEnvironment,
        rules: frozenset[str],
    ) -> None:
        self.directory = os.path.join(environment.path, "snapshots")
        self._environment = environment
        self.fetched: SnapshotSource | None = None
        self._journal = journal
        self._machine = machine
        self._rules = rules
        os.makedirs(self.directory, exist_ok=True)
        record = journal.snapshot
        for name in sorted(os.listdir(self.directory)):
            if record is None or name != record.file:
                os.unlink(os.path.join(self.directory, name))
        if record is not None and not self._intact(record):
            journal.forget_snapshot()

    # What the guard asks

    def point(self) -> SnapshotPoint | None:
        """What can be offered to a follower."""
        record = self._journal.snapshot
        return None if record is None else SnapshotPoint(record.index, record.term)

    def fetched_point(self) -> SnapshotPoint | None:
        """What could be installed."""
        fetched = self.fetched
        return None if fetched is None else SnapshotPoint(fetched.index, fetched.term)

    def source(self, index: int) -> SnapshotSource | None:
        """The file to send, with the entries and members that go with it."""
        record = self._journal.snapshot
        if record is None or record.index != index:
            return None
        before_last, last = self._journal.entry(index - 1), self._journal.entry(index)
        if before_last is None or last is None:
            return None
        return SnapshotSource(
            index=record.index,
            term=record.term,
            size_bytes=record.size_bytes,
            digest=record.digest,
            path=os.path.join(self.directory, record.file),
            entries=(before_last, last),
            members=record.members,
        )

    # What is done

    async def write(self, applied_index: int, run_blocking: RunBlocking) -> SnapshotRecord | None:
        """Have the state machine write its state as of `applied_index`; None if a newer snapshot
        has been installed by the time it is there (rule G7.late). Raises StorageFull."""
        term = self._journal.term_at(applied_index)
        members = self._journal.configuration_at(applied_index).members
        assert term is not None
        write = self._machine.write_snapshot()
        name = f"snapshot-{applied_index:020d}"
        partial = os.path.join(self.directory, f"{name}.writing")

        def write_and_measure() -> tuple[int, str]:
            write(partial)
            return measure(partial)

        try:
            size_bytes, digest = await run_blocking(write_and_measure)
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):  # perhaps it was never begun
                os.unlink(partial)
            if error.errno in DISK_FULL:
                raise StorageFull(f"{partial}: no room for a snapshot") from error
            raise
        newest = self._journal.snapshot
        installed = newest.index if newest is not None and "G7.late" in self._rules else 0
        if not beats_installed(applied_index, installed):
            os.unlink(partial)
            return None
        os.replace(partial, os.path.join(self.directory, name))
        sync_directory(self.directory)
        reach("raft.snapshot.written")
        record = SnapshotRecord(applied_index, term, size_bytes, digest, name, members)
        self._journal.keep_snapshot(record)
        return record

    def shorten(self, record: SnapshotRecord, timings: RaftTimings) -> None:
        """Forget the entries that the snapshot holds, but for a tail."""
        index, kept_bytes = record.index - 1, 0
        lowest = max(self._journal.first_index, record.index - timings.keep_entries)
        while index > lowest and kept_bytes < timings.keep_bytes:
            entry = self._journal.entry(index - 1)
            if entry is None:
                break
            kept_bytes += len(entry[0])
            index -= 1
        self._journal.shorten(index)

    def install(self, point: SnapshotPoint) -> SnapshotSource:
        """Replace log and state by the fetched file's. The log is staged first, so that it becomes
        durable in the transaction that replaces the state. On StorageFull all is as it was."""
        source = self.fetched
        if source is None or self.fetched_point() != point:
            raise RuntimeError(f"the snapshot at index {point.index} is not here to be installed")
        self._environment.commit()
        name = f"snapshot-{source.index:020d}"
        path = os.path.join(self.directory, name)
        os.replace(source.path, path)
        sync_directory(self.directory)
        reach("raft.snapshot.placed")
        before = self._journal.contents()
        self._journal.restart_from(*source.entries, source.members)
        self._journal.keep_snapshot(
            SnapshotRecord(
                source.index,
                source.term,
                source.size_bytes,
                source.digest,
                name,
                source.members,
            )
        )
        try:
            self._machine.install_snapshot(path, source.index)
        except StorageFull:
            self._journal.restore(before)
            os.replace(path, source.path)
            raise
        self.fetched = None
        return source

    def forget_older(self) -> None:
        """Delete the snapshots before the one recorded, once the record is durable."""
        record = self._journal.snapshot
        for name in sorted(os.listdir(self.directory)):
            if record is not None and name.startswith("snapshot-") and name < record.file:
                os.unlink(os.path.join(self.directory, name))

    def _intact(self, record: SnapshotRecord) -> bool:
        path = os.path.join(self.directory, record.file)
        return os.path.exists(path) and os.stat(path).st_size == record.size_bytes


def measure(path: str) -> tuple[int, str]:
    """Size in bytes and SHA-256, hex, of a file, which is fsynced."""
    digest = hashlib.sha256()
    size_bytes = 0
    with open(path, "rb+") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size_bytes += len(chunk)
        os.fsync(file.fileno())
    return size_bytes, digest.hexdigest()


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
