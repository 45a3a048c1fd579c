"""How events travel and how they are kept: submissions, batches, entries, records."""

from __future__ import annotations

import msgspec

from coord.model.decisions import AnyDecision
from coord.model.events import AnyEvent

HOST_ACTOR = "host:"
RELAY_ACTOR = "relay:"
ACTOR_LENGTH_LIMIT = 200
"""Of the name that follows."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who sent an event, as its how-manieth, knowing what. Identifies a request for ever.

    `actor` is `client:<id>`, `host:<id>`, `node:<id>` or `relay:<id>`. `incarnation` is the host's,
    the node's term, or that of the relay's process; 0 for clients. `seq` counts from 1; a host's
    reports count up by one within an incarnation. `seen_index` and `seen_plan` are the newest log
    index and plan version the sender knew, recorded so that a replay can tell what could not have
    happened in another order.
    """

    actor: str
    incarnation: int = 0
    seq: int = 0
    seen_index: int = 0
    seen_plan: int = 0


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event on its way to the log."""

    origin: Origin
    event: AnyEvent


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one raft command carries. Empty as a barrier.

    `wall_ms` is the leader's clock in milliseconds since 1970; the state machine turns it into log
    time, which moves forward by at most `Settings.max_step_ms` an entry.
    """

    term: int
    node: int
    wall_ms: int
    submissions: tuple[Submission, ...] = ()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in its place in the log."""

    index: int
    term: int
    wall_ms: int
    origin: Origin
    event: AnyEvent


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry with what the state machine made of it.

    `rejection` is a word of `Rejection`, empty when the event took effect. `duplicate_of` is the
    index at which the same request was decided first, 0 when this is the first; for a host's
    report, an index at or after that one. `result` is what the request asked for where that is a
    number (a registration's incarnation). `digest` is the running digest after this entry, 16 bytes
    in hex; `now_ms` the log time.
    """

    entry: Entry
    now_ms: int
    digest: str
    decisions: tuple[AnyDecision, ...] = ()
    rejection: str = ""
    duplicate_of: int = 0
    result: int = 0

    @property
    def accepted(self) -> bool:
        return not self.rejection
