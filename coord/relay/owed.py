"""Which reports went up and may still be unanswered. Pure.

When the connection upwards is lost nobody will answer them: their agents are told that nothing is
known, and send them again at once.
"""

from __future__ import annotations

from collections import deque

from coord.model.channel import Result, Submit

LIMIT = 65_536
"""Of reports remembered; of older ones agents learn by their own patience."""
GRACE_S = 1.0


class Owed:
    """Times are of one monotonic clock. What was answered is not looked at: an agent ignores a
    word about a report that is decided."""

    def __init__(self) -> None:
        self._sent: deque[tuple[float, int, Submit]] = deque()
        self._count = 0

    def sent(self, session: int, submit: Submit, now_s: float) -> None:
        """It goes up; by its timeout it will have been answered, if at all."""
        self._sent.append((now_s + submit.timeout_ms / 1000 + GRACE_S, session, submit))
        self._count += len(submit.submissions)
        while self._sent and (self._sent[0][0] < now_s or self._count > LIMIT):
            self._count -= len(self._sent.popleft()[2].submissions)

    def lost(self, now_s: float) -> list[tuple[int, tuple[Result, ...]]]:
        """(session, what it is told), oldest first. All of it is forgotten."""
        found = [
            (session, results_of(submit, "unknown", "upstream_lost", 0))
            for until_s, session, submit in self._sent
            if until_s >= now_s
        ]
        self._sent.clear()
        self._count = 0
        return found


def results_of(
    submit: Submit, outcome: str, reason: str, retry_after_ms: int
) -> tuple[Result, ...]:
    """The same answer to each submission."""
    return tuple(
        Result(
            one.origin.seq,
            outcome,
            one.origin.incarnation,
            reason,
            retry_after_ms=retry_after_ms,
        )
        for one in submit.submissions
    )
