"""What an execution does otherwise than the log: changes, as data.

Positions count the incident's records from 0 and always mean the recorded log, whatever earlier
changes made of it. Durations are milliseconds of wall time at the leader.
"""

from __future__ import annotations

import enum

import msgspec


class Change(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="type"):
    """Base of all changes. The tag is the class name."""


class Flip(Change, frozen=True):
    """Two concurrent events in the other order: `first` arrives right after `second`, and with it
    whatever could not have come before it. Recorded, `first` stood before `second`."""

    first: int
    second: int


class Delay(Change, frozen=True):
    """The event at `at` is under way until the one at `until_after` was accepted."""

    at: int
    until_after: int


class Reorder(Change, frozen=True):
    """The events from position `start` on arrive as `order` says: a permutation of
    `start .. start + len(order) - 1` that keeps the partial order."""

    start: int
    order: tuple[int, ...]


class Drop(Change, frozen=True):
    """The event at `at` is lost under way. Whoever waits for an answer sends it again."""

    at: int


class Duplicate(Change, frozen=True):
    """The event at `at` arrives a second time, right after the one at `again_after`."""

    at: int
    again_after: int


class AgentCrash(Change, frozen=True):
    """The agent of `host` dies before position `at` and is started again. Its processes run on.
    What it had not sent is sent again only if its notes survived (`keeps_unsent`)."""

    host: str
    at: int
    keeps_unsent: bool = True


class Pause(Change, frozen=True):
    """The agent of `host` stands still for `ms` from position `at` on; its processes do not."""

    host: str
    at: int
    ms: int


class InFlight(enum.StrEnum):
    """What became of the proposal that was under way when the leader changed."""

    NONE = "none"
    """There was none."""
    LOST = "lost"
    """It never entered the log; its sender repeats it with the next leader."""
    COMMITTED_UNANSWERED = "committed_unanswered"
    """It is in the log, its sender was not told, and repeats it."""


class LeaderChange(Change, frozen=True):
    """Another leader is elected before position `at`, with the event there in flight."""

    at: int
    in_flight: InFlight = InFlight.NONE


class SnapshotRestore(Change, frozen=True):
    """The state before position `at` goes through a snapshot and back."""

    at: int


class ClockJump(Change, frozen=True):
    """The leader's clock jumps by `ms`, back when negative, before position `at`."""

    at: int
    ms: int


class LoseHosts(Change, frozen=True):
    """These hosts lose their power before position `at`, until everything heals at the end."""

    hosts: tuple[str, ...]
    at: int


AnyChange = (
    Flip
    | Delay
    | Reorder
    | Drop
    | Duplicate
    | AgentCrash
    | Pause
    | LeaderChange
    | SnapshotRestore
    | ClockJump
    | LoseHosts
)
"""For decoders: `msgspec.json.decode(text, type=AnyChange)` picks the struct by its tag."""


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """All the changes of one execution; without any, the log as it was recorded."""

    changes: tuple[AnyChange, ...] = ()


def first_position(change: AnyChange) -> int:
    """The first position at which the execution may differ from the log."""
    if isinstance(change, Flip):
        return change.first
    if isinstance(change, Reorder):
        return change.start
    return change.at
