"""One write of a client, from the call until it is answered."""

from __future__ import annotations

import asyncio

from coord.client.views import Decided
from coord.model.entry import Submission
from coord.model.events import (
    AnyEvent,
    DrainRequested,
    Event,
    EvictionsAllowed,
    HostQuarantineRequested,
    HostReleaseRequested,
    HostRemovalRequested,
    JobCancelRequested,
    JobResizeRequested,
    JobSubmitted,
    MaintenanceCancelled,
    MaintenanceRequested,
    NoteAdded,
    QuarantineAnswered,
    RollbackRequested,
    UndrainRequested,
)

ATTEMPT_S = 3.0
"""The most that a server is given for one attempt; another one is asked then."""
ATTEMPT_SHARE = 1 / 3
"""Of a write's time, for one attempt: the first of three servers must not use up all of it."""
ATTEMPT_LEAST_S = 0.3
STALL_FACTOR = 4 / 3
UNDECIDED = frozenset({"not_leader", "timeout"})
"""Reasons of a server that may be cut off from the others."""

ASKED: dict[type[Event], str] = {
    JobSubmitted: "submitting job",
    JobCancelRequested: "cancelling job",
    JobResizeRequested: "resizing job",
    RollbackRequested: "rolling back job",
    DrainRequested: "draining host",
    UndrainRequested: "undraining host",
    HostRemovalRequested: "removing host",
    HostQuarantineRequested: "quarantining host",
    QuarantineAnswered: "answering the proposal to quarantine host",
    HostReleaseRequested: "releasing host",
    MaintenanceRequested: "maintenance of",
    MaintenanceCancelled: "cancelling maintenance",
    NoteAdded: "a note on",
    EvictionsAllowed: "allowing evictions",
}
"""What people ask for, in their words."""


class PendingWrite:
    """Owned by the writer. Loop times in seconds."""

    __slots__ = ("attempt_s", "deadline_s", "event", "future", "refusal", "resend_s",
                 "retry_after_ms", "sent_s", "submission", "uncertain")  # fmt: skip

    def __init__(
        self, event: AnyEvent, now_s: float, timeout_s: float, future: asyncio.Future[Decided]
    ) -> None:
        self.event = event
        self.deadline_s = now_s + timeout_s
        self.attempt_s = min(ATTEMPT_S, max(ATTEMPT_LEAST_S, timeout_s * ATTEMPT_SHARE))
        """How long a server is given to answer one attempt."""
        self.future = future
        self.submission: Submission | None = None
        self.sent_s = 0.0
        """Loop time of the attempt under way; 0 while there is none."""
        self.resend_s = 0.0
        """Loop time at which to send again; 0 when an answer is awaited."""
        self.uncertain = False
        """Some attempt ended without a definite answer."""
        self.refusal = ""
        """Why the last attempt was not taken."""
        self.retry_after_ms = 0

    @property
    def stall_s(self) -> float:
        """A server that has not even answered "unknown" so long after an attempt is given up."""
        return self.attempt_s * STALL_FACTOR

    @property
    def name(self) -> str:
        """What was asked, for messages."""
        event = self.event
        asked = ASKED.get(type(event), f"{type(event).__name__} of")
        for field in ("job", "host", "subject", "domain", "maintenance"):
            named = getattr(event, field, "")
            if named:
                return f"{asked} {named!r}"
        spec = getattr(event, "spec", None)
        return f"{asked} {spec.name!r}" if spec else asked.removesuffix(" of")
