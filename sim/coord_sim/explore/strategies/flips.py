"""Every pair of concurrent events that do not commute, in the other order, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from coord_sim.explore.conflicts import NEAREST
from coord_sim.explore.schedule import AnyChange, Flip

from .base import Strategy


class SingleFlips(Strategy):
    """The nearest pairs first: the less a message must be late, the likelier it is."""

    name = "single flips"
    share = 0.2

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        for first, second in self.conflicts.flips():
            yield (Flip(first, second),)

    def bound(self, finished: bool) -> str:
        pruned = f" within {NEAREST} of each sender, {self.conflicts.commuting} pairs commute"
        if finished:
            return f"single flips: all {self.tried} tried{pruned}"
        return f"single flips: {self.tried} tried, more left{pruned}"
