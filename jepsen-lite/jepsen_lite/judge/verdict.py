"""What a check found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jepsen_lite.history.operation import Operation


class Verdict(StrEnum):
    """The answer of a check. For checks that are not of linearizability the first is shown as
    "holds"."""

    LINEARIZABLE = "linearizable"
    VIOLATION = "violation"
    UNKNOWN = "unknown"
    """It could not be decided, which fails a run as a violation does."""


class Judgement(msgspec.Struct):
    """What one check found, and how to see it."""

    check: str
    verdict: Verdict
    detail: str = ""
    operations: tuple[Operation, ...] = ()
    """Of a violation: the smallest prefix of the key's operations that is one already."""
    picture: str = ""
    """Of a violation: the operations around it, for a terminal of 100 columns."""
    seconds: float = 0.0
    by: str = ""
    """How it was found: "witness", "search" or "log"."""


class Log(Protocol):
    """The exported log, as far as the judge of histories asks it."""

    def indexes_of(self, token: str) -> Sequence[int]:
        """Where an entry that carries this text took part in the state, ascending: once when all
        is well. Repetitions that the state recognised (`duplicate_of`) do not count."""
        ...
