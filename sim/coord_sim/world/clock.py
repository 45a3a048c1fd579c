"""A machine's wall clock, which may be wrong."""

from __future__ import annotations

from coord_sim.kernel import Kernel

EPOCH_MS = 1_800_000_000_000
"""The wall clock of a machine that is right, at virtual second 0."""


class SimClock:
    """`node.ports.Clock`: right but for a skew, which may jump and grow."""

    def __init__(self, kernel: Kernel, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        self.drift_permille = 0
        """So many thousandths too fast, from `since_s` on; negative for too slow."""
        self._since_s = kernel.now_s()
        self._kernel = kernel

    def wall_ms(self) -> int:
        passed_s = self._kernel.now_s() - self._since_s
        drift_ms = int(passed_s * self.drift_permille)
        return EPOCH_MS + int(self._kernel.now_s() * 1000) + self.skew_ms + drift_ms

    def jump(self, ms: int) -> None:
        """Forward, or back for a negative number."""
        self.skew_ms += ms

    def drift(self, permille: int) -> None:
        """Run too fast or too slow from now on, without a jump."""
        now_s = self._kernel.now_s()
        self.skew_ms += int((now_s - self._since_s) * self.drift_permille)
        self._since_s = now_s
        self.drift_permille = permille

    def set_right(self) -> None:
        """As after a look at the right time."""
        self.skew_ms = self.drift_permille = 0
