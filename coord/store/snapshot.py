"""Snapshot files: everything a node knows at one raft index, for its peers.

    magic | u32 header length | header (JSON) | zstd stream of rows | SHA-256 of all before

A row is u32 key length, u32 value length, key, value. First comes the base state (key empty), then
the rows of the state, then the entries, as many of each as the header says.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import IO, cast

import msgspec
import zstandard

from coord.store.ports import StorageCorrupt, WrongDataDirectory

MAGIC = b"coord-snapshot\n"
FORMAT = 1
_DIGEST_BYTES = 32
_CHUNK_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")
_LENGTHS = struct.Struct(">II")

Item = tuple[bytes, bytes]


class SnapshotHeader(msgspec.Struct, frozen=True):
    """What a snapshot holds: entries `first_index` to `last_index` and the state after the last."""

    cluster: str
    raft_index: int
    first_index: int
    last_index: int
    state_rows: int
    entries: int
    format: int = FORMAT


def write_snapshot(
    path: str,
    header: SnapshotHeader,
    base_state: bytes,
    state_rows: Iterable[Item],
    entries: Iterable[Item],
) -> None:
    """Write the file and fsync it. A file that was not finished does not pass `verify_snapshot`."""
    with open(path, "wb") as file:
        sink = _HashedSink(file)
        encoded = msgspec.json.encode(header)
        sink.write(MAGIC + _LENGTH.pack(len(encoded)) + encoded)
        with zstandard.ZstdCompressor(level=3).stream_writer(
            cast(IO[bytes], sink), closefd=False
        ) as stream:
            for items in ([(b"", base_state)], state_rows, entries):
                for key, value in items:
                    stream.write(_LENGTHS.pack(len(key), len(value)) + key + value)
        file.write(sink.digest())
        file.flush()
        os.fsync(file.fileno())


def verify_snapshot(path: str, cluster: str) -> SnapshotHeader:
    """Read the whole file and return its header. Raises StorageCorrupt, and WrongDataDirectory for
    another cluster's or a newer format."""
    size_bytes = os.stat(path).st_size
    hashed = hashlib.sha256()
    left_bytes = size_bytes - _DIGEST_BYTES
    with open(path, "rb") as file:
        while left_bytes > 0:
            chunk = file.read(min(left_bytes, _CHUNK_BYTES))
            hashed.update(chunk)
            left_bytes -= len(chunk)
        if left_bytes < 0 or file.read() != hashed.digest():
            raise _corrupt(path, f"its {size_bytes} bytes do not match the SHA-256 at their end")
        file.seek(0)
        header = _read_header(path, file)
    if header.format > FORMAT:
        raise WrongDataDirectory(
            f"{path} has snapshot format {header.format}, this release reads up to {FORMAT}; "
            "upgrade this server"
        )
    if header.cluster != cluster:
        raise WrongDataDirectory(f"{path} is of cluster {header.cluster!r}, not {cluster!r}")
    return header


class SnapshotReader:
    """The contents of a verified file, to be read in the order of the methods, once."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path = path
        file.seek(0)
        self.header = _read_header(path, file)
        self._stream = zstandard.ZstdDecompressor().stream_reader(file, closefd=False)

    def base_state(self) -> bytes:
        return self._row()[1]

    def state_rows(self) -> Iterator[Item]:
        return (self._row() for _ in range(self.header.state_rows))

    def entries(self) -> Iterator[Item]:
        return (self._row() for _ in range(self.header.entries))

    def _row(self) -> Item:
        key_length, value_length = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        return self._exactly(key_length), self._exactly(value_length)

    def _exactly(self, size_bytes: int) -> bytes:
        parts = []
        while size_bytes:
            part = self._stream.read(size_bytes)
            if not part:
                raise _corrupt(self._path, "it holds fewer rows than its header says")
            parts.append(part)
            size_bytes -= len(part)
        return b"".join(parts)


class _HashedSink:
    """A file that knows the SHA-256 of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hashed = hashlib.sha256()

    def write(self, chunk: bytes) -> int:
        self._hashed.update(chunk)
        return self._file.write(chunk)

    def digest(self) -> bytes:
        return self._hashed.digest()


def _read_header(path: str, file: IO[bytes]) -> SnapshotHeader:
    if file.read(len(MAGIC)) != MAGIC:
        raise _corrupt(path, "it does not begin as a snapshot does")
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    try:
        return msgspec.json.decode(file.read(length), type=SnapshotHeader)
    except msgspec.DecodeError as error:
        raise _corrupt(path, f"its header cannot be read: {error}") from error


def _corrupt(path: str, why: str) -> StorageCorrupt:
    return StorageCorrupt(f"{path} is no whole snapshot: {why}; fetch it again from a peer")
