"""Other orders of a stretch of the log that keep the partial order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from coord_sim.explore.execute import Explored
from coord_sim.explore.schedule import Reorder

LONGEST = 24
"""Events of a stretch that is put into another order. At most `NEAR`."""

Choice = Callable[[list[int]], int]
"""Of the events that may come next, the one that does."""


def stretch(explored: Explored, rng: Random) -> range:
    """A random stretch of the log."""
    size = explored.recording.size
    length = min(rng.randrange(3, LONGEST + 1), size)
    start = rng.randrange(size - length + 1)
    return range(start, start + length)


def reordered(explored: Explored, positions: range, choose: Choice) -> Reorder | None:
    """The stretch in the order that is chosen event by event; None where it is as recorded."""
    held_by = _held_by(explored, positions)
    left = list(positions)
    here = (1 << len(left)) - 1
    chosen: list[int] = []
    while left:
        enabled = [at for at in left if not held_by[at] & here]
        taken = choose(enabled)
        left.remove(taken)
        here &= ~(1 << taken - positions.start)
        chosen.append(taken)
    return None if chosen == list(positions) else Reorder(positions.start, tuple(chosen))


def every_order(explored: Explored, positions: range) -> Iterator[Reorder]:
    """Every other order of a short stretch."""
    held_by = _held_by(explored, positions)

    def go(done: tuple[int, ...], left: tuple[int, ...], here: int) -> Iterator[tuple[int, ...]]:
        if not left:
            yield done
        for at, position in enumerate(left):
            if not held_by[position] & here:
                rest = here & ~(1 << position - positions.start)
                yield from go((*done, position), (*left[:at], *left[at + 1 :]), rest)

    for chosen in go((), tuple(positions), (1 << len(positions)) - 1):
        if chosen != tuple(positions):
            yield Reorder(positions.start, chosen)


def _held_by(explored: Explored, positions: range) -> dict[int, int]:
    """Position -> the events of the stretch that it could not have come before: a bit for each,
    the lowest for the first of them."""
    start = positions.start
    return {position: explored.order.before_in(start, position) for position in positions}
