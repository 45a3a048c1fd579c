"""What lies where in a server's data file: LMDB 0.9's pages and rows, read without LMDB.

Reading by hand tells the byte at which a row stands, and which copy of it is in use, which LMDB
does not say. The layout is that of `lmdb.h` and `mdb.c` on 64-bit little-endian machines.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jepsen_lite.disks.port import DiskError

_MAGIC = 0xBEEFC0DE
_PAGE = struct.Struct("<QHHHH")
"""Number, padding, flags, end of the pointers, begin of the nodes."""
_META = struct.Struct("<IIQQ")
_DATABASE = struct.Struct("<IHHQQQQQ")
_META_TAIL = struct.Struct("<QQ")
_NODE = struct.Struct("<HHHH")
_NUMBER = struct.Struct("<Q")
_BRANCH, _LEAF, _META_PAGE = 1, 2, 8
_BIG, _SUB = 1, 2
_NO_PAGE = 2**64 - 1


class Row(msgspec.Struct, frozen=True):
    """A row in use. `offset` is where its value begins in the file."""

    database: str
    key: bytes
    page: int
    offset: int
    size_bytes: int


class DataFile:
    """The newest durable contents of `data.mdb`. Raises DiskError for what is no such file."""

    def __init__(self, path: Path) -> None:
        try:
            self._content = path.read_bytes()
        except OSError as error:
            raise DiskError(f"{path} cannot be read: {error.strerror}") from error
        self._where = path
        self.page_bytes, self._main = self._newest_meta()

    def rows(self) -> Iterator[Row]:
        """All rows of all databases, by name of the database and then by key."""
        for name, root in self.databases():
            for row, _ in self._rows(name, root):
                yield row

    def databases(self) -> list[tuple[str, int]]:
        """Names and root pages of those that hold anything."""
        found = []
        for row, flags in self._rows("", self._main):
            if flags & _SUB:
                root = _DATABASE.unpack_from(self._content, row.offset)[7]
                found.append((row.key.decode(), root))
        return [(name, root) for name, root in found if root != _NO_PAGE]

    def _newest_meta(self) -> tuple[int, int]:
        page_bytes = self._meta(0)[0]
        newest = max((self._meta(place) for place in (0, page_bytes)), key=lambda meta: meta[2])
        return newest[:2]

    def _meta(self, at: int) -> tuple[int, int, int]:
        """Page size, root of the main database, transaction."""
        start = at + _PAGE.size
        size_bytes = start + _META.size + 2 * _DATABASE.size + _META_TAIL.size
        if len(self._content) < size_bytes or self._at(_META, start)[0] != _MAGIC:
            raise DiskError(f"{self._where} is no data file of a server")
        free = self._at(_DATABASE, start + _META.size)
        main = self._at(_DATABASE, start + _META.size + _DATABASE.size)
        transaction = self._at(_META_TAIL, start + _META.size + 2 * _DATABASE.size)[1]
        return free[0], main[7], transaction

    def _rows(self, database: str, page: int) -> Iterator[tuple[Row, int]]:
        """The rows below a page, with the flags of their nodes."""
        if page == _NO_PAGE:
            return
        start = page * self.page_bytes
        _, _, flags, lower, _ = self._at(_PAGE, start)
        for place in range(start + _PAGE.size, start + lower, 2):
            node = start + int.from_bytes(self._content[place : place + 2], "little")
            low, high, node_flags, key_bytes = self._at(_NODE, node)
            key_at = node + _NODE.size
            if flags & _BRANCH:
                yield from self._rows(database, low | high << 16 | node_flags << 32)
                continue
            if not flags & _LEAF:
                raise DiskError(f"{self._where}: page {page} is neither branch nor leaf")
            at, on = key_at + key_bytes, page
            key = self._content[key_at:at]
            if node_flags & _BIG:
                (on,) = self._at(_NUMBER, at)
                at = on * self.page_bytes + _PAGE.size
            yield Row(database, key, on, at, low | high << 16), node_flags

    def _at(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        try:
            return layout.unpack_from(self._content, offset)
        except struct.error as error:
            raise DiskError(f"{self._where} is cut off or damaged at byte {offset}") from error
