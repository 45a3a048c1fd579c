"""The follower's half of the guard: what an append may do to the log (rules G1, G2)."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from coord.raft.configuration import LogEntry

Message = dict[str, Any]


class LogView(Protocol):
    """The raft log by index."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def term_at(self, index: int) -> int | None: ...
    def entries(self, start: int, limit_bytes: int) -> list[LogEntry]: ...


class GuardBroken(Exception):
    """Something that raft rules out has happened; this node must stop before it spreads."""


class Related(msgspec.Struct, frozen=True):
    """An append as it is handed over, and what it verified here.

    `covered` is the last index up to which our log is now known to equal the leader's; None when
    the append does not fit onto our log and will be rejected.
    """

    message: Message
    covered: int | None


def verified_end(message: Message) -> int:
    """The last index that an append speaks of."""
    entries = message.get("entries") or []
    return int(entries[-1][1] if entries else message["prevLogIdx"])


def relate_append(message: Message, log: LogView, base: int) -> Related:
    """Rule G1: keep what the message does not contradict.

    Everything up to `base` is committed, hence the same on the leader. Raises GuardBroken when the
    leader contradicts a committed entry.
    """
    covered = verified_end(message)
    prev, prev_term = message["prevLogIdx"], message["prevLogTerm"]
    entries: list[LogEntry] = list(message.get("entries") or [])
    if prev < base:
        _refuse_contradiction(entries, log, base)
        entries = [entry for entry in entries if entry[1] > base]
        prev, prev_term = base, log.term_at(base)
    if log.term_at(prev) != prev_term:
        if prev <= base and prev >= log.first_index:
            raise GuardBroken(
                f"the leader of term {message['term']} has term {prev_term} at index {prev}, where "
                f"term {log.term_at(prev)} is committed here"
            )
        return Related({**message, "entries": entries}, None)
    while entries and log.term_at(entries[0][1]) == entries[0][2]:
        prev, prev_term = entries[0][1], entries[0][2]
        entries = entries[1:]
    if not entries:
        prev, prev_term = log.last_index, log.term_at(log.last_index)
    handed = {**message, "prevLogIdx": prev, "prevLogTerm": prev_term, "entries": entries}
    return Related(handed, covered)


def cap_commit(message: Message, covered: int | None, committed: int) -> Message:
    """Rule G2: the commit index goes no further than what this message verified here."""
    limit = committed if covered is None else max(covered, committed)
    return {**message, "commit_index": min(message["commit_index"], limit)}


def next_after_reject(message: Message, base: int, end: int) -> int:
    """Where the leader should go on after an append that did not fit: at our log's end if that is
    before it, else right after what is committed, which always fits."""
    return end + 1 if message["prevLogIdx"] > end else base + 1


def acknowledged(next_index: int, covered: int | None) -> int:
    """Rule G1.covered: acknowledge only what the message covered, even if the log is longer."""
    return next_index if covered is None else min(next_index, covered + 1)


def _refuse_contradiction(entries: list[LogEntry], log: LogView, base: int) -> None:
    for _, index, term in entries:
        known = log.term_at(index) if index <= base else None
        if known is not None and known != term:
            raise GuardBroken(
                f"an append has term {term} at index {index}, where term {known} is committed here"
            )
