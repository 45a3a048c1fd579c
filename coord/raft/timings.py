"""How long raft waits for what, and how much of what may be under way."""

from __future__ import annotations

import msgspec


class RaftTimings(msgspec.Struct, frozen=True):
    """The clockwork of one node; the same on all members is wise but not necessary. README.md says
    how the defaults were chosen."""

    tick_ms: int = 20
    """The longest that anything due waits for a turn of the loop."""

    heartbeat_ms: int = 100
    """A leader with nothing to say says so this often. Less than a third of election_min_ms."""

    notice_ms: int = 2
    """What is committed is told to followers at most so much later than it could be: under load the
    next append with entries tells it for nothing."""

    election_min_ms: int = 600
    election_max_ms: int = 1200
    """A follower that hears of no leader for a time drawn from here stands for election."""

    orphan_min_ms: int = 120
    orphan_max_ms: int = 300
    """The same for a follower whose connection to the leader was closed: the leader's process has
    most likely died. 0 as the maximum waits for election_min_ms instead."""

    keep_entries: int = 20_000
    """So many entries stay in the log behind a snapshot, for followers that were away shortly."""

    keep_bytes: int = 64 * 1024 * 1024
    """Of these entries, the newest that fit into so many bytes stay."""

    append_bytes: int = 4 * 1024 * 1024
    """An append carries at most about this much, but always one whole entry."""

    window_bytes: int = 16 * 1024 * 1024
    """So much may be sent to a follower without a reply."""

    @property
    def leader_fallback_ms(self) -> int:
        """A leader without answers from a majority for so long steps down."""
        return 2 * self.election_min_ms


DEFAULT_TIMINGS = RaftTimings()
