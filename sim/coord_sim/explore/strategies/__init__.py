"""Ways to choose schedules, in the order in which a search tries them."""

from __future__ import annotations

from .base import Strategy
from .delays import Delays
from .faults import SingleFaults
from .flips import SingleFlips
from .pct import Pct
from .pos import PartialOrderSampling
from .walk import RandomWalk
from .window import Windows

__all__ = ["ALL", "Strategy"]

ALL: tuple[type[Strategy], ...] = (
    SingleFlips,
    SingleFaults,
    Delays,
    PartialOrderSampling,
    Pct,
    RandomWalk,
    Windows,
)
