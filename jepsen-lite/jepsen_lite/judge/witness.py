"""The log's own order as proof: whoever acknowledges with an index says where it happened.

Writes of a key in order of their indexes, and behind each of them the reads that saw its state, are
a candidate for a linearization. It is one if real time agrees and every answer is the model's.
Reads between two writes may stand in any order, for nothing changes there: they are sorted by
invocation, so among themselves they never disagree with real time. One sort, one pass.

A candidate that fails proves nothing but itself: another order may do, and `judge.search` looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import UNKNOWN, Model

NEVER = 1 << 62
"""Nanoseconds: when an INFO is over."""

_by_index = attrgetter("index")
_by_index_and_time = attrgetter("index", "invoked_ns")


class Log(Protocol):
    """The exported log, as far as the judge of histories asks it."""

    @property
    def start_index(self) -> int:
        """The first index it holds; 1 when it goes back to the beginning."""
        ...

    @property
    def cut_off(self) -> str:
        """Why its end is missing; empty when it is there."""
        ...

    @property
    def damage(self) -> str:
        """What of it cannot be read; empty when all can."""
        ...

    def indexes_of(self, token: str) -> Sequence[int]:
        """Where an entry that carries this text was decided, accepted or refused, ascending: once
        when all is well. Repetitions that the state recognised (`duplicate_of`) do not count."""
        ...


class Settled(msgspec.Struct):
    """Operations as far as the log tells what became of them."""

    operations: list[Operation] = []
    """With an index wherever the log has one. An INFO that is not in a log which is whole did not
    happen, and is left out."""
    absent: int = 0
    """How many were left out."""
    twice: list[tuple[Operation, Sequence[int]]] = []
    """What stands in the log more than once, and where."""


def settle(operations: Iterable[Operation], log: Log | None) -> Settled:
    """Leave out what failed, and ask the log about what has no index yet."""
    settled = Settled()
    keep = settled.operations.append
    whole = log is not None and log.start_index <= 1 and not log.cut_off and not log.damage
    failed, info = Outcome.FAIL, Outcome.INFO
    for operation in operations:
        if operation.outcome is failed:
            continue
        if log is None or not operation.token:
            keep(operation)
            continue
        indexes = log.indexes_of(operation.token)
        if len(indexes) > 1:
            settled.twice.append((operation, indexes))
        if indexes and not operation.index:
            keep(msgspec.structs.replace(operation, index=indexes[0]))
        elif not indexes and whole and operation.outcome is info:
            settled.absent += 1
        else:
            keep(operation)
    return settled


def why_not(operations: Iterable[Operation], model: Model[Any]) -> str:
    """Why the log's order does not explain these operations of one key, of which none has failed;
    empty when it does, which proves them linearizable. An INFO without an index is taken not to
    have happened, as nobody can deny."""
    writes: list[Operation] = []
    looks: list[Operation] = []
    info = Outcome.INFO
    only_looks = model.only_looks
    for operation in operations:
        if operation.outcome is info:
            if operation.index and not only_looks(operation.action, UNKNOWN):
                writes.append(operation)
        elif not operation.index:
            return f"operation {operation.number} has no index"
        elif only_looks(operation.action, operation.result):
            looks.append(operation)
        else:
            writes.append(operation)
    writes.sort(key=_by_index)
    looks.sort(key=_by_index_and_time)
    return _first_contradiction(writes, looks, model)


def _first_contradiction(writes: list[Operation], looks: list[Operation], model: Model[Any]) -> str:
    info = Outcome.INFO
    step = model.step
    state = model.initial()
    newest = 0  # the latest invocation among the operations placed so far
    index = at = 0
    for write in [*writes, None]:
        until = NEVER if write is None else write.index
        if until == index:
            return f"two writes have the index {index}"
        index = until
        reached = newest
        while at < len(looks) and looks[at].index < until:
            look = looks[at]
            if look.completed_ns < newest:
                return (
                    f"operation {look.number} saw index {look.index}, which is too new or too old"
                )
            if step(state, look.action, look.argument, look.result) is None:
                return f"operation {look.number} saw another state than that of {look.index}"
            reached = max(reached, look.invoked_ns)
            at += 1
        if write is None:
            return ""
        newest = reached
        known = write.outcome is not info
        if known and write.completed_ns < newest:
            return f"operation {write.number} was over before what its index {index} follows"
        state = step(state, write.action, write.argument, write.result if known else UNKNOWN)
        if state is None:
            return f"operation {write.number} cannot be answered so at index {index}"
        newest = max(newest, write.invoked_ns)
    raise AssertionError("the end is always reached")
