"""What the raft log needs of a network, so that it runs on sockets and in a simulation alike."""

from __future__ import annotations

from typing import Protocol

import msgspec

from coord.raft.configuration import LogEntry
from coord.raft.guard_append import Message
from coord.raft.ports import Member


class SnapshotSource(msgspec.Struct, frozen=True):
    """A snapshot file with what a follower needs beside it. `entries` are the last two entries
    that it holds, `members` the configuration as of the last."""

    index: int
    term: int
    size_bytes: int
    digest: str
    path: str
    entries: tuple[LogEntry, LogEntry]
    members: tuple[Member, ...]


class FetchFailed(Exception):
    """The snapshot could not be fetched now. What arrived is kept and need not be fetched again."""


class PeerHandler(Protocol):
    """Called by the network, on the event loop.

    `epoch` numbers the connections to a peer, ascending; a newer one supersedes the older.
    """

    def version(self) -> tuple[int, int]:
        """Of the configuration that we know, for the other side's `accepts`."""

    def accepts(self, node: int, version: tuple[int, int]) -> bool:
        """Whether this node may talk to us: it is a member, or knows newer members than we do."""

    def connected(self, node: int, epoch: int) -> None: ...
    def disconnected(self, node: int, epoch: int) -> None: ...
    def received(self, node: int, epoch: int, message: Message) -> None: ...
    def snapshot_source(self, index: int) -> SnapshotSource | None:
        """The file to send for this snapshot, None if it is gone."""


class PeerNetwork(Protocol):
    """Connections to the other members, kept up by themselves."""

    async def start(self, handler: PeerHandler) -> None:
        """Listen and connect. Raises OSError if the address cannot be had."""

    async def stop(self) -> None:
        """Close everything; no callback comes after."""

    def add_peer(self, member: Member) -> None:
        """Keep a connection to this member, from now on, at its (new) address."""

    def drop_peer(self, node: int) -> None:
        """Close the connection and do not connect again."""

    def send(self, node: int, message: Message) -> bool:
        """False when certainly nothing was sent: no connection, or its buffer is full."""

    async def fetch_snapshot(self, node: int, index: int, directory: str) -> SnapshotSource:
        """Fetch a snapshot file into `directory`, whole and verified. Raises FetchFailed."""
