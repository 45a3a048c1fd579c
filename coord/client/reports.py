"""What an agent has to report, in order, until each report is decided. Pure bookkeeping, no I/O.

A report is fresh until it is first sent; only then does it get its number, so that a newer
`ProgressReported` can take a fresh older one's place without leaving a gap. Numbered reports are
sent in order, many under way at once. When one was refused for a gap or not taken, only the oldest
is sent (probing) until it is decided, so that answers to what was sent after it cause no storm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from msgspec.structs import replace

from coord.client.errors import CoordError, InvalidRequest, NotDone, Rejected
from coord.client.views import Decided
from coord.model.channel import Result
from coord.model.entry import Origin, Submission
from coord.model.events import AnyEvent, ProgressReported
from coord.model.rejections import Rejection

QUEUE_LIMIT = 65_536
WINDOW = 512
"""Reports under way at once."""

_SUPERSEDING = frozenset(
    {Rejection.STALE_INCARNATION, Rejection.HOST_NOT_LIVE, Rejection.UNKNOWN_HOST}
)


class _Report:
    __slots__ = ("event", "submission", "waiters")

    def __init__(self, event: AnyEvent) -> None:
        self.event = event
        self.submission: Submission | None = None
        self.waiters: list[asyncio.Future[Decided]] = []


class ReportQueue:
    """The reports of one host. Futures belong to the running loop."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.incarnation = 0
        self._fresh: dict[int, _Report] = {}
        self._fresh_progress: dict[str, int] = {}
        self._arrivals = 0
        self._numbered: dict[int, _Report] = {}
        self._next_seq = 1
        self._cursor = 1
        self._probing = False
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Reports that are not decided yet."""
        return len(self._fresh) + len(self._numbered)

    @property
    def under_way(self) -> int:
        """Reports that were sent and not answered."""
        return max(0, self._cursor - self._head)

    @property
    def _head(self) -> int:
        """The oldest number that is not decided; the next number when all are."""
        return next(iter(self._numbered), self._next_seq)

    def begin(self, incarnation: int) -> None:
        """Count from 1 under a new incarnation. The queue must be empty (see `fail_all`)."""
        self.incarnation = incarnation
        self._next_seq = self._cursor = 1
        self._probing = False

    def add(self, event: AnyEvent) -> asyncio.Future[Decided]:
        """Take a report. The future is settled when it is decided; nobody has to look at it."""
        future: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_looked_at)
        incarnation = getattr(event, "incarnation", 0)
        if not self.incarnation or incarnation != self.incarnation:
            future.set_exception(Rejected(self._subject(event), Rejection.STALE_INCARNATION))
            return future
        if len(self) >= QUEUE_LIMIT and not self._replaces(event):
            future.set_exception(
                NotDone(
                    f"{self._subject(event)}: {len(self)} reports wait for a server, the limit is "
                    f"{QUEUE_LIMIT}; see whether the servers can be reached",
                    "queue_full",
                )
            )
            return future
        self._empty.clear()
        report = _Report(event)
        report.waiters.append(future)
        self._place(report)
        return future

    def _replaces(self, event: AnyEvent) -> bool:
        return isinstance(event, ProgressReported) and event.task in self._fresh_progress

    def _place(self, report: _Report) -> None:
        self._arrivals += 1
        event = report.event
        if isinstance(event, ProgressReported):
            older = self._fresh_progress.get(event.task)
            if older is not None:
                report.waiters = self._fresh.pop(older).waiters + report.waiters
            self._fresh_progress[event.task] = self._arrivals
        self._fresh[self._arrivals] = report

    def take(self, seen_index: int, seen_plan: int) -> tuple[Submission, ...]:
        """What to send now, in order; empty when answers must come first."""
        self._cursor = max(self._cursor, self._head)
        if self._probing:
            return self._take_numbered(1) if self._cursor == self._head else ()
        taken = self._take_numbered(WINDOW - self.under_way)
        room = WINDOW - self.under_way
        if self._cursor < self._next_seq or room <= 0 or not self._fresh_is_due(bool(taken)):
            return taken
        return taken + tuple(self._number(room, seen_index, seen_plan))

    def _fresh_is_due(self, sending: bool) -> bool:
        """Progress alone waits until nothing is under way: then one report stands for many."""
        if len(self._fresh) > len(self._fresh_progress):
            return True
        return bool(self._fresh) and (sending or not self.under_way)

    def _take_numbered(self, limit: int) -> tuple[Submission, ...]:
        stop = min(self._next_seq, self._cursor + max(limit, 0))
        found = []
        for seq in range(self._cursor, stop):
            report = self._numbered.get(seq)
            # Decided ones may lie between: answers come in any order.
            if report is not None and report.submission is not None:
                found.append(report.submission)
        self._cursor = stop
        return tuple(found)

    def _number(self, limit: int, seen_index: int, seen_plan: int) -> Iterator[Submission]:
        for arrival in list(self._fresh)[:limit]:
            report = self._fresh.pop(arrival)
            if isinstance(report.event, ProgressReported):
                del self._fresh_progress[report.event.task]
            origin = Origin(
                f"host:{self._host}", self.incarnation, self._next_seq, seen_index, seen_plan
            )
            report.submission = Submission(origin, report.event)
            self._numbered[self._next_seq] = report
            self._next_seq += 1
            self._cursor = self._next_seq
            yield report.submission

    def connection_lost(self) -> None:
        """Nothing under way will be answered: send it all again."""
        self._cursor = self._head
        self._probing = False

    def on_result(self, result: Result) -> str:
        """Take an answer in. Returns why this incarnation is over, empty when it is not."""
        report = self._numbered.get(result.seq)
        if result.incarnation != self.incarnation or report is None:
            return ""
        if result.outcome != "committed":
            self._send_again_from(result.seq)
            return ""
        if result.rejection in _SUPERSEDING:
            return result.rejection
        if result.rejection == Rejection.REPORT_GAP:
            return self._on_gap(result)
        self._settle(result.seq, _decision(self._subject(report.event), result))
        return ""

    def _on_gap(self, result: Result) -> str:
        last = result.last_report_seq
        for seq in [seq for seq in self._numbered if seq <= last]:
            self._settle(seq, Decided(0))
        head = self._head
        if last + 1 < head and self._probing and result.seq == head:
            # The log knows less than it told us before; nothing here can fill that gap.
            return Rejection.REPORT_GAP
        if not self._probing or result.seq == head:
            self._send_again_from(max(last + 1, head))
        return ""

    def _send_again_from(self, seq: int) -> None:
        self._cursor = min(self._cursor, seq)
        self._probing = True

    def _settle(self, seq: int, outcome: Decided | CoordError) -> None:
        if seq == self._head:
            self._probing = False
        _finish(self._numbered.pop(seq), outcome)
        self._tell_if_empty()

    def drop_unsendable(self, seq: int, message: str) -> None:
        """A report that no server would take: its number goes to the next one.

        Nothing from `seq` on has ever been sent, because one Submit holds them all.
        """
        later = [one for number, one in self._numbered.items() if number > seq]
        _finish(self._numbered[seq], InvalidRequest(message, "unsendable"))
        for number in range(seq, self._next_seq):
            self._numbered.pop(number, None)
        for number, report in enumerate(later, seq):
            if report.submission is not None:
                origin = replace(report.submission.origin, seq=number)
                report.submission = replace(report.submission, origin=origin)
            self._numbered[number] = report
        self._next_seq = seq + len(later)
        self._cursor = self._head
        self._tell_if_empty()

    def fail_all(self, rejection: str) -> None:
        """The incarnation is over: every report is answered with this word of `Rejection`."""
        reports = [*self._numbered.values(), *self._fresh.values()]
        self._numbered.clear()
        self._fresh.clear()
        self._fresh_progress.clear()
        self.incarnation = 0
        for report in reports:
            _finish(report, Rejected(self._subject(report.event), rejection))
        self._empty.set()

    async def wait_empty(self) -> None:
        """Return once every report is decided."""
        await self._empty.wait()

    def _tell_if_empty(self) -> None:
        if not self._fresh and not self._numbered:
            self._empty.set()

    def _subject(self, event: AnyEvent) -> str:
        return f"{type(event).__name__} of {getattr(event, 'task', self._host)}"


def _decision(subject: str, result: Result) -> Decided | CoordError:
    if result.rejection:
        return Rejected(subject, result.rejection, result.index)
    return Decided(result.index, result.result)


def _finish(report: _Report, outcome: Decided | CoordError) -> None:
    for waiter in report.waiters:
        if waiter.done():
            continue
        if isinstance(outcome, Decided):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)


def _looked_at(future: asyncio.Future[Decided]) -> None:
    # Reports may be made without waiting for them; asyncio would complain about the exception.
    if not future.cancelled():
        future.exception()
