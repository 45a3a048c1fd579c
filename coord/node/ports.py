"""What the node needs of the machine it runs on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import structlog

CLOCK_OFFSET_LIMIT_MS = 10 * 365 * 24 * 3_600_000
"""Ten years: farther off, a time could be negative."""

log = structlog.get_logger()


class Clock(Protocol):
    """Wall time. For durations the node uses the event loop's clock, which never jumps."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump either way; the core bounds what that can do."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class OffsetClock:
    """The machine's clock and what a file says on top, for fault tests.

    The file holds whole milliseconds, such as `-1500`, and is read anew at each look. No file
    counts as 0. While it cannot be understood, the last good value stays; that is logged once.
    """

    def __init__(self, file: Path, clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock or SystemClock()
        self._offset_ms = 0
        self._complained = False

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.offset_ms()

    def offset_ms(self) -> int:
        """What is added now."""
        try:
            offset_ms = int(self._file.read_bytes())
            if abs(offset_ms) > CLOCK_OFFSET_LIMIT_MS:
                raise ValueError(f"{offset_ms} is beyond {CLOCK_OFFSET_LIMIT_MS} either way")
        except FileNotFoundError:
            offset_ms = 0
        except (OSError, ValueError) as error:
            self._complain(error)
            return self._offset_ms
        self._offset_ms = offset_ms
        self._complained = False
        return offset_ms

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        log.warning(
            "clock_offset_unreadable",
            file=str(self._file),
            error=str(error),
            keeping_ms=self._offset_ms,
            wanted="whole milliseconds, such as -1500",
        )
