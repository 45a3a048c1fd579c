"""Other orders of a stretch of the log that keep the partial order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from coord_sim.explore.execute import Explored
from coord_sim.explore.schedule import Reorder

LONGEST = 24
"""Events of a stretch that is put into another order."""

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
    order = explored.order
    left = list(positions)
    chosen: list[int] = []
    while left:
        enabled = [
            position
            for at, position in enumerate(left)
            if not any(order.before(earlier, position) for earlier in left[:at])
        ]
        taken = choose(enabled)
        left.remove(taken)
        chosen.append(taken)
    return None if chosen == list(positions) else Reorder(positions.start, tuple(chosen))


def every_order(explored: Explored, positions: range) -> Iterator[Reorder]:
    """Every other order of a short stretch."""
    order = explored.order

    def go(done: tuple[int, ...], left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not left:
            yield done
        for at, position in enumerate(left):
            if not any(order.before(earlier, position) for earlier in left[:at]):
                yield from go((*done, position), (*left[:at], *left[at + 1 :]))

    for chosen in go((), tuple(positions)):
        if chosen != tuple(positions):
            yield Reorder(positions.start, chosen)
