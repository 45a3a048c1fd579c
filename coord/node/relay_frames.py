"""Events of relays on their way to the log, and how long each has waited on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from coord.model.entry import Submission
from coord.model.roster import RosterHeard


class RelayFrames:
    """Keeps the newest `limit` of them in their order. What waits here is older when it leaves: its
    lag says so, and the core refuses what has become too old."""

    def __init__(self, limit: int) -> None:
        self._waiting: deque[tuple[float, Submission]] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, submissions: Iterable[Submission], now_s: float) -> None:
        self._waiting.extend((now_s, submission) for submission in submissions)

    def take(self, now_s: float) -> list[Submission]:
        """All of them, with the time that each has waited here in its lag."""
        taken = [_older(submission, now_s - since_s) for since_s, submission in self._waiting]
        self._waiting.clear()
        return taken

    def clear(self) -> None:
        self._waiting.clear()


def _older(submission: Submission, waited_s: float) -> Submission:
    event = submission.event
    waited_ms = int(waited_s * 1_000)
    if not isinstance(event, RosterHeard) or waited_ms <= 0:
        return submission
    later = msgspec.structs.replace(event, lag_ms=event.lag_ms + waited_ms)
    return Submission(submission.origin, later)
