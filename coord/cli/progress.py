"""One line on stderr that says how far a long file is, out of the way of what is printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO

INTERVAL_S = 0.1
PATIENCE_S = 0.5
"""A file that is done sooner needs no progress line."""


class ProgressLine:
    """Shown only on a terminal. `clear` before anything else is printed."""

    def __init__(
        self, stream: IO[str], total_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._total_bytes = max(total_bytes, 1)
        self._clock = clock
        self._started_s = clock()
        self._next_s = self._started_s + PATIENCE_S
        self._shown = False
        self._enabled = stream.isatty()

    def update(self, offset_bytes: int, entries: int) -> None:
        """Show how far it is, at most ten times a second."""
        if not self._enabled:
            return
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        share = min(100 * offset_bytes // self._total_bytes, 100)
        rate = int(entries / max(now_s - self._started_s, 0.001))
        self._stream.write(f"\r\x1b[K{share:3d}%  {entries:,} entries, {rate:,} a second")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Leave the line empty, if anything is on it."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
