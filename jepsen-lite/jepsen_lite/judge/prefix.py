"""The smallest prefix of a history that no order explains already.

A prefix ends with a completion. What was asked before and is not answered by then may have happened
or not, as for anybody who looked at that moment. A prefix of a linearizable history is linearizable
too, so whether it is a violation changes once along the history, and bisection finds where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import Model
from jepsen_lite.judge.search import Order, Search, search_in_turns


class Prefix(msgspec.Struct):
    """A violation, as short as could be found."""

    operations: tuple[Operation, ...]
    """In order of invocation. What was under way at its end is an INFO in it."""
    culprit: Operation
    """The one whose completion ends it: with its answer there is no order."""
    order: Order
    """Of the others, when `exact`; else the one that came furthest."""
    exact: bool = True
    """False when time ran out before a shorter one could be excluded."""


def smallest_prefix(
    operations: Iterable[Operation], model: Model[Any], search: Search[Any], *, deadline: float
) -> Prefix:
    """The shortest prefix that is a violation. `search` has found that the whole one is; the
    deadline is of `time.thread_time()`.

    An order that got as far as the return of an operation explains every prefix before it. So it is
    looked for from there on, in steps that double: as a rule it ends right there.
    """
    operations = list(operations)
    ends = sorted(
        (each for each in operations if each.outcome is Outcome.OK),
        key=lambda each: (each.completed_ns, each.invoked_ns, each.number),
    )
    ranks = {each.number: rank for rank, each in enumerate(ends)}
    low, high = ranks[search.stuck.operation.number], len(ends) - 1
    found = search
    exact = True
    step = 0
    while low < high:
        # Doubling steps until one is a violation, then halves of what lies between.
        middle = min(low + step, high - 1) if found is search else (low + high) // 2
        step = 2 * step + 1
        attempt: Search[Any] = Search(_until(operations, ends, ranks, middle), model)
        search_in_turns([attempt], deadline)
        if attempt.found is False:
            found, high = attempt, middle
        else:
            exact = exact and attempt.found is True
            low = middle + 1
    prefix = _until(operations, ends, ranks, high)
    culprit = ends[high]
    others: Search[Any] = Search(
        [_unheard(each) if each.number == culprit.number else each for each in prefix], model
    )
    search_in_turns([others], deadline)
    if others.found:
        return Prefix(tuple(prefix), culprit, others.order, exact)
    return Prefix(tuple(prefix), culprit, found.stuck.order, False)


def _until(
    operations: list[Operation], ends: list[Operation], ranks: dict[int, int], last: int
) -> list[Operation]:
    """What was asked before the completion of this rank was over, as it was known then."""
    until = ends[last].completed_ns
    return sorted(
        (
            each if ranks.get(each.number, len(ends)) <= last else _unheard(each)
            for each in operations
            if each.invoked_ns <= until and each.outcome is not Outcome.FAIL
        ),
        key=lambda each: (each.invoked_ns, each.number),
    )


def _unheard(operation: Operation) -> Operation:
    """As it was known before its answer came."""
    return msgspec.structs.replace(
        operation, outcome=Outcome.INFO, completed_ns=0, result=None, index=0, note=""
    )
