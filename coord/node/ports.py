"""What the node needs of the machine it runs on."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time. For durations the node uses the event loop's clock, which never jumps."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. May jump either way; the core bounds what that can do."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
