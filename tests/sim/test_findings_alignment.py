"""Two orders side by side: what is the same, what moved, and where they first part."""

from __future__ import annotations

from coord_sim.explore.alignment import Mark, Outcome, aligned, first_outcome
from coord_sim.explore.run import Run
from coord_sim.explore.schedule import Flip, Schedule

from .planted import execute_orders, planted, two_failures

__all__ = ["planted"]


def flipped(first: int, second: int) -> tuple[Run, Run]:
    incident = two_failures()
    good = execute_orders(incident, Schedule())
    return good, execute_orders(incident, Schedule((Flip(first, second),)))


def test_an_order_is_the_same_as_itself() -> None:
    """Every entry beside itself, nothing parts."""
    good, _ = flipped(6, 7)
    pairs = aligned(good.records, good.records)
    assert [(pair.mark, pair.good, pair.bad) for pair in pairs] == [
        (Mark.SAME, at, at) for at in range(len(good.records))
    ]
    assert first_outcome(good.records, good.records, pairs) == Outcome()


def test_a_moved_entry_stands_at_both_its_places(planted: None) -> None:
    """And each place knows the other."""
    good, bad = flipped(6, 14)
    pairs = aligned(good.records, bad.records)
    moved = [(pair.good, pair.bad, pair.partner) for pair in pairs if pair.mark is Mark.MOVED]
    assert moved == [(6, -1, 10), (-1, 10, 6)]
    # A host's later reports wait for the one that is late: when it breaks they are not there yet.
    gone = [pair.good for pair in pairs if pair.mark is Mark.GONE]
    assert gone == [9, 10, 11, 13]


def test_what_came_after_the_break_is_left_out(planted: None) -> None:
    """The good order goes on, but there is nothing to compare it with."""
    good, bad = flipped(6, 14)
    pairs = aligned(good.records, bad.records)
    assert pairs[-1].bad == len(bad.records) - 1
    assert max(pair.good for pair in pairs) == 14
    assert len(good.records) == 35


def test_the_first_other_outcome_is_found_in_the_bad_order(planted: None) -> None:
    """The last start completed the generation; with one late it does not."""
    good, bad = flipped(6, 14)
    outcome = first_outcome(good.records, bad.records, aligned(good.records, bad.records))
    assert (outcome.good, outcome.bad) == (7, 6)
    assert [type(one).__name__ for one in good.records[7].decisions] == ["GenerationStarted"]
    assert bad.records[6].decisions == ()
