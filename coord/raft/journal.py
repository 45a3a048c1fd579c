"""The raft log on disk: entries in memory, every change staged, durable with the next commit.

A key of `raft_log` is the index, 8 bytes big-endian; a value is term (8), CRC-32 of key, term and
command (4), command. `raft_meta` holds `hard_state` (term, vote, CRC-32), `commit` (a hint),
`members` (the configuration at the first entry) and `snapshot` (the newest file).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from coord.raft.configuration import Configuration, LogEntry, configured, membership_change
from coord.raft.library import NO_OP, REGULAR
from coord.raft.ports import Member
from coord.store.environment import Identity
from coord.store.ports import REJOIN, StorageCorrupt

_KEY = struct.Struct(">Q")
_HEAD = struct.Struct(">QI")
_T = TypeVar("_T")


class JournalEnvironment(Protocol):
    """What the journal needs of `store.environment.Environment`."""

    @property
    def path(self) -> str: ...
    @property
    def identity(self) -> Identity: ...
    def stage(self, database: str, key: bytes, value: bytes | None) -> None: ...
    def stage_range_delete(self, database: str, start: bytes, stop: bytes) -> None: ...
    def get(self, database: str, key: bytes) -> bytes | None: ...
    def range(
        self, database: str, start: bytes, stop: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]: ...
    def commit(self) -> None: ...
    @property
    def dirty(self) -> bool: ...
    @property
    def last_commit_ms(self) -> float: ...


class HardState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What raft must never forget: the term, and whom we voted for in it (None: nobody yet)."""

    term: int = 0
    vote: int | None = None
    crc: int | None = None
    """CRC-32 of the two; None where it was stored before there was one."""

    @classmethod
    def sealed(cls, term: int, vote: int | None) -> HardState:
        return cls(term, vote, zlib.crc32(msgspec.json.encode((term, vote))))

    @property
    def intact(self) -> bool:
        return self.crc is None or self == HardState.sealed(self.term, self.vote)


class SnapshotRecord(msgspec.Struct, frozen=True):
    """The newest snapshot file. `file` is a name within the data directory's `snapshots`."""

    index: int
    term: int
    size_bytes: int
    digest: str
    file: str
    members: tuple[Member, ...]


class Contents(msgspec.Struct, frozen=True):
    """The log as it was before a snapshot took its place."""

    entries: list[LogEntry]
    base: Configuration
    configuration: Configuration
    snapshot: SnapshotRecord | None


class Journal:
    """What the library takes for its journal (positions count from the first entry shown), and
    what the guard and the log above it read by index.

    `entries_dirty` and `hard_state_dirty` say what of ours waits for a commit of the environment;
    call `committed` after one.
    """

    def __init__(self, environment: JournalEnvironment, first_members: tuple[Member, ...]) -> None:
        self._environment = environment
        self.on_append: Callable[[LogEntry], None] | None = None
        self._hidden: list[LogEntry] = []
        self.entries_dirty = False
        self.hard_state_dirty = False
        self._hard_state = self._load("hard_state", HardState)
        if self._hard_state is not None and not self._hard_state.intact:
            raise StorageCorrupt(
                f"{environment.path}/data.mdb: raft_meta hard_state says {self._hard_state}, and "
                f"its checksum is wrong. Stop this server and {REJOIN}"
            )
        self._entries = self._load_entries()
        if self._entries and self._hard_state is None:
            raise StorageCorrupt(
                f"{environment.path}/data.mdb: raft_meta lacks the term and the vote of a log that "
                f"ends at index {self._entries[-1][1]}; starting could vote twice. "
                f"Stop this server and {REJOIN}"
            )
        self._commit_hint = min(self._load("commit", int) or 1, self._last_or(1))
        stored = self._load("members", Configuration)
        self._base = Configuration(tuple(sorted(first_members))) if stored is None else stored
        self.configuration = self._base
        self.snapshot = self._load("snapshot", SnapshotRecord)
        if not self._entries:
            self._stage_meta("hard_state", self._hard_state or HardState.sealed(0, None))
            self._stage_meta("members", self._base)
            self.add(NO_OP, 1, 0)
        self.configuration = self.configuration_at(self.last_index)

    # What the library calls

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._entries.append((command, idx, term))
        self._stage_entry(command, idx, term)
        self.configuration = configured(self.configuration, (command, idx, term))
        if self.on_append is not None:
            self.on_append((command, idx, term))

    def clear(self) -> None:
        self._entries = []
        self._hidden = []
        self._environment.stage_range_delete("raft_log", b"", b"")
        self.entries_dirty = True

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        if entryFrom >= len(self._entries):
            return
        self._environment.stage_range_delete(
            "raft_log", _KEY.pack(self._entries[entryFrom][1]), b""
        )
        del self._entries[entryFrom:]
        self.entries_dirty = True
        self.configuration = self.configuration_at(self.last_index)

    def deleteEntriesTo(self, entryTo: int) -> None:
        raise RuntimeError("the library's own compaction is switched off")

    def __getitem__(self, item: int) -> LogEntry:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def _destroy(self) -> None:
        """The environment belongs to the node."""

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        if raftCommitIndex != self._commit_hint:
            self._commit_hint = raftCommitIndex
            self._environment.stage("raft_meta", b"commit", msgspec.json.encode(raftCommitIndex))

    def getRaftCommitIndex(self) -> int:
        return self._commit_hint

    def setCurrentTerm(self, term: int, votedForNodeId: int | None) -> None:
        self._stage_meta("hard_state", HardState.sealed(term, votedForNodeId))

    def getCurrentTerm(self) -> int:
        return self._hard_state.term if self._hard_state else 0

    def getVotedForNodeId(self) -> int | None:
        return self._hard_state.vote if self._hard_state else None

    def onOneSecondTimer(self) -> None:
        """Nothing is left for a timer."""

    # What the guard and the log read, by index

    @property
    def first_index(self) -> int:
        return self._hidden[0][1] if self._hidden else self._entries[0][1]

    @property
    def last_index(self) -> int:
        return self._entries[-1][1]

    def term_at(self, index: int) -> int | None:
        """None outside of the log."""
        entry = self.entry(index)
        return None if entry is None else entry[2]

    def entry(self, index: int) -> LogEntry | None:
        """None outside of the log."""
        position = index - self._entries[0][1]
        if position >= 0:
            return self._entries[position] if position < len(self._entries) else None
        position += len(self._hidden)
        return self._hidden[position] if position >= 0 else None

    def entries(self, start: int, limit_bytes: int) -> list[LogEntry]:
        """From index `start` on, at least one if there is one, up to about that many bytes."""
        position = max(0, start - self._entries[0][1])
        stop = position
        size_bytes = 0
        while stop < len(self._entries) and (stop == position or size_bytes < limit_bytes):
            size_bytes += len(self._entries[stop][0])
            if size_bytes > limit_bytes and stop > position:
                break
            stop += 1
        return self._entries[position:stop]

    @property
    def members(self) -> tuple[Member, ...]:
        """The configuration by which raft acts: the newest in the log, committed or not."""
        return self.configuration.members

    def configuration_at(self, index: int) -> Configuration:
        """As of an entry of the log."""
        found = self._base
        for entry in self._hidden + self._entries:
            if entry[1] > index:
                break
            if entry[0][:1] != REGULAR:
                found = configured(found, entry)
        return found

    def has_change_after(self, index: int) -> bool:
        """Whether a change of members stands beyond `index`."""
        position = max(0, index + 1 - self._entries[0][1])
        return any(membership_change(entry[0]) for entry in self._entries[position:])

    # Compaction and start

    def shorten(self, first_index: int) -> None:
        """Forget the entries before `first_index`, which must be within the log."""
        count = first_index - self._entries[0][1]
        if count <= 0:
            return
        self._base = self.configuration_at(first_index)
        self._stage_meta("members", self._base)
        self._environment.stage_range_delete("raft_log", b"", _KEY.pack(first_index))
        del self._entries[:count]
        self.entries_dirty = True

    def restart_from(
        self, before_last: LogEntry, last: LogEntry, members: tuple[Member, ...]
    ) -> None:
        """Replace the whole log by the two entries that a snapshot ends with."""
        self.clear()
        self._base = Configuration(members, last[2], last[1])
        self._stage_meta("members", self._base)
        self.add(*before_last)
        self.add(*last)
        self.configuration = self._base

    def contents(self) -> Contents:
        """All that `restart_from` and `keep_snapshot` replace, for `restore`."""
        return Contents(list(self._entries), self._base, self.configuration, self.snapshot)

    def restore(self, contents: Contents) -> None:
        """Take back a restart that did not become durable."""
        self._environment.stage_range_delete("raft_log", b"", b"")
        self._entries = contents.entries
        for entry in contents.entries:
            self._stage_entry(*entry)
        self._base = contents.base
        self._stage_meta("members", contents.base)
        self.configuration = contents.configuration
        self.forget_snapshot()
        if contents.snapshot is not None:
            self.keep_snapshot(contents.snapshot)

    def keep_snapshot(self, record: SnapshotRecord) -> None:
        self.snapshot = record
        self._stage_meta("snapshot", record)

    def forget_snapshot(self) -> None:
        """The file is gone; who needs one gets the next."""
        self.snapshot = None
        self._environment.stage("raft_meta", b"snapshot", None)

    def hide_before(self, index: int) -> None:
        """Show the library a log that begins at `index`, until `reveal`."""
        count = index - self._entries[0][1]
        if count > 0:
            self._hidden, self._entries = self._entries[:count], self._entries[count:]

    def reveal(self) -> None:
        self._entries = self._hidden + self._entries
        self._hidden = []

    @property
    def dirty(self) -> bool:
        """Something that messages or ticks depend on is not durable yet."""
        return self.entries_dirty or self.hard_state_dirty

    def committed(self) -> None:
        """The environment has committed."""
        self.entries_dirty = self.hard_state_dirty = False

    # Inside

    def _last_or(self, index: int) -> int:
        return self._entries[-1][1] if self._entries else index

    def _stage_entry(self, command: bytes, index: int, term: int) -> None:
        key = _KEY.pack(index)
        crc = zlib.crc32(command, zlib.crc32(key + _KEY.pack(term)))
        self._environment.stage("raft_log", key, _HEAD.pack(term, crc) + command)
        self.entries_dirty = True

    def _stage_meta(self, name: str, value: msgspec.Struct) -> None:
        if isinstance(value, HardState):
            self._hard_state = value
            self.hard_state_dirty = True
        else:
            self.entries_dirty = True
        self._environment.stage("raft_meta", name.encode(), msgspec.json.encode(value))

    def _load(self, name: str, kind: type[_T]) -> _T | None:
        stored = self._environment.get("raft_meta", name.encode())
        if stored is None:
            return None
        try:
            return msgspec.json.decode(stored, type=kind)
        except msgspec.DecodeError as error:
            raise StorageCorrupt(
                f"{self._environment.path}/data.mdb: raft_meta {name} cannot be read: {error}. "
                f"Stop this server and {REJOIN}"
            ) from error

    def _load_entries(self) -> list[LogEntry]:
        found: list[LogEntry] = []
        for key, value in self._environment.range("raft_log", b"", b""):
            if len(key) != _KEY.size or len(value) < _HEAD.size:
                raise StorageCorrupt(
                    f"{self._environment.path}/data.mdb: raft log has {len(value)} bytes under the "
                    f"key {key.hex()}, which is no entry. Stop this server and {REJOIN}"
                )
            (index,) = _KEY.unpack(key)
            term, crc = _HEAD.unpack_from(value)
            command = value[_HEAD.size :]
            if crc != zlib.crc32(command, zlib.crc32(key + _KEY.pack(term))):
                raise self._corrupt(index, "its checksum is wrong")
            if found and index != found[-1][1] + 1:
                raise self._corrupt(index, f"the entry before it is {found[-1][1]}")
            if found and term < found[-1][2]:
                raise self._corrupt(index, f"its term {term} is below {found[-1][2]} before it")
            found.append((command, index, term))
        return found

    def _corrupt(self, index: int, why: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"{self._environment.path}/data.mdb: raft log index {index}: {why}. "
            f"Stop this server and {REJOIN}"
        )
