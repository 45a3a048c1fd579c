"""Writes on their way to the disk, and how a read sees them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

Item = tuple[bytes, bytes]


class Staged:
    """The effect of a sequence of puts and deletes, as deleted ranges and then single keys.

    Equal to the sequence in order: deleting a range drops the keys staged in it, and a key staged
    afterwards stands above the range.
    """

    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, bytes | None]] = {}
        self._ranges: dict[str, list[tuple[bytes, bytes]]] = {}

    def __bool__(self) -> bool:
        return bool(self._keys or self._ranges)

    def put(self, database: str, key: bytes, value: bytes | None) -> None:
        self._keys.setdefault(database, {})[key] = value

    def delete_range(self, database: str, start: bytes, stop: bytes) -> None:
        """An empty `stop` is no bound."""
        keys = self._keys.get(database, {})
        for key in [key for key in keys if _within(key, start, stop)]:
            del keys[key]
        self._ranges.setdefault(database, []).append((start, stop))

    def deleted_ranges(self) -> Iterator[tuple[str, bytes, bytes]]:
        for database, ranges in self._ranges.items():
            for start, stop in ranges:
                yield database, start, stop

    def writes(self) -> Iterator[tuple[str, bytes, bytes | None]]:
        """Single keys by database, ascending, which is the order that LMDB writes fastest."""
        for database, keys in self._keys.items():
            for key in sorted(keys):
                yield database, key, keys[key]

    def size_bytes(self) -> int:
        """Of the keys and values to be written."""
        return sum(
            len(key) + len(value or b"")
            for keys in self._keys.values()
            for key, value in keys.items()
        )

    def lookup(self, database: str, key: bytes) -> tuple[bool, bytes | None]:
        """Whether the staged writes decide this key, and then its value or None for gone."""
        keys = self._keys.get(database, {})
        if key in keys:
            return True, keys[key]
        return self._is_deleted(database, key), None

    def tail(self, database: str, start: bytes, stop: bytes) -> list[Item]:
        """Staged keys of the range that hold a value, ascending."""
        keys = self._keys.get(database, {})
        found = [
            (key, value)
            for key, value in keys.items()
            if value is not None and _within(key, start, stop)
        ]
        return sorted(found)

    def merge(
        self, database: str, durable: Iterable[Item], start: bytes, stop: bytes
    ) -> Iterator[Item]:
        """What a read of the range must give: `durable`, ascending, with what is staged."""
        return heapq.merge(self._still(database, durable), self.tail(database, start, stop))

    def merge_backwards(self, database: str, durable: Iterable[Item]) -> Iterator[Item]:
        """The whole database, descending."""
        staged = self.tail(database, b"", b"")[::-1]
        return heapq.merge(self._still(database, durable), staged, reverse=True)

    def _still(self, database: str, durable: Iterable[Item]) -> Iterator[Item]:
        """Durable items that no staged write replaces or deletes."""
        keys = self._keys.get(database, {})
        for item in durable:
            if item[0] not in keys and not self._is_deleted(database, item[0]):
                yield item

    def _is_deleted(self, database: str, key: bytes) -> bool:
        return any(_within(key, start, stop) for start, stop in self._ranges.get(database, ()))


def _within(key: bytes, start: bytes, stop: bytes) -> bool:
    return key >= start and (not stop or key < stop)
