"""What came of one execution."""

from __future__ import annotations

import msgspec

from coord.core.state import State
from coord.model.entry import Recorded


class Violation(msgspec.Struct, frozen=True):
    """`sentence` is the property that does not hold, `detail` names what breaks it, `at` is the
    offset in `Run.records` of the entry after which it did not hold."""

    sentence: str
    detail: str
    at: int


class Run(msgspec.Struct, frozen=True):
    """One execution, from the start of the incident to where nothing more was to be learnt."""

    records: tuple[Recorded, ...]
    """Everything applied, the part before the first change included."""
    violation: Violation | None
    diverged_at: int | None
    """Offset in `records` of the first entry that is not as recorded; None without one."""
    consumed: int
    """How many of the log's entries were used as they were recorded."""
    converged_at: int | None
    """Position in the log from which on all is as recorded again; None when it never was."""
    state: State
    """After the last of `records`."""
    entries: int = 0
    """How many entries were applied for this run: what it cost."""
