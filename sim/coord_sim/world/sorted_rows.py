"""One database of a simulated disk: keys in order, with their values."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

Item = tuple[bytes, bytes]


class SortedRows:
    """A dict that knows its order. Appending at the end is the fast case."""

    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def copy(self) -> SortedRows:
        copied = SortedRows()
        copied.values = dict(self.values)
        copied.keys = list(self.keys)
        return copied

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            if not self.keys or key > self.keys[-1]:
                self.keys.append(key)
            else:
                insort(self.keys, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def delete_range(self, start: bytes, stop: bytes) -> list[Item]:
        """What was there, with start <= key < stop (empty: no bound)."""
        first, last = self._bounds(start, stop)
        gone = [(key, self.values.pop(key)) for key in self.keys[first:last]]
        del self.keys[first:last]
        return gone

    def range(self, start: bytes, stop: bytes, limit: int | None = None) -> list[Item]:
        """With start <= key < stop (empty: no bound), ascending."""
        first, last = self._bounds(start, stop)
        if limit is not None:
            last = min(last, first + limit)
        values = self.values
        return [(key, values[key]) for key in self.keys[first:last]]

    def backwards(self) -> Iterator[Item]:
        return ((key, self.values[key]) for key in reversed(self.keys))

    def first(self) -> Item | None:
        return (self.keys[0], self.values[self.keys[0]]) if self.keys else None

    def last(self) -> Item | None:
        return (self.keys[-1], self.values[self.keys[-1]]) if self.keys else None

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.values.items())

    def _bounds(self, start: bytes, stop: bytes) -> tuple[int, int]:
        first = bisect_left(self.keys, start) if start else 0
        last = bisect_left(self.keys, stop) if stop else len(self.keys)
        return first, max(first, last)
