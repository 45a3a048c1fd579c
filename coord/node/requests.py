"""Requests accepted here and not yet decided, found again by their origin when it is applied.

A request ends in exactly one of three ways: its entry is applied here (`committed`), it is refused
before it left (`not_committed`), or its deadline passes (`unknown` if any copy of it may be in a
log, else `not_committed`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count

from coord.core.state import State
from coord.model.channel import Result
from coord.model.entry import Origin, Recorded, Submission
from coord.model.events import HostRegistered
from coord.model.rejections import Rejection

Key = tuple[str, int, int]
"""(actor, incarnation, seq) of an origin."""

Reply = Callable[[Result], None]


def key_of(origin: Origin) -> Key:
    return (origin.actor, origin.incarnation, origin.seq)


class Request:
    """One submission on its way. Owned by the loop's thread."""

    __slots__ = ("also", "attempts", "done", "key", "reply", "sent_at", "size_bytes", "source",
                 "submission")  # fmt: skip

    def __init__(
        self, submission: Submission, size_bytes: int, reply: Reply | None = None, source: int = 0
    ) -> None:
        self.key = key_of(submission.origin)
        self.submission = submission
        self.size_bytes = size_bytes
        self.reply = reply
        self.source = source
        """The node that forwarded it; 0 when it came to this one."""
        self.attempts = 0
        """Copies of it that may be in some log."""
        self.sent_at = 0.0
        """Loop time at which it was last forwarded."""
        self.done = False
        self.also: list[Request] | None = None
        """The same request asked again on another connection."""


class RequestTable:
    """The local requests by origin, and their deadlines."""

    def __init__(self) -> None:
        self._pending: dict[Key, Request] = {}
        self._deadlines: list[tuple[float, int, tuple[Request, ...]]] = []
        self._order = count()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, requests: list[Request], deadline: float) -> list[Request]:
        """Take them in; returns those that are not already on their way."""
        fresh = []
        pending = self._pending
        for request in requests:
            first = pending.get(request.key)
            if first is not None:
                first.also = [*(first.also or ()), request]
                continue
            pending[request.key] = request
            self.size_bytes += request.size_bytes
            fresh.append(request)
        heapq.heappush(self._deadlines, (deadline, next(self._order), tuple(requests)))
        return fresh

    def decided(self, record: Recorded, state: State) -> None:
        """The entry was applied here: whoever waits for it gets its outcome."""
        request = self._pending.pop(key_of(record.entry.origin), None)
        if request is not None:
            self._answer(request, result_of(record, state))

    def refuse(self, request: Request, reason: str, retry_after_ms: int = 0) -> None:
        """No copy is in any log: say so to everyone who asked."""
        if self._pending.pop(request.key, None) is not None:
            self._answer(request, undecided(request, "not_committed", reason, retry_after_ms))

    def all(self) -> list[Request]:
        return list(self._pending.values())

    def get(self, key: Key) -> Request | None:
        return self._pending.get(key)

    def expire(self, now: float) -> list[Request]:
        """End what is past its deadline; returns requests that must be routed in place of one
        that expired, because somebody who asked the same later still waits."""
        successors: list[Request] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            for request in heapq.heappop(self._deadlines)[2]:
                if not request.done:
                    successors += self._expire(request)
        return successors

    def close(self, reason: str) -> None:
        """The node stops: end everything that waits."""
        for request in list(self._pending.values()):
            outcome = "unknown" if request.attempts else "not_committed"
            self._answer(request, undecided(request, outcome, reason))
        self._pending.clear()

    def _expire(self, request: Request) -> Iterable[Request]:
        first = self._pending.get(request.key, request)
        outcome = "unknown" if first.attempts else "not_committed"
        request.done = True
        if request.reply is not None:
            request.reply(undecided(request, outcome, "timeout"))
        if first is not request:
            first.also = [one for one in first.also or () if one is not request] or None
            return ()
        del self._pending[request.key]
        self.size_bytes -= request.size_bytes
        if not request.also:
            return ()
        successor, *others = request.also
        successor.also = others or None
        successor.attempts = request.attempts
        self._pending[successor.key] = successor
        self.size_bytes += successor.size_bytes
        return (successor,)

    def _answer(self, request: Request, result: Result) -> None:
        self.size_bytes -= request.size_bytes
        for one in (request, *(request.also or ())):
            one.done = True
            if one.reply is not None:
                one.reply(result)


def result_of(record: Recorded, state: State) -> Result:
    """What the sender is told of its applied entry."""
    origin = record.entry.origin
    event = record.entry.event
    slot = last_report_seq = 0
    if record.rejection == Rejection.REPORT_GAP and origin.actor.startswith("host:"):
        host = state.hosts.get(origin.actor[5:])
        last_report_seq = host.report_seq if host is not None else 0
    elif type(event) is HostRegistered and not record.rejection:
        slot = state.hosts[event.host].slot
    return Result(
        seq=origin.seq,
        outcome="committed",
        incarnation=origin.incarnation,
        index=record.duplicate_of or record.entry.index,
        rejection=record.rejection,
        result=record.result,
        last_report_seq=last_report_seq,
        slot=slot,
    )


def undecided(request: Request, outcome: str, reason: str, retry_after_ms: int = 0) -> Result:
    """`not_committed` or `unknown`, with the word that says why."""
    origin = request.submission.origin
    return Result(
        seq=origin.seq,
        outcome=outcome,
        incarnation=origin.incarnation,
        reason=reason,
        retry_after_ms=retry_after_ms,
    )
