"""One line on stderr while a search goes on: how far, what is tried, how fast, what was found."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO

from coord.cli.wording import count_text
from coord_sim.explore.found import Progress

INTERVAL_S = 0.1
PATIENCE_S = 0.3
"""What is done sooner needs no progress line."""
BAR = 24


class SearchLine:
    """Shown only on a terminal. `clear` before anything else is printed."""

    def __init__(
        self,
        stream: IO[str],
        budget_s: float | None,
        schedules: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._budget_s = budget_s
        self._schedules = schedules
        self._clock = clock
        self._started_s = clock()
        self._next_s = self._started_s + PATIENCE_S
        self._shown = False
        self._enabled = stream.isatty()

    def searching(self, progress: Progress, findings: int) -> None:
        """Show how far the search is, at most ten times a second."""
        now_s = self._now_s()
        if now_s is None:
            return
        elapsed_s = max(now_s - self._started_s, 0.001)
        if self._schedules:
            share = progress.schedules / self._schedules
        else:
            share = progress.cpu_s / self._budget_s if self._budget_s else 1.0
        under_way = [one for one in progress.strategies if one.schedules and not one.finished]
        name = under_way[-1].name if under_way else ""
        told = [
            bar(share),
            name,
            count_text(progress.schedules, "schedule"),
            f"{progress.schedules / elapsed_s:,.0f}/s",
            count_text(findings, "finding"),
        ]
        self._show("  ".join(word for word in told if word))

    def shrinking(self, done: int, of: int) -> None:
        """Show which finding is being shrunk."""
        if self._now_s() is not None:
            self._show(f"{bar(done / max(of, 1))}  shrinking {done + 1} of {of}")

    def reading(self, offset_bytes: int, total_bytes: int, entries: int) -> None:
        """Show how far the file is read."""
        if self._now_s() is not None:
            share = offset_bytes / max(total_bytes, 1)
            self._show(f"{bar(share)}  replaying  {entries:,} entries")

    def clear(self) -> None:
        """Leave the line empty, if anything is on it."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def _now_s(self) -> float | None:
        """The time if something is to be shown now."""
        if not self._enabled:
            return None
        now_s = self._clock()
        if now_s < self._next_s:
            return None
        self._next_s = now_s + INTERVAL_S
        return now_s

    def _show(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()
        self._shown = True


def bar(share: float) -> str:
    """`[######..................]  25%`"""
    part = min(max(share, 0.0), 1.0)
    filled = int(part * BAR)
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {100 * part:3.0f}%"
