"""Snapshot files on a connection of their own: whole, verified, resumed where they broke off."""

from __future__ import annotations

import asyncio
import os
from typing import IO

from coord.raft.guard_append import Message
from coord.raft.network import FetchFailed, SnapshotSource
from coord.raft.ports import Member
from coord.raft.snapshots import measure
from coord.raft.wire import FrameStream

CHUNK_BYTES = 256 * 1024
PATIENCE_S = 15.0
"""So long may nothing arrive in the middle of a file."""


async def send_file(stream: FrameStream, source: SnapshotSource, wanted: Message) -> None:
    """Everything from the offset that the follower asked for, if it has the same file begun."""
    same = wanted["digest"] == source.digest and wanted["offset"] <= source.size_bytes
    offset = wanted["offset"] if same else 0
    stream.send(
        {
            "type": "snapshot_begin",
            "snapshot_index": source.index,
            "snapshot_term": source.term,
            "size_bytes": source.size_bytes,
            "digest": source.digest,
            "offset": offset,
            "entries": list(source.entries),
            "members": [(one.node, one.peer_address, one.api_address) for one in source.members],
        }
    )
    with _opened(source.path, "rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            stream.send({"type": "snapshot_chunk", "data": chunk})
            async with asyncio.timeout(PATIENCE_S):
                await stream.drain()
    stream.send({"type": "snapshot_chunk", "data": b""})
    await stream.drain()


class Fetcher:
    """Fetches files into a directory and remembers what was begun."""

    def __init__(self) -> None:
        self._begun: dict[int, str] = {}
        """Snapshot index -> digest of the file whose first bytes are here."""

    async def fetch(self, stream: FrameStream, index: int, directory: str) -> SnapshotSource:
        """Raises FetchFailed, FrameRefused, ConnectionEnded, TimeoutError."""
        path = os.path.join(directory, f"fetch-{index:020d}")
        digest = self._begun.get(index, "")
        here = _size_bytes(path) if digest else 0
        stream.send(
            {
                "type": "snapshot_wanted",
                "snapshot_index": index,
                "offset": here,
                "digest": digest if here else "",
            }
        )
        begin = await _receive(stream, "snapshot_begin")
        if begin["snapshot_index"] != index or begin["offset"] not in (0, here):
            raise FetchFailed(f"asked for snapshot {index} from byte {here}, got {begin}")
        self._begun = {index: begin["digest"]}
        await _receive_file(stream, path, begin["offset"])
        size_bytes, found = await asyncio.to_thread(measure, path)
        if (size_bytes, found) != (begin["size_bytes"], begin["digest"]):
            os.unlink(path)
            raise FetchFailed(
                f"snapshot {index} arrived as {size_bytes} bytes of SHA-256 {found}, announced "
                f"were {begin['size_bytes']} of {begin['digest']}; it will be fetched again"
            )
        before_last, last = begin["entries"]
        return SnapshotSource(
            index=index,
            term=begin["snapshot_term"],
            size_bytes=size_bytes,
            digest=found,
            path=path,
            entries=(before_last, last),
            members=tuple(Member(*member) for member in begin["members"]),
        )


async def _receive_file(stream: FrameStream, path: str, offset: int) -> None:
    with _opened(path, "r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        while data := (await _receive(stream, "snapshot_chunk"))["data"]:
            file.write(data)


async def _receive(stream: FrameStream, kind: str) -> Message:
    async with asyncio.timeout(PATIENCE_S):
        message = await stream.receive()
    if message["type"] == "refused":
        raise FetchFailed(message["message"])
    if message["type"] != kind:
        raise FetchFailed(f"expected {kind}, got {message['type']}")
    return message


def _opened(path: str, mode: str) -> IO[bytes]:
    """On the loop: a chunk goes to the page cache, which takes a fraction of a millisecond."""
    return open(path, mode)


def _size_bytes(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0
