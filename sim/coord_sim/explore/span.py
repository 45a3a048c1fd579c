"""Which entries of a file are taken apart: all of them, or of a long history a span.

The whole file is read and replayed once, front to back, whatever its length; memory is bounded by
twice the span. Without a wish, the span with the most failures in it is taken.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

import msgspec

from coord.cli.verify import Difference, Replayer, difference_text
from coord.cli.wording import count_text
from coord.core.cluster import NEWEST_LOGIC_VERSION
from coord.core.state import State, decode_state, encode_state
from coord.model import decisions as d
from coord.model.entry import Recorded
from coord.store.incident import IncidentCorrupt, IncidentReader, IncidentTruncated

from .incident import Incident, IncidentDiffers, IncidentTooShort, IncidentUnfit, LogicUnknown

SPAN = 5_000
"""Entries that are taken apart at once unless told otherwise."""
LONGEST_SPAN = 100_000
PARTS = 4
"""A span begins at a multiple of this part of its length, where a copy of the state is kept."""
PROGRESS_EVERY = 1_024

FAILURES = (
    d.HostLost,
    d.HostSuspected,
    d.IncidentOpened,
    d.CauseRevised,
    d.HangDetected,
    d.TaskAbandoned,
    d.EvictionsFrozen,
    d.RestartScheduled,
    d.HostDraining,
)
"""Decisions that make a span worth taking apart."""


class NothingThere(IncidentUnfit):
    """The file has no bytes, or no entry of the span asked for."""


class Span(msgspec.Struct, frozen=True):
    """What to take apart, and how it was chosen."""

    incident: Incident
    entries: int
    """Of the whole file."""
    verified: int
    """Of the whole file."""
    notes: tuple[str, ...]


def read_span(
    path: str,
    *,
    longest: int = SPAN,
    first: int = 0,
    last: int = 0,
    progress: Callable[[int, int], None] = lambda offset_bytes, entries: None,
) -> Span:
    """Replay the file and choose. `first` and `last` are indexes, 0 for no wish.

    Raises IncidentError where the file is damaged or of an unknown format, IncidentUnfit where it
    is sound but cannot be varied, and OSError where it cannot be read.
    """
    with open(path, "rb", buffering=1 << 20) as file:
        if not os.fstat(file.fileno()).st_size:
            raise NothingThere(
                f"{path} is empty; write an incident file with `coordctl incident export`"
            )
        reader = IncidentReader(file, path)
        if reader.header.logic_version > NEWEST_LOGIC_VERSION:
            raise LogicUnknown(
                f"{path} was recorded under rules of version {reader.header.logic_version}, this "
                f"release has {NEWEST_LOGIC_VERSION}; upgrade coord"
            )
        return _Reading(path, reader, longest, first, last, progress).span()


class _Part(msgspec.Struct):
    """A part of the log, the state before it, and how much went wrong in it."""

    first: int
    start: bytes
    records: list[Recorded]
    failures: int = 0


class _Reading:
    def __init__(
        self,
        path: str,
        reader: IncidentReader,
        longest: int,
        first: int,
        last: int,
        progress: Callable[[int, int], None],
    ) -> None:
        self._path = path
        self._reader = reader
        self._wished = bool(first or last)
        self._first = first or reader.header.start_index
        self._last = last
        self._length = LONGEST_SPAN if self._wished else longest
        self._part_length = self._length if self._wished else -(-longest // PARTS)
        self._progress = progress
        self._parts: deque[_Part] = deque()
        self._best: list[_Part] = []
        self._notes: list[str] = []
        self._entries = 0

    def span(self) -> Span:
        state = _start_state(self._reader)
        replayer = Replayer(state)
        try:
            for located in self._reader:
                self._keep_state(state, located.record.entry.index)
                derived = replayer.apply(located.record, located.offset)
                if isinstance(derived, Difference):
                    raise self._differs(located.record, derived, replayer.final_digest())
                self._keep(derived)
                if not self._entries % PROGRESS_EVERY:
                    self._progress(located.offset, self._entries)
        except IncidentTruncated as cut_off:
            if not self._entries:
                raise
            self._notes.append(f"{cut_off}; what is there is taken apart.")
        self._look()
        incident = self._incident(replayer)
        return Span(incident, self._entries, replayer.verified, tuple(self._notes))

    def _keep_state(self, state: State, index: int) -> None:
        if index < self._first or (self._last and index > self._last):
            return
        if not self._parts or len(self._parts[-1].records) >= self._part_length:
            self._look()
            self._parts.append(_Part(index, encode_state(state), []))
            if len(self._parts) > PARTS:
                self._parts.popleft()

    def _keep(self, record: Recorded) -> None:
        self._entries += 1
        index = record.entry.index
        if index < self._first or (self._last and index > self._last):
            return
        part = self._parts[-1]
        if self._wished and len(part.records) >= LONGEST_SPAN:
            raise IncidentUnfit(
                f"entries {self._first} to {self._last or 'the end'} are more than the "
                f"{LONGEST_SPAN:,} that can be taken apart at once; "
                "narrow --from and --until around what went wrong"
            )
        part.records.append(record)
        part.failures += sum(isinstance(decision, FAILURES) for decision in record.decisions)

    def _look(self) -> None:
        """Keep the parts of now if more went wrong in them than in any before; the latest of equal
        ones, since that is what somebody exported a log for."""
        if sum(part.failures for part in self._parts) >= sum(part.failures for part in self._best):
            self._best = list(self._parts)

    def _incident(self, replayer: Replayer) -> Incident:
        records = [record for part in self._best for record in part.records]
        if not records:
            asked = _asked_text(self._first, self._last) if self._wished else "in it"
            raise NothingThere(
                f"{self._path} has no entry {asked}; it has "
                f"{count_text(self._entries, 'entry', 'entries')} "
                f"from {self._reader.header.start_index} on"
            )
        if len(records) < 2:
            raise IncidentTooShort(
                f"{self._path} has a single entry to take apart, {records[0].entry.index}, and it "
                "takes two for another order; export a longer span with "
                "`coordctl incident export --from INDEX`"
            )
        begin = self._best[0]
        if len(records) < self._entries:
            self._notes.append(self._chosen(begin.first, records[-1].entry.index, len(records)))
        header = msgspec.structs.replace(self._reader.header, start_index=begin.first)
        return Incident(header, begin.start, tuple(records), len(records), self._path)

    def _chosen(self, first: int, last: int, count: int) -> str:
        if self._wished:
            return f"Of {self._entries:,} entries, {first:,} to {last:,} are taken apart, as asked."
        failures = sum(part.failures for part in self._best)
        why = (
            f"the {count:,} with the most failures in them"
            if failures
            else "the last ones, since nothing failed in any"
        )
        return (
            f"{self._entries:,} entries are more than the {self._length:,} that are taken apart at "
            f"once: taken are {first:,} to {last:,}, {why}. "
            "Choose others with --from and --until, or more with --span."
        )

    def _differs(
        self, record: Recorded, difference: Difference, derived_digest: str
    ) -> IncidentDiffers:
        header = self._reader.header
        by = f"coord {header.coord_version}" if header.coord_version else "another release"
        unfit = IncidentDiffers(record.entry.index, difference)
        digests = (
            ""
            if "digest" in difference.recorded
            else f"  digest recorded: {record.digest or 'none'}\n"
            f"  digest derived:  {derived_digest}\n"
        )
        unfit.args = (
            f"{self._path}: {difference_text(difference)}\n"
            f"{digests}"
            f"Only what replays as it is can be varied. It says it was recorded by {by}: take it "
            "apart with that release, or export it anew with `coordctl incident export`.",
        )
        return unfit


def _asked_text(first: int, last: int) -> str:
    """Which entries were asked for; 0 for an end that was left open."""
    if not last:
        return f"from {first} on"
    return f"between {first} and {last}" if first else f"up to {last}"


def _start_state(reader: IncidentReader) -> State:
    try:
        state = decode_state(reader.start_state())
    except msgspec.MsgspecError as error:
        raise IncidentCorrupt(f"the start state cannot be read: {error}", 0) from error
    if state.meta.applied_index != reader.header.start_index - 1:
        raise IncidentCorrupt(
            f"the start state is as of index {state.meta.applied_index}, but the file begins with "
            f"{reader.header.start_index}",
            0,
        )
    return state
