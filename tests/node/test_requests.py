"""A request ends in exactly one of three ways, and always ends."""

from __future__ import annotations

from coord.core.machine import apply
from coord.core.state import new_state
from coord.model.channel import Result
from coord.model.entry import Entry, Origin, Submission
from coord.model.events import ClusterConfigured
from coord.node.requests import Request, RequestTable
from tests.node.cluster import note


def submission(seq: int) -> Submission:
    return Submission(Origin("client:a", 0, seq), note())


def test_a_decided_request_is_answered_with_its_index() -> None:
    """The entry with its origin is applied: whoever asked gets index and outcome, once."""
    answers: list[Result] = []
    table = RequestTable()
    table.add([Request(submission(1), 10, answers.append)], deadline=5.0)
    state = new_state()
    apply(state, Entry(1, 1, 0, Origin("node:1"), ClusterConfigured("test")))
    record = apply(state, Entry(2, 1, 0, submission(1).origin, note()))
    table.decided(record, state)
    table.decided(record, state)
    assert answers == [Result(seq=1, outcome="committed", index=2)]
    assert (len(table), table.size_bytes) == (0, 0)
    assert table.expire(10.0) == []
    assert len(answers) == 1


def test_a_request_that_never_left_expires_as_not_committed() -> None:
    """Nobody was given a copy, so it certainly did not happen."""
    answers: list[Result] = []
    table = RequestTable()
    table.add([Request(submission(1), 10, answers.append)], deadline=5.0)
    assert table.expire(4.9) == []
    assert answers == []
    table.expire(5.0)
    assert answers == [Result(seq=1, outcome="not_committed", reason="timeout")]


def test_a_request_that_left_expires_as_unknown() -> None:
    """A copy may be in a log; nothing is claimed about it."""
    answers: list[Result] = []
    table = RequestTable()
    request = Request(submission(1), 10, answers.append)
    table.add([request], deadline=5.0)
    request.attempts = 1
    table.expire(5.0)
    assert answers == [Result(seq=1, outcome="unknown", reason="timeout")]
    assert (len(table), table.size_bytes) == (0, 0)


def test_the_same_request_twice_is_routed_once_and_answered_twice() -> None:
    """A client that connects again asks again while the first is on its way."""
    first: list[Result] = []
    second: list[Result] = []
    table = RequestTable()
    original = Request(submission(1), 10, first.append)
    assert table.add([original], deadline=5.0) == [original]
    assert table.add([Request(submission(1), 10, second.append)], deadline=9.0) == []
    table.refuse(original, "busy", 100)
    assert (
        first
        == second
        == [Result(seq=1, outcome="not_committed", reason="busy", retry_after_ms=100)]
    )


def test_who_asked_later_still_waits_when_the_first_gave_up() -> None:
    """The one that expires hands its place over, with what is known of its copies."""
    first: list[Result] = []
    second: list[Result] = []
    table = RequestTable()
    original = Request(submission(1), 10, first.append)
    again = Request(submission(1), 10, second.append)
    table.add([original], deadline=5.0)
    table.add([again], deadline=9.0)
    original.attempts = 1
    assert table.expire(5.0) == [again]
    assert [answer.outcome for answer in first] == ["unknown"]
    assert (second, again.attempts) == ([], 1)
    assert table.expire(9.0) == []
    assert [answer.outcome for answer in second] == ["unknown"]


def test_a_stopping_node_ends_every_request() -> None:
    """Nothing waits for ever."""
    answers: list[Result] = []
    table = RequestTable()
    sent = Request(submission(1), 10, answers.append)
    table.add([sent, Request(submission(2), 10, answers.append)], deadline=5.0)
    sent.attempts = 1
    table.close("stopping")
    assert [(a.seq, a.outcome) for a in answers] == [(1, "unknown"), (2, "not_committed")]
