"""What the node needs of its storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from coord.model.entry import Recorded

REJOIN = (
    "have it rejoin: `coordctl cluster remove NODE`, move its data directory away, start it with "
    "--join and an empty one, then `coordctl cluster add NODE ...`; it fetches everything from its "
    "peers"
)
"""What to do about a server whose data is damaged. One that came back with nothing under its old
number could vote against what it had acknowledged."""


class StorageFull(Exception):
    """Nothing was written: the disk (or the map) is full. What is in memory stays right."""


class StorageCorrupt(Exception):
    """Stored bytes are not what was written. Names file, key and the command that repairs it."""


class WrongDataDirectory(Exception):
    """The directory belongs to another cluster or node, or has a newer format."""


class DataDirectoryInUse(Exception):
    """Another process has the directory open. Names its process id."""


class EventStore(Protocol):
    """Applied entries, for reading and export, and the state they led to.

    Called on the loop's thread. Reading raises StorageCorrupt for an entry that is damaged or
    missing. Appends are staged and become durable with the next commit of the
    environment (the raft log's, or `flush`); reads see staged entries at once.
    """

    def append(self, records: tuple[Recorded, ...], raft_index: int) -> None:
        """Entries just applied, of one raft entry, indexes following on the last.

        After a restart entries follow on the state's (`load_state`): later ones that were durable
        already are dropped at opening, because the raft log applies them again.
        """

    def put_state(self, changes: dict[str, dict[str, bytes | None]]) -> None:
        """Stage changed rows of the materialised state: table -> key -> encoded row or None for
        gone, together with everything appended so far. Applied in one transaction."""

    def load_state(self) -> tuple[int, dict[str, dict[str, bytes]]]:
        """(raft index, table -> key -> row) as of the last `put_state` that became durable."""

    def read(self, start: int, limit: int) -> list[Recorded]:
        """Entries from index `start` on, at most `limit`. From the first kept one if `start` is
        older; the caller sees that from the first index returned."""

    def scan(self, start: int, stop: int) -> Iterator[Recorded]:
        """Entries with start <= index < stop, from one consistent read transaction. May be drained
        in a worker thread."""

    @property
    def first_index(self) -> int:
        """Of the oldest entry kept; last_index + 1 when none is."""

    @property
    def last_index(self) -> int:
        """Of the newest entry; 0 when there never was one."""

    def base_state(self) -> bytes:
        """The encoded state just before `first_index` (`core.state.encode_state`); empty for the
        state before index 1."""

    def retain(self, first_index: int, base_state: bytes) -> None:
        """Delete entries below `first_index`; `base_state` is the state they led to. Durable on
        return. Raises ValueError for entries that the last `put_state` does not cover: a restart
        would need them."""

    def begin_snapshot(self) -> Callable[[str], None]:
        """Make everything so far durable and fix it; raises StorageFull. The function returned must
        be called once, in any thread: it writes all of it to a new file and fsyncs the file."""

    def install_snapshot(self, path: str) -> None:
        """Replace everything by what such a file of the same cluster holds, in one transaction
        together with whatever else is staged in the environment. Raises StorageCorrupt,
        WrongDataDirectory (another cluster's) and StorageFull; then nothing has changed."""

    def size_bytes(self) -> int:
        """On disk, all of the environment."""

    def flush(self) -> None:
        """Make everything staged durable now. Raises StorageFull."""
