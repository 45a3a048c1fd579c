"""Servers against the log and one another: each planted fault is found, and only it."""

from __future__ import annotations

import pytest
from jepsen_lite.judge import agreement
from jepsen_lite.judge.agreement import Sighting, judge_agreement
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.verdict import Verdict
from msgspec.structs import replace

from coord.model.events import LeaderElected, NoteAdded
from tests.faults.made_logs import MadeLog, verdicts

VIOLATION, UNKNOWN = Verdict.VIOLATION, Verdict.UNKNOWN
NODES = (1, 2, 3)


@pytest.fixture
def made() -> MadeLog:
    made = MadeLog()
    for term in (2, 5):
        made.say(NoteAdded("c/1", "k", f"before {term}"))
        made.elect(term, term % 3)
    return made


@pytest.fixture
def sightings(made: MadeLog) -> list[Sighting]:
    """All three servers, at different indexes."""
    return [
        Sighting(node, index, made.records[index - 1].digest, term=5)
        for node, index in ((1, 6), (2, 5), (3, 6), (1, 2))
    ]


def judge(sightings: list[Sighting], log: ExportedLog, quiet_index: int = 5) -> dict[str, Verdict]:
    judgements = judge_agreement(sightings, log, nodes=NODES, quiet_index=quiet_index)
    return verdicts(judgements)


def test_servers_that_agree_are_fine(made: MadeLog, sightings: list[Sighting]) -> None:
    """Wherever each was when it was asked."""
    assert judge(sightings, made.log()) == {}


def test_a_server_with_another_state_is_found(made: MadeLog, sightings: list[Sighting]) -> None:
    """The exported log tells which digest it must have, though no other was asked at its index."""
    sightings[1] = replace(sightings[1], digest="00" * 16)
    assert judge(sightings, made.log()) == {agreement.SAME_STATE: VIOLATION}


def test_two_servers_that_differ_beyond_the_log_are_found(
    made: MadeLog, sightings: list[Sighting]
) -> None:
    """Nothing but one another is there to compare with."""
    sightings += [Sighting(1, 90, "aa"), Sighting(2, 90, "bb")]
    assert judge(sightings, made.log()) == {agreement.SAME_STATE: VIOLATION}


def test_a_server_that_does_not_catch_up_leaves_it_open(
    made: MadeLog, sightings: list[Sighting]
) -> None:
    """It may only be slow; one that says nothing may be dead. Neither is agreement."""
    assert judge(sightings, made.log(), quiet_index=6) == {agreement.CAUGHT_UP: UNKNOWN}
    silent = [each for each in sightings if each.node != 3]
    nobody = judge_agreement(sightings, made.log(), nodes=(), quiet_index=0)
    assert verdicts(nobody) == {agreement.CAUGHT_UP: UNKNOWN}
    assert judge(silent, made.log()) == {agreement.CAUGHT_UP: UNKNOWN}


def test_a_term_that_goes_back_is_found(made: MadeLog, sightings: list[Sighting]) -> None:
    """The rules refuse such an election; a log in which it counts was not made by them."""
    made.elect(4, 2)
    refused = made.records[-1]
    assert refused.rejection == "stale_term"
    assert judge(sightings, made.log()) == {}
    made.records[-1] = replace(refused, rejection="")
    assert judge(sightings, made.log()) == {agreement.ONE_LEADER: VIOLATION}


def test_two_leaders_of_one_term_are_found(made: MadeLog, sightings: list[Sighting]) -> None:
    """One by the log, another by its own word; or both by their own."""
    elected = made.records[-1].entry.event
    assert elected == LeaderElected(2, 5)
    sightings.append(replace(sightings[0], node=2, role="leader"))
    assert judge(sightings, made.log()) == {}
    sightings.append(replace(sightings[0], node=3, role="leader"))
    assert judge(sightings, made.log()) == {agreement.ONE_LEADER: VIOLATION}
    unlogged = [replace(each, term=9) for each in sightings]
    assert judge(unlogged, made.log()) == {agreement.ONE_LEADER: VIOLATION}
