"""What must be durable before what (rules G5, G12)."""

from __future__ import annotations

from coord.raft.guard_append import Message


def may_leave(
    message: Message, *, entries_dirty: bool, hard_state_dirty: bool, rules: frozenset[str]
) -> bool:
    """Whether a message may be sent before the commit that is still to come in this turn.

    A leader's appends may overtake its own fsync, because it counts itself only after that.
    """
    if hard_state_dirty and "G5.vote" in rules:
        return False
    acknowledges = message["type"] == "next_node_idx"
    return not (acknowledges and entries_dirty and "G5.log" in rules)


def must_commit_before_tick(*, leads: bool, dirty: bool, rules: frozenset[str]) -> bool:
    """Rule G5.own: a tick counts the leader's log as one of the majority; it must be on disk."""
    return leads and dirty and "G5.own" in rules


def must_step_down(
    *, leads: bool, blocked_ms: float, election_ms: int, rules: frozenset[str]
) -> bool:
    """Rule G12: a leader that could not make its log durable for two election timeouts."""
    return leads and blocked_ms > 2 * election_ms and "G12" in rules
