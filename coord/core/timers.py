"""When to look at something again. Derived from the state: an alarm may come early, never late."""

from __future__ import annotations

import heapq


class Timers:
    """One alarm for each (kind, key), in log time. What is due is decided from the row it names."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str]] = []
        self._due: dict[tuple[str, str], int] = {}

    def arm(self, kind: str, key: str, due_ms: int) -> None:
        """Look at it at `due_ms` or before."""
        known = self._due.get((kind, key))
        if known is None or due_ms < known:
            self._due[kind, key] = due_ms
            heapq.heappush(self._heap, (due_ms, kind, key))

    def next_due_ms(self) -> int | None:
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[tuple[str, str]]:
        """Every (kind, key) due by now, disarmed, sorted: the order never depends on the past."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            alarm = heapq.heappop(self._heap)
            if not self._stale(alarm):
                del self._due[alarm[1], alarm[2]]
                due.append((alarm[1], alarm[2]))
        return sorted(due)

    def _stale(self, alarm: tuple[int, str, str]) -> bool:
        return self._due.get((alarm[1], alarm[2])) != alarm[0]
