"""How much one conversation may ask, and how often a cause is logged. Pure."""

from __future__ import annotations

from typing import Any

import structlog

AGAIN_S = 60.0
"""A cause that goes on is logged again after so long, with how often it was met."""
LEAST_WAIT_S = 0.05

log = structlog.get_logger()


class TokenBucket:
    """`rate_per_s` in the long run, `burst` at once. Times are of one monotonic clock."""

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._at_s = now_s

    def take(self, count: int, now_s: float) -> bool:
        """Whether there was room. More than a burst finds room when the bucket is full."""
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._rate_per_s)
        self._at_s = now_s
        if self._tokens < min(count, self._burst):
            return False
        self._tokens -= count
        return True

    def wait_s(self, count: int) -> float:
        """Until there will be room, and never so short that waiting costs more than refusing."""
        return max(LEAST_WAIT_S, (min(count, self._burst) - self._tokens) / self._rate_per_s)


class Complaints:
    """Logs a cause when it is first met, then once in a while: floods do not flood the log."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, int]] = {}

    def tell(self, cause: str, now_s: float, **fields: Any) -> bool:
        """Whether it was logged. `cause` must be one of few words, not made by senders."""
        at_s, times = self._told.get(cause, (now_s - AGAIN_S, 0))
        if now_s - at_s < AGAIN_S:
            self._told[cause] = (at_s, times + 1)
            return False
        self._told[cause] = (now_s, 0)
        log.warning(cause, times=times + 1, **fields)
        return True
