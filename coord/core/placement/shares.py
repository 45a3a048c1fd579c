"""How many replicas each domain gets. Pure arithmetic over counts."""

from __future__ import annotations

import heapq
from collections.abc import Mapping


def most_spread(fits: Mapping[str, int], skew: int) -> int:
    """How many replicas have places in domains that fit so many, if none may have more than `skew`
    above another: the poorest domain is filled, the others up to `skew` more."""
    least = min(fits.values(), default=0)
    return sum(min(fit, least + skew) for fit in fits.values())


def spread(
    fits: Mapping[str, int],
    before: Mapping[str, int],
    returning: Mapping[str, int],
    skew: int,
    wanted: int,
) -> dict[str, int]:
    """Up to `wanted` replicas, one by one to the domain that has the fewest.

    `before` has those there already. Among equals goes first who is returning, then where there
    is most room, then the lesser name. Domains by name; those that get none are left out.
    """
    counts = {name: before.get(name, 0) for name in fits}
    given = dict.fromkeys(fits, 0)

    def entry(name: str) -> tuple[int, int, int, str]:
        back = 0 if returning.get(name, 0) > given[name] else 1
        return (counts[name], back, given[name] - fits[name], name)

    heap = [entry(name) for name in fits if fits[name]]
    heapq.heapify(heap)
    ranks = sorted(counts.values())
    least, at_least = (ranks[0], ranks.count(ranks[0])) if ranks else (0, 0)
    for _ in range(wanted):
        if not heap or heap[0][0] + 1 - least > skew:
            break
        name = heapq.heappop(heap)[-1]
        if counts[name] == least:
            at_least -= 1
        counts[name] += 1
        given[name] += 1
        if not at_least:
            least = min(counts.values())
            at_least = sum(1 for count in counts.values() if count == least)
        if given[name] < fits[name]:
            heapq.heappush(heap, entry(name))
    return {name: given[name] for name in sorted(given) if given[name]}


def few(
    fits: Mapping[str, int], returning: Mapping[str, int], distances: Mapping[str, int], wanted: int
) -> dict[str, int]:
    """Up to `wanted` replicas in as few domains as can be, in the order in which they are filled.

    While no domain fits all that is left, the largest is filled; then the tightest that does. Among
    equals goes first where more are returning, then the nearer, then the lesser name.
    """
    left = {name: fit for name, fit in fits.items() if fit}
    given: dict[str, int] = {}
    while wanted and left:
        enough = [name for name, fit in left.items() if fit >= wanted]
        if enough:
            name = min(
                enough,
                key=lambda name: (
                    -min(returning.get(name, 0), wanted),
                    distances.get(name, 0),
                    left[name],
                    name,
                ),
            )
        else:
            name = min(
                left,
                key=lambda name: (
                    -left[name],
                    -returning.get(name, 0),
                    distances.get(name, 0),
                    name,
                ),
            )
        given[name] = min(left.pop(name), wanted)
        wanted -= given[name]
    return given
