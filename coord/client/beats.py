"""When to beat, and up to when the lease is known to hold. Pure bookkeeping."""

from __future__ import annotations

import random

from coord.model.channel import Beat


class Beats:
    """Times are the event loop's, in seconds.

    The first beat after a registration falls evenly into one period, so that a fleet started at
    once is spread; from then on they come at equal distances, whatever happens: a relay expects
    them at their place within the period. A beat that a slow registration or a reconnection makes
    urgent is sent at once, besides.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.period_s = 1.0
        self._scheduled_s = 0.0
        self._at_once = False
        self.acknowledged_s: float | None = None
        """When the newest acknowledged beat was sent."""
        self._slot = 0
        self._incarnation = 0
        self._sequence = 0
        self._sent_s: dict[int, float] = {}

    @property
    def waiting_since_s(self) -> float | None:
        """When the oldest beat of this connection without an acknowledgement was sent."""
        return next(iter(self._sent_s.values()), None)

    @property
    def next_s(self) -> float:
        """When the next beat is due; 0 for at once."""
        return 0.0 if self._at_once else self._scheduled_s

    def begin(self, slot: int, incarnation: int, sent_s: float, now_s: float) -> None:
        """A registration was decided. It was first sent at `sent_s`, which counts as a beat."""
        self._slot = slot
        self._incarnation = incarnation
        self._sent_s.clear()
        self.acknowledged_s = sent_s
        # One that took long left little of its lease: beat at once.
        self._at_once = now_s - sent_s > self.period_s
        self._scheduled_s = now_s + self._rng.uniform(0.0, self.period_s)

    def connection_lost(self) -> None:
        """No beat under way will be acknowledged; the next one is due now."""
        self._sent_s.clear()
        self._at_once = True

    def due(self, now_s: float) -> bool:
        return now_s >= self.next_s

    def beat(self, now_s: float, seen_plan: int) -> Beat:
        """The beat to send now. Missed ones are not made up for."""
        self._at_once = False
        if self._scheduled_s <= now_s:
            missed = (now_s - self._scheduled_s) // self.period_s
            self._scheduled_s += (missed + 1) * self.period_s
        self._sequence += 1
        self._sent_s[self._sequence] = now_s
        return Beat(self._slot, self._incarnation, seen_plan, self._sequence)

    def seen(self, sequence: int) -> None:
        """The beat with this sequence, and so every earlier one, is in the log."""
        sent_s = self._sent_s.get(sequence)
        if sent_s is None:
            return
        for older in [one for one in self._sent_s if one <= sequence]:
            del self._sent_s[older]
        if self.acknowledged_s is None or sent_s > self.acknowledged_s:
            self.acknowledged_s = sent_s
