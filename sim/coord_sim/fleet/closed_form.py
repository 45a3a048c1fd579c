"""What arithmetic says of a job's effective time, for a simulation to be measured against.

E[ETTR] = (1 - N r (u0 + d/2)) / (1 + w/d): every failure costs the restart and half an interval,
and every interval of work costs one write. It takes failures to be rare: none strikes during a
restart or a write, and each interval lost is half of `d`, not of `d + w`.
"""

from __future__ import annotations

import math

import msgspec

MINUTES_PER_DAY = 1_440.0


class Point(msgspec.Struct, frozen=True):
    """A fleet for the closed form. `restart_min` holds detection, stop, launch and loading."""

    nodes: int
    failures_per_node_day: float
    restart_min: float
    checkpoint_interval_min: float
    checkpoint_write_min: float
    printed: float = 0.0
    """The value as published, to three digits; 0 where there is none."""

    @property
    def failures_per_day(self) -> float:
        return self.nodes * self.failures_per_node_day


WORKED_POINTS = (
    Point(128, 0.005, 10.0, 60.0, 5.0, 0.907),
    Point(2_048, 0.005, 10.0, 60.0, 5.0, 0.661),
    Point(2_048, 0.005, 3.0, 10.0, 0.1, 0.934),
)
"""1,024 and 16,384 GPUs, eight to a node."""


def expected_ettr(point: Point) -> float:
    """Effective training time as a share of all time; below 0 where the formula has no meaning."""
    lost_days = (point.restart_min + point.checkpoint_interval_min / 2) / MINUTES_PER_DAY
    left = 1.0 - point.failures_per_day * lost_days
    return left / (1.0 + point.checkpoint_write_min / point.checkpoint_interval_min)


def renewal_ettr(point: Point) -> float:
    """The same without taking failures to be rare: they come in a restart and in a write too.

    With m failures in a unit of time, an interval and its write take exp(m u0) (exp(m (d + w)) - 1)
    / m on average: each failure starts it anew, after a restart that may itself fail (Daly 2006).
    """
    per_min = point.failures_per_day / MINUTES_PER_DAY
    if not per_min:
        return 1.0 / (1.0 + point.checkpoint_write_min / point.checkpoint_interval_min)
    cycle_min = point.checkpoint_interval_min + point.checkpoint_write_min
    takes_min = math.exp(per_min * point.restart_min) * math.expm1(per_min * cycle_min) / per_min
    return point.checkpoint_interval_min / takes_min
