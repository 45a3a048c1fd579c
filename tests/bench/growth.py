"""What the time to explore grows with: the length of the log, or the pairs in it that conflict.

One story at several lengths, in which what makes a log longer is an hour in which hosts beat and
nothing else happens. It adds no pair, which is checked, lest the figure says something else. Each
pair is flipped and followed to where all is as recorded again. Then logs of one length, in which
more and more went wrong.
"""

from __future__ import annotations

import time

from coord_sim.explore.conflicts import Conflicts
from coord_sim.explore.execute import Explored
from coord_sim.explore.incident import Incident, replayed
from coord_sim.explore.search import search
from coord_sim.explore.strategies.flips import SingleFlips

from coord.model.incident import IncidentHeader
from tests.bench.figures import Figure, reference_s
from tests.fleet_story import Story

SHORT, LONG = 100, 800
"""Beats before what went wrong. Pairs farther apart than `conflicts.FARTHEST` are all flipped, so
the short log has more than that as well."""
FEW, MANY = 1, 4
"""Failures."""
ENOUGH_S = 1e9


def measure(runs: int) -> list[Figure]:
    """Times beside each other: eight times the log, and four times what went wrong."""
    short, long = incident(SHORT, FEW), incident(LONG, FEW)
    pairs, as_many = pairs_of(short), pairs_of(long)
    if pairs != as_many:
        raise AssertionError(f"{pairs} pairs in the short log, {as_many} in the long one")
    lengths = len(long.records) / len(short.records)
    length = Figure("explore: longer log, the same pairs", "times as long", lengths, True, [], [])
    crowded = incident(SHORT * FEW // MANY, MANY)
    more = pairs_of(crowded) / pairs
    by_pairs = Figure("explore: more pairs, a log alike", "times as long", None, True, [], [])
    for _ in range(runs):
        reference = reference_s()
        times_s = [explore_s(one) for one in (short, long, crowded)]
        length.references.append(reference)
        length.values.append(times_s[1] / times_s[0])
        by_pairs.references.append(reference)
        by_pairs.values.append(times_s[2] / times_s[0])
    length.note = (
        f"{len(short.records)} and {len(long.records)} entries, {pairs} pairs in both; "
        f"its square would be {lengths**2:.0f}"
    )
    by_pairs.note = (
        f"{len(short.records)} and {len(crowded.records)} entries, "
        f"{pairs} and {pairs_of(crowded)} pairs, {more:.1f} times as many"
    )
    return [length, by_pairs]


def incident(beats: int, failures: int) -> Incident:
    """Three ranks on four hosts; so many times one of them dies after so many quiet beats."""
    story = Story(hosts=4)
    story.submit("d", 3)
    story.obey()
    story.wait(500)
    story.all_step("d", 1)
    for failure in range(failures):
        for _ in range(beats):
            story.wall_ms += 500
            story.beat()
        story.exit(sorted(story.running)[0], 1)
        story.wait(3_000)
        story.all_step("d", failure + 2)
    return replayed(IncidentHeader("story", 1), b"", story.records)


def pairs_of(one: Incident) -> int:
    """Pairs to flip: nothing orders them and they conflict."""
    return len(list(Conflicts(Explored(one)).flips()))


def explore_s(one: Incident) -> float:
    """CPU seconds to make the log ready and to flip every pair of it."""
    began_s = time.process_time()
    for _ in search(one, budget_s=ENOUGH_S, seed=1, strategies=(SingleFlips,)):
        pass
    return time.process_time() - began_s
