"""What waits for the one connection upwards: bounded, by priority. Pure, no I/O.

What concerns leases (conversations that begin and end, beats) goes in the order in which it
happened, before all reports. Reports of one conversation stay in order, for they are numbered;
between conversations those go first whose oldest urgent report waits.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from coord.model.channel import (
    LogChunk,
    RelayAttach,
    RelayBeats,
    Relayed,
    RelayUp,
    Submit,
)
from coord.model.events import (
    AnyEvent,
    HostRegistered,
    LaunchFailed,
    PreemptionNoticed,
    ProgressReported,
    TaskExited,
    TaskReaped,
)
from coord.relay.roster import Vouched

FRAME_BYTES = 16
"""About what a frame takes besides its content."""

_URGENT: tuple[type[AnyEvent], ...] = (
    HostRegistered,
    LaunchFailed,
    PreemptionNoticed,
    TaskExited,
    TaskReaped,
)

Urgent = RelayAttach | Relayed | Vouched | RelayBeats | int
"""In one message these go in the order of RelayUp's fields; an int is a conversation that ended."""


class Priority(IntEnum):
    """Of reports; lower goes first, and is refused last."""

    URGENT = 0
    COMMAND = 1
    PROGRESS = 2


_SHARE = {Priority.URGENT: 1.0, Priority.COMMAND: 0.75, Priority.PROGRESS: 0.5}
_RANK: dict[type, int] = {RelayAttach: 0, Relayed: 1, Vouched: 2, RelayBeats: 2, int: 3}


def priority_of(message: Submit | LogChunk) -> Priority:
    """That of its most urgent event."""
    if isinstance(message, LogChunk):
        return Priority.PROGRESS
    kinds = [type(one.event) for one in message.submissions]
    if any(kind in _URGENT for kind in kinds):
        return Priority.URGENT
    if all(kind is ProgressReported for kind in kinds):
        return Priority.PROGRESS
    return Priority.COMMAND


class Upward:
    """`limit_bytes` bounds reports; `message_bytes` is about the most that leaves at once."""

    def __init__(self, limit_bytes: int, message_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._message_bytes = message_bytes
        self._urgent: deque[Urgent] = deque()
        self._urgent_bytes = 0
        self._reports: dict[int, deque[tuple[Priority, bytes]]] = {}
        self._counts: dict[int, list[int]] = {}
        self._ready: tuple[dict[int, None], ...] = ({}, {}, {})
        self.size_bytes = 0
        """Of waiting reports."""

    def __bool__(self) -> bool:
        return bool(self._urgent) or bool(self._reports)

    @property
    def overflows(self) -> bool:
        """Whether what concerns leases has piled up: whoever may be told to come again is."""
        return self._urgent_bytes > self._limit_bytes

    def put(self, item: Urgent) -> None:
        """What concerns leases. There is little of it: a conversation or a window each."""
        self._urgent.append(item)
        self._urgent_bytes += _size_of(item)

    def add(self, session: int, priority: Priority, frame: bytes) -> bool:
        """A report, encoded; False when there is no room for its kind."""
        size_bytes = len(frame) + FRAME_BYTES
        if self.size_bytes + size_bytes > self._limit_bytes * _SHARE[priority]:
            return False
        self.size_bytes += size_bytes
        before = self._rank(session)
        self._reports.setdefault(session, deque()).append((priority, frame))
        self._counts.setdefault(session, [0, 0, 0])[priority] += 1
        self._ring(session, before)
        return True

    def forget(self, session: int) -> None:
        """The conversation ended: nobody waits for its answers."""
        rank = self._rank(session)
        if rank is not None:
            del self._ready[rank][session]
            del self._counts[session]
            for _, frame in self._reports.pop(session):
                self.size_bytes -= len(frame) + FRAME_BYTES

    def forget_urgent(self) -> None:
        """The connection is gone; what is to be said on the next one is another matter."""
        self._urgent.clear()
        self._urgent_bytes = 0

    def take(self) -> tuple[list[Urgent], list[Relayed]]:
        """For one message: urgent things whose order its fields keep, then reports that fit, if
        all that was urgent is in it."""
        urgent: list[Urgent] = []
        rank = size_bytes = 0
        while self._urgent and size_bytes < self._message_bytes:
            if _RANK[type(self._urgent[0])] < rank:
                break
            item = self._urgent.popleft()
            rank = _RANK[type(item)]
            size_bytes += _size_of(item)
            urgent.append(item)
        self._urgent_bytes = self._urgent_bytes - size_bytes if self._urgent else 0
        reports: list[Relayed] = []
        # Frames come before beats and endings: one that waits must not overtake what began it.
        while not self._urgent and self._reports and size_bytes < self._message_bytes:
            report = self._next()
            size_bytes += len(report.frame) + FRAME_BYTES
            reports.append(report)
        return urgent, reports

    def _next(self) -> Relayed:
        ready = next(ring for ring in self._ready if ring)
        session = next(iter(ready))
        before = self._rank(session)
        priority, frame = self._reports[session].popleft()
        self.size_bytes -= len(frame) + FRAME_BYTES
        self._counts[session][priority] -= 1
        if not self._reports[session]:
            del self._reports[session], self._counts[session], ready[session]
        else:
            # To the end of its ring, so that one conversation does not hold up the others.
            del ready[session]
            self._ring(session, before)
        return Relayed(session, frame)

    def _rank(self, session: int) -> int | None:
        counts = self._counts.get(session)
        if counts is None:
            return None
        return next(rank for rank, count in enumerate(counts) if count)

    def _ring(self, session: int, before: int | None) -> None:
        rank = self._rank(session)
        assert rank is not None
        if before is not None and before != rank:
            self._ready[before].pop(session, None)
        self._ready[rank].setdefault(session)


def _size_of(item: Urgent) -> int:
    """About its bytes in a message."""
    if isinstance(item, Relayed):
        return len(item.frame) + FRAME_BYTES
    if isinstance(item, RelayAttach):
        return len(item.actor) + FRAME_BYTES
    if isinstance(item, int):
        return FRAME_BYTES
    beats = item.frame if isinstance(item, Vouched) else item
    hosts = sum(len(one.joined_slots) + len(one.left_slots) for one in beats.changes)
    hosts += sum(len(one.except_slots) for one in beats.heard)
    return FRAME_BYTES * (1 + len(beats.changes) + len(beats.heard) + hosts)


def message_of(urgent: list[Urgent], reports: list[Relayed], now_ms: int) -> RelayUp:
    """As it leaves now."""
    shown = [one for one in urgent if isinstance(one, Relayed)]
    beats = [
        one.sent_at(now_ms) if isinstance(one, Vouched) else one
        for one in urgent
        if isinstance(one, Vouched | RelayBeats)
    ]
    return RelayUp(
        tuple([one for one in urgent if isinstance(one, RelayAttach)]),
        (*shown, *reports),
        tuple(beats),
        tuple([one for one in urgent if isinstance(one, int)]),
    )
