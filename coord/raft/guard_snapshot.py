"""Snapshots in the guard (rule G7): the library's chunks become offers, and offers are answered.

The library's dump file is a ticket of a few bytes that says nothing; the file itself travels on a
stream of its own (`transport.py`), and is installed in one step at an offer that finds it there.
"""

from __future__ import annotations

import enum

import msgspec

from coord.raft.guard_append import LogView, Message

TICKET = b"the snapshot itself travels beside the log\n"


class SnapshotPoint(msgspec.Struct, frozen=True):
    """The last entry that a snapshot holds."""

    index: int
    term: int


class OfferAnswer(enum.Enum):
    """What a follower does with an offer."""

    HELD = "our log holds its last entry: answer like an append that covers it"
    INSTALL = "the file is here: install it"
    FETCH = "fetch the file, and say that we live"


def offer(term: int, commit_index: int, sequence: int, point: SnapshotPoint) -> Message:
    """For a follower that lacks entries which are no longer in the log."""
    return {
        "type": "offer",
        "term": term,
        "commit_index": commit_index,
        "sequence": sequence,
        "snapshot_index": point.index,
        "snapshot_term": point.term,
    }


def point_of(message: Message) -> SnapshotPoint:
    return SnapshotPoint(message["snapshot_index"], message["snapshot_term"])


def answer_offer(
    point: SnapshotPoint, log: LogView, base: int, fetched: SnapshotPoint | None, keep_tail: bool
) -> OfferAnswer:
    """What to do with an offered snapshot. `fetched` is the file at hand, `keep_tail` rule G7.tail:
    a snapshot that brings nothing new is not installed, for that would cut the log behind it."""
    if point.index <= base:
        return OfferAnswer.HELD
    if keep_tail and log.term_at(point.index) == point.term:
        return OfferAnswer.HELD
    return OfferAnswer.INSTALL if fetched == point else OfferAnswer.FETCH


def held(message: Message, log: LogView) -> Message:
    """The empty append at our log's end that stands for an offer we need not install."""
    return {
        "type": "append_entries",
        "term": message["term"],
        "commit_index": message["commit_index"],
        "prevLogIdx": log.last_index,
        "prevLogTerm": log.term_at(log.last_index),
        "entries": [],
    }


def installation(message: Message) -> Message:
    """What makes the library load the dump, whose ticket our deserializer turns into the file."""
    return {
        "type": "append_entries",
        "term": message["term"],
        "commit_index": message["commit_index"],
        "serialized": (TICKET, True, True),
    }


def beats_installed(written: int, installed: int) -> bool:
    """Rule G7.late: a snapshot that took long is worth nothing once a newer one is here."""
    return written > installed
