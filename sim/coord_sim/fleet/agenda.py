"""What is to happen when, in milliseconds; the fleet model's only clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

BEATS = 0
"""Of what falls on one millisecond, what was heard comes first,"""
USUAL = 1
VERDICTS = 2
"""and what is judged comes last."""


class Agenda:
    """Calls in order of time, then of kind, then of entry: the same for the same seed."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._entered = 0

    def at(self, due_ms: int, call: Callable[..., None], *args: Any, order: int = USUAL) -> None:
        """Call it then; what would be in the past is done next."""
        self._entered += 1
        due_ms = max(due_ms, self.now_ms)
        heapq.heappush(self._heap, (due_ms, order, self._entered, call, args))

    def after(self, delay_ms: int, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now_ms + delay_ms, call, *args)

    def next_due(self) -> tuple[int, int] | None:
        """(when, of which kind) the next call is; None when there is nothing to do."""
        return self._heap[0][:2] if self._heap else None

    def take(self) -> None:
        """Make the next call."""
        due_ms, _, _, call, args = heapq.heappop(self._heap)
        self.now_ms = due_ms
        call(*args)
