"""How long to wait before trying again."""

from __future__ import annotations

import random


class Backoff:
    """Doubling waits, each drawn evenly from its upper half, so that many clients spread out.

    Times are seconds of the event loop.
    """

    def __init__(self, rng: random.Random, first_s: float, limit_s: float) -> None:
        self._rng = rng
        self._first_s = first_s
        self.limit_s = limit_s
        self.failures = 0

    def next_s(self) -> float:
        """The wait after one more failure: between half of and the whole of the doubled bound."""
        bound_s = min(self.limit_s, self._first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return bound_s * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """After something worked."""
        self.failures = 0
