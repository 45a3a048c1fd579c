"""Frames of relays while orders are explored."""

from __future__ import annotations

from coord_sim.explore.relayed import Rosters, but_for, vouched

from coord.core.state import new_state
from coord.model.decisions import RosterCut
from coord.model.entry import Entry, Origin, Recorded
from coord.model.roster import RosterChanged, RosterHeard


def record(event: RosterChanged | RosterHeard, *cut: int, relay: str = "r1") -> Recorded:
    decisions = (RosterCut(("1",), "r1", cut),) if cut else ()
    return Recorded(Entry(1, 1, 0, Origin(f"relay:{relay}", 7, 1), event), 0, "", decisions)


def test_a_log_tells_whom_each_frame_vouched_for() -> None:
    """By the roster as it stood then: joined, left, cut, begun anew."""
    rosters = Rosters(new_state())
    whole = RosterHeard(1, 0, 50, 0, (2,), (0,))
    changed = RosterChanged(1, (1, 2, 3), (1, 1, 1), (5, 5, 49), replaces=True, unit_ms=20)
    assert rosters.heard(record(changed)) == ()
    assert rosters.heard(record(whole)) == (1, 3)
    assert rosters.heard(record(RosterHeard(1, 5, 6))) == (1, 2)
    assert rosters.heard(record(RosterHeard(1, 5, 6, 0, (3,), (2,)))) == (1, 2, 3)
    rosters.heard(record(RosterChanged(2, (4,), (1,), (0,), (1,)), 2))
    assert rosters.heard(record(RosterHeard(2, 0, 50))) == (3, 4)
    assert rosters.heard(record(RosterHeard(2, 0, 50), relay="r2")) == ()
    rosters.heard(record(RosterChanged(3, (9,), (1,), (0,), replaces=True, unit_ms=20)))
    assert rosters.heard(record(RosterHeard(3, 0, 50))) == (9,)


def test_who_does_not_beat_is_taken_out_of_a_frame() -> None:
    """Whether the frame heard it at its phase, off it, or not at all."""
    members = {1: (0, 1), 2: (0, 1), 3: (9, 1)}
    event = RosterHeard(1, 0, 5, 0, (3,), (4,))
    assert vouched(members, event) == (1, 2, 3)
    assert vouched(members, but_for(event, [1, 3])) == (2,)
    assert but_for(event, []) == event
