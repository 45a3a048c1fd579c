"""When a host must end its `exclusive` tasks by itself.

The coordinator starts an exclusive task elsewhere once the old host's lease has run out and a
further `fence_ms` has passed. So this host ends its own before its lease runs out as it counts it:
from the sending of the last heartbeat that was acknowledged, which is earlier than the coordinator
counts from. SIGTERM goes out early enough to leave some grace, SIGKILL early enough for processes
to be gone by the deadline.
"""

from __future__ import annotations

import enum

import msgspec

from coord.agent.records import Phase, TaskRecord

KILL_MARGIN_S = 0.5
"""SIGKILL goes out this long before the deadline."""
TERM_MARGIN_S = 1.5
"""SIGTERM goes out this long before the deadline."""
MARGIN_SHARE = 0.25
"""Both margins together take at most this share of a lease, lest short leases leave no time."""


class Step(enum.IntEnum):
    """What is due."""

    NONE = 0
    TERM = 1
    KILL = 2


class Fence(msgspec.Struct, frozen=True):
    """Loop times, in seconds, at which exclusive tasks get SIGTERM and SIGKILL."""

    term_at: float
    kill_at: float

    def due(self, now: float) -> Step:
        if now >= self.kill_at:
            return Step.KILL
        return Step.TERM if now >= self.term_at else Step.NONE

    def next_time(self, now: float) -> float | None:
        """When to look again; None after the last step."""
        if now < self.term_at:
            return self.term_at
        return self.kill_at if now < self.kill_at else None


def fence_before(deadline: float, lease_s: float) -> Fence:
    """The fence that ends before this lease deadline."""
    scale = min(1.0, MARGIN_SHARE * lease_s / TERM_MARGIN_S)
    return Fence(deadline - TERM_MARGIN_S * scale, deadline - KILL_MARGIN_S * scale)


def is_fenced(record: TaskRecord) -> bool:
    """Whether the fence is about this record."""
    return record.order.exclusive and record.phase in (Phase.RUNNING, Phase.EXITED)
