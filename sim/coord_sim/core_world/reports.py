"""Whose reports and requests took effect, in which order and how often."""

from __future__ import annotations

from coord.core.state import LIVE_HOST, State
from coord.model.entry import Recorded
from coord.model.rejections import Rejection

from .violation import CoreViolation

UNTAKEN = (
    Rejection.NOT_CONFIGURED,
    Rejection.UNKNOWN_HOST,
    Rejection.STALE_INCARNATION,
    Rejection.HOST_NOT_LIVE,
    Rejection.REPORT_GAP,
)
"""The report was not looked at: its number stays free."""


class Reports:
    """A host's reports by their numbers, a client's requests by their first outcomes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.taken: dict[tuple[str, int], int] = {}
        """(actor, incarnation) -> number of the report taken last."""
        self.outcomes: dict[tuple[str, int], Recorded] = {}
        """(actor, seq) -> what was decided first."""

    def look_at(self, record: Recorded) -> None:
        actor = record.entry.origin.actor
        if actor.startswith("host:"):
            self._look_at_report(record)
        elif actor.startswith("client:"):
            self._look_at_request(record)

    def _look_at_report(self, record: Recorded) -> None:
        origin = record.entry.origin
        host = self.state.hosts.get(origin.actor.removeprefix("host:"))
        present = 0 if host is None or host.status not in LIVE_HOST else host.incarnation
        if record.accepted and origin.incarnation != present:
            raise CoreViolation("a report counts in its host's present life alone", f"{record}")
        if record.rejection in UNTAKEN:
            return
        key = (origin.actor, origin.incarnation)
        last = self.taken.get(key, 0)
        if record.duplicate_of and origin.seq > last:
            raise CoreViolation("what was never taken is no repetition", f"{record}")
        if not record.duplicate_of:
            if origin.seq != last + 1:
                raise CoreViolation("reports are taken in order", f"{record.entry} after {last}")
            self.taken[key] = origin.seq

    def _look_at_request(self, record: Recorded) -> None:
        if record.rejection in (Rejection.REQUEST_TOO_OLD, Rejection.NOT_CONFIGURED):
            return
        origin = record.entry.origin
        first = self.outcomes.setdefault((origin.actor, origin.seq), record)
        if first is record:
            return
        same = (record.rejection, record.result) == (first.rejection, first.result)
        if not same or record.duplicate_of != first.entry.index:
            raise CoreViolation("a repeated request gets its first outcome", f"{record}")
