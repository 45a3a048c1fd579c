"""What a run amounted to, in numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from jepsen_lite.history.journal import History
from jepsen_lite.history.operation import Operation, Outcome

READS = ("read", "get", "watch", "look", "list")


class Figures(msgspec.Struct, frozen=True):
    """Counts, and the longest time in which nobody's write was acknowledged."""

    operations: int
    ok: int
    fail: int
    info: int
    faults: int
    worst_unavailability_s: float
    seconds: float


def figures_of(history: History) -> Figures:
    """Of the time until healing began, or of all where it never did."""
    healing = [mark.at_ns for mark in history.marks if mark.name == "healing"]
    last = max(
        (operation.completed_ns or operation.invoked_ns for operation in history.operations),
        default=0,
    )
    end = healing[0] if healing else last
    counts = dict.fromkeys(Outcome, 0)
    for operation in history.operations:
        counts[operation.outcome] += 1
    return Figures(
        operations=len(history.operations),
        ok=counts[Outcome.OK],
        fail=counts[Outcome.FAIL],
        info=counts[Outcome.INFO],
        faults=len(history.faults),
        worst_unavailability_s=_longest_silence_ns(history.operations, end) / 1e9,
        seconds=end / 1e9,
    )


def _longest_silence_ns(operations: Sequence[Operation], end: int) -> int:
    """Between two acknowledgements of writes, by whichever client; from the first one on."""
    acknowledged = sorted(
        operation.completed_ns
        for operation in operations
        if operation.outcome is Outcome.OK
        and operation.action not in READS
        and operation.completed_ns <= end
    )
    edges = [*acknowledged, end]
    return max((later - earlier for earlier, later in itertools.pairwise(edges)), default=0)
