"""A log, a node and messages for the tests of the guard."""

from __future__ import annotations

from typing import Any

from coord.raft.configuration import LogEntry
from coord.raft.guard import Deliver, Guard, Step
from coord.raft.guard_append import Message
from coord.raft.rules import ALL_RULES


class FakeLog:
    """Entries from `first` on, given by their terms."""

    def __init__(self, *terms: int, first: int = 1, size_bytes: int = 1) -> None:
        self.list = [(b"x" * size_bytes, first + n, term) for n, term in enumerate(terms)]

    @property
    def first_index(self) -> int:
        return self.list[0][1]

    @property
    def last_index(self) -> int:
        return self.list[-1][1]

    def term_at(self, index: int) -> int | None:
        found = [entry for entry in self.list if entry[1] == index]
        return found[0][2] if found else None

    def entries(self, start: int, limit_bytes: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        for entry in self.list:
            full = sum(len(one[0]) for one in found) + len(entry[0]) > limit_bytes
            if entry[1] >= start and not (found and full):
                found.append(entry)
        return found


class FakeRaft:
    """What the guard reads of a node."""

    def __init__(self, term: int = 1, commit: int = 1, applied: int = 1, leads: bool = False):
        self.term = term
        self.commit_index = commit
        self.applied_index = applied
        self.leads = leads
        self.voters: tuple[int, ...] = (1, 2, 3)


def guard(log: FakeLog, raft: FakeRaft, rules: frozenset[str] = ALL_RULES, **points: Any) -> Guard:
    made = Guard(
        log,
        raft,
        lambda: points.get("snapshot"),
        lambda: points.get("fetched"),
        rules,
    )
    made.connected(2)
    return made


def append(
    prev: int, prev_term: int, *terms: int, term: int = 1, commit: int = 0, sequence: int = 5
) -> Message:
    entries = [(b"x", prev + 1 + n, entry_term) for n, entry_term in enumerate(terms)]
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit,
        "prevLogIdx": prev,
        "prevLogTerm": prev_term,
        "entries": entries,
        "sequence": sequence,
    }


def only(steps: list[Step]) -> Deliver:
    assert len(steps) == 1, steps
    assert isinstance(steps[0], Deliver)
    return steps[0]


def handed(steps: list[Step]) -> tuple[int, int, list[tuple[int, int]]]:
    """prev, its term, and (index, term) of the entries that the library gets."""
    message = only(steps).message
    entries = [(index, term) for _, index, term in message["entries"]]
    return message["prevLogIdx"], message["prevLogTerm"], entries


def covered(steps: list[Step]) -> int | None:
    answering = only(steps).answering
    assert answering is not None
    return answering.covered


def reply(next_index: int, *, success: bool, sequence: int, term: int = 1) -> Message:
    return {
        "type": "next_node_idx",
        "term": term,
        "sequence": sequence,
        "next_node_idx": next_index,
        "reset": not success,
        "success": success,
    }
