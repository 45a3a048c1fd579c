"""Time on the page."""

from __future__ import annotations

import msgspec

NARROWEST_PX, WIDEST_PX = 1_070, 8_000
PX_PER_S = 14.0
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
TICK_PX = 70


class Scale(msgspec.Struct, frozen=True):
    """From nanoseconds to pixels. Histories of others count edges instead; their `unit_ns` is 1."""

    end_ns: int
    unit_ns: int = 1_000_000_000
    unit: str = "s"

    @property
    def units(self) -> float:
        return max(self.end_ns / self.unit_ns, 0.001)

    @property
    def width(self) -> int:
        """Long runs are wider than a screen, and scrolled."""
        return int(min(max(self.units * PX_PER_S, NARROWEST_PX), WIDEST_PX))

    def x(self, at_ns: int) -> float:
        """To a tenth of a pixel, within the page."""
        return round(min(max(at_ns, 0), self.end_ns) / max(self.end_ns, 1) * self.width, 1)

    def at(self, x: float) -> float:
        """In units."""
        return x / self.width * self.units

    def ticks(self) -> list[tuple[float, str]]:
        """(x, label) along the axis."""
        wanted = self.units / self.width * TICK_PX
        step = next((step for step in STEPS if step >= wanted), STEPS[-1])
        marks = range(0, int(self.units) + 1, step)
        return [
            (
                self.x(mark * self.unit_ns),
                f"{self.unit} {mark:,}" if self.unit_ns == 1 else f"{mark:,} {self.unit}",
            )
            for mark in marks
        ]

    def moment(self, at_ns: int) -> str:
        """`12.345 s`"""
        if self.unit_ns == 1:
            return f"{self.unit} {at_ns}"
        return f"{at_ns / self.unit_ns:.3f} {self.unit}"
