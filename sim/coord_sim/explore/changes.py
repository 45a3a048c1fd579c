"""In which order the log's events arrive once a schedule's changes are made."""

from __future__ import annotations

from .order import PartialOrder
from .schedule import (
    AnyChange,
    Delay,
    Drop,
    Duplicate,
    Flip,
    InFlight,
    LeaderChange,
    Reorder,
    Schedule,
    first_position,
)


class Script:
    """Positions `first .. last - 1` arrive as `sequence` says, later ones as recorded."""

    def __init__(self, first: int, last: int, sequence: list[int]) -> None:
        self.first = first
        self.last = last
        self.sequence = sequence
        self.place: dict[int, int] = {}
        """Position -> where it stands in the sequence."""
        self.before: dict[int, list[AnyChange]] = {}
        """Position -> faults that happen just before it."""
        self.after: dict[int, list[AnyChange]] = {}
        """Position -> faults that happen just after it."""
        self.copies: dict[int, list[int]] = {}
        """Position -> the events that arrive again just after it."""
        self.dropped: dict[int, bool] = {}
        """Positions of what is lost under way."""
        self.elections: list[int] = []
        """Positions before which another leader is elected, ascending."""

    def trim(self) -> None:
        """Leave out what is as recorded at either end."""
        struck = {**self.before, **self.after, **self.copies, **self.dropped}
        sequence = self.sequence

        def as_is(found: int, recorded: int) -> bool:
            return found == recorded and recorded not in struck

        begin, end = 0, len(sequence)
        while end > begin and as_is(sequence[end - 1], self.last - 1):
            end -= 1
            self.last -= 1
        while begin < end and as_is(sequence[begin], self.first):
            begin += 1
            self.first += 1
        self.sequence = sequence[begin:end]
        self.place = {position: at for at, position in enumerate(self.sequence)}

    def skip(self, steps: int) -> None:
        """What strikes at the first steps of the sequence has struck."""
        for position in self.sequence[:steps]:
            for struck in (self.before, self.after, self.copies, self.dropped):
                struck.pop(position, None)

    def terms_gained(self, position: int) -> int:
        """By how much the term of that event is higher than it was recorded."""
        return sum(1 for at in self.elections if at <= position)


def script_of(schedule: Schedule, order: PartialOrder, size: int) -> Script:
    """Raises ValueError for a change of what the log does not have."""
    if not schedule.changes:
        return Script(size, size, [])
    for change in schedule.changes:
        _check(change, size)
    first = min(first_position(change) for change in schedule.changes)
    last = max(_last_position(change) for change in schedule.changes) + 1
    sequence = list(range(first, last))
    for change in schedule.changes:
        if isinstance(change, Flip):
            sequence = _held_back(sequence, change.first, change.second, order, causal=True)
        elif isinstance(change, Delay):
            sequence = _held_back(sequence, change.at, change.until_after, order, causal=False)
        elif isinstance(change, Reorder):
            sequence = _reordered(sequence, change)
    script = Script(first, last, sequence)
    for change in schedule.changes:
        if isinstance(change, Drop):
            script.dropped[change.at] = True
        elif isinstance(change, Duplicate):
            script.copies.setdefault(change.again_after, []).append(change.at)
        elif isinstance(change, LeaderChange):
            _elect(script, change)
        elif not isinstance(change, Flip | Delay | Reorder):
            script.before.setdefault(change.at, []).append(change)
    script.elections.sort()
    script.trim()
    return script


def _elect(script: Script, change: LeaderChange) -> None:
    """What was committed stands in the log before the election, all else after it."""
    if change.in_flight is InFlight.COMMITTED_UNANSWERED:
        script.after.setdefault(change.at, []).append(change)
        script.elections.append(change.at + 1)
        return
    script.before.setdefault(change.at, []).append(change)
    script.elections.append(change.at)
    if change.in_flight is InFlight.LOST:
        script.dropped[change.at] = True


def _check(change: AnyChange, size: int) -> None:
    last = _last_position(change)
    if first_position(change) < 0 or last >= size:
        raise ValueError(f"{change} is about position {last}; the log has 0 to {size - 1}")
    if isinstance(change, Reorder):
        wanted = list(range(change.start, change.start + len(change.order)))
        if sorted(change.order) != wanted:
            raise ValueError(f"{change} is no order of {wanted[:1]} to {wanted[-1:]}")
    if isinstance(change, Flip) and change.first >= change.second:
        raise ValueError(f"{change}: the first must stand before the second in the log")


def _last_position(change: AnyChange) -> int:
    if isinstance(change, Flip):
        return change.second
    if isinstance(change, Delay):
        return max(change.at, change.until_after)
    if isinstance(change, Duplicate):
        return max(change.at, change.again_after)
    if isinstance(change, Reorder):
        return change.start + len(change.order) - 1
    return change.at


def _held_back(
    sequence: list[int], held: int, until: int, order: PartialOrder, *, causal: bool
) -> list[int]:
    """`held` goes right after `until`, and with it what cannot overtake it: what its sender sent
    later, and where `causal` whatever came after it."""
    start, end = sequence.index(held), sequence.index(until)
    if start >= end:
        return sequence
    moved, passing = [held], []
    for position in sequence[start + 1 : end]:
        behind = order.chain(position) == order.chain(held) and position > held
        if behind or (causal and order.before(held, position)):
            moved.append(position)
        else:
            passing.append(position)
    return [*sequence[:start], *passing, until, *moved, *sequence[end + 1 :]]


def _reordered(sequence: list[int], change: Reorder) -> list[int]:
    """The places that these events have are filled in the order given."""
    within = dict.fromkeys(change.order)
    new = iter(change.order)
    return [next(new) if position in within else position for position in sequence]
