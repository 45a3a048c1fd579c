"""A relay's own period, cut into units of time. Pure arithmetic on its monotonic clock."""

from __future__ import annotations

UNITS = 50
"""About so many a period: how exactly a relay says when it heard a host."""
WINDOWS = 3
"""So often a period it says whom it heard, when nothing hurries it."""


class Wheel:
    """Times are milliseconds of one monotonic clock. A unit's number counts from `start_ms` on.

    Every period has `units` units of `unit_ms`; the last one is longer where the period cannot be
    divided, so that no unit ends later than the core takes it to (see RosterHeard).
    """

    def __init__(self, period_ms: int, start_ms: int) -> None:
        self.unit_ms = max(1, period_ms // UNITS)
        self.units = period_ms // self.unit_ms
        self._period_ms = period_ms
        self._start_ms = start_ms
        self._window = -(-self.units // WINDOWS)

    def unit_at(self, now_ms: int) -> int:
        """The unit within which this moment lies."""
        period, inside_ms = divmod(now_ms - self._start_ms, self._period_ms)
        return period * self.units + min(self.units - 1, inside_ms // self.unit_ms)

    def begin_ms(self, unit: int) -> int:
        """When the unit begins, which is when the one before it ends."""
        period, inside = divmod(unit, self.units)
        return self._start_ms + period * self._period_ms + inside * self.unit_ms

    def phase_of(self, unit: int) -> int:
        """Which unit of its period it is."""
        return unit % self.units

    def period_after(self, unit: int) -> int:
        """The first unit of the next period."""
        return unit - unit % self.units + self.units

    def window_after(self, unit: int) -> int:
        """Where a window that holds this unit ends: the first unit that it does not hold."""
        inside = unit % self.units
        return unit - inside + min(self.units, (inside // self._window + 1) * self._window)

    def phase_for(self, now_ms: int) -> int:
        """The phase of a host that beats at this moment of the period: such that it may come at
        least half a unit earlier or later and still be heard in the unit of its phase or the one
        before."""
        unit = self.unit_at(now_ms)
        late_half = 2 * (now_ms - self.begin_ms(unit)) >= self.unit_ms
        return self.phase_of(unit + late_half)
