"""What a search yields, and how far it has come."""

from __future__ import annotations

import msgspec

from .run import Run
from .schedule import Schedule


class Found(msgspec.Struct, frozen=True):
    """An execution that breaks a property: `run.violation` says which."""

    schedule: Schedule
    run: Run
    strategy: str
    schedules_so_far: int
    """Executions of the whole search until this one, this one included."""
    cpu_s: float
    """CPU seconds of the whole search until then."""


class StrategyProgress(msgspec.Struct, frozen=True):
    """How far one strategy came. `consumed_*` are shares, in thousandths, of the log's entries
    that an execution used as they were recorded."""

    name: str
    schedules: int = 0
    found: int = 0
    cpu_s: float = 0.0
    share_s: float = 0.0
    """What it was given: its own share, and what earlier ones had left."""
    consumed_median: int = 0
    consumed_min: int = 0
    bound: str = ""
    """What was tried completely, or how far it came: `single flips: all 214 tried`."""
    finished: bool = False
    """It had nothing more to try."""


class Progress(msgspec.Struct, frozen=True):
    """Of a whole search; `strategies` in the order in which they are tried."""

    strategies: tuple[StrategyProgress, ...]
    schedules: int = 0
    cpu_s: float = 0.0
    budget_s: float = 0.0
    note: str = ""
    """Set when there was no budget and only the log itself was replayed."""
