"""Incident files, binary and JSON lines: whole, cut off, damaged, written by hand, and large."""

from __future__ import annotations

import io
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from coord.model.entry import Origin, Recorded
from coord.model.events import HeartbeatsSeen, NoteAdded
from coord.store.incident import (
    END_MARK,
    MAGIC,
    IncidentCorrupt,
    IncidentFormat,
    IncidentReader,
    IncidentTruncated,
    IncidentWriter,
    Located,
    incident_header,
)
from tests.codec.samples import values
from tests.store.records import record, records

BOTH = pytest.mark.parametrize("file_format", list(IncidentFormat))
STATE = b"an encoded state" * 100


def written(
    file_format: IncidentFormat, entries: tuple[Recorded, ...], start_state: bytes = STATE
) -> bytes:
    file = io.BytesIO()
    first = entries[0].entry.index if entries else 1
    header = incident_header("c1", first, start_state, "0.1.0", 1)
    with IncidentWriter(file, header, file_format) as writer:
        for one in entries:
            writer.write(one)
    return file.getvalue()


def read(content: bytes) -> list[Located]:
    return list(IncidentReader(io.BytesIO(content)))


@BOTH
def test_a_file_gives_back_what_was_written(file_format: IncidentFormat) -> None:
    """Header, start state, entries with their places, and footer."""
    content = written(file_format, records(5, 9))
    reader = IncidentReader(io.BytesIO(content))
    assert reader.format == file_format
    assert (reader.header.cluster, reader.header.start_index) == ("c1", 5)
    assert (reader.header.coord_version, reader.header.logic_version) == ("0.1.0", 1)
    assert reader.start_state() == STATE
    located = list(reader)
    assert [one.record for one in located] == list(records(5, 9))
    assert reader.footer is not None
    assert (reader.footer.count, reader.footer.last_index) == (5, 9)
    assert reader.footer.digest == record(9).digest
    for one in located:
        assert str(one.record.entry.index).encode() in content[one.offset :][:400]
        assert one.line == (one.record.entry.index - 3 if file_format == "jsonl" else 0)


@BOTH
def test_a_file_may_be_empty_of_entries(file_format: IncidentFormat) -> None:
    """And begin before the first entry of all."""
    reader = IncidentReader(io.BytesIO(written(file_format, (), b"")))
    assert (list(reader), reader.start_state()) == ([], b"")
    assert reader.footer is not None
    assert reader.footer.count == 0


@settings(max_examples=60, deadline=None)
@given(value=values(Recorded))
def test_any_record_keeps_its_value_in_both_formats(value: Recorded) -> None:
    """Whatever it carries; only its index has to be one."""
    entry = msgspec.structs.replace(value.entry, index=abs(value.entry.index) % 2**62 + 1)
    kept = msgspec.structs.replace(value, entry=entry)
    for file_format in IncidentFormat:
        assert [one.record for one in read(written(file_format, (kept,)))] == [kept]


@BOTH
def test_a_file_needs_not_be_seekable(file_format: IncidentFormat, tmp_path: Path) -> None:
    """As when it comes through a pipe."""
    path = tmp_path / "incident.log"
    path.write_bytes(written(file_format, records(1, 3)))

    class Pipe(io.FileIO):
        def seekable(self) -> bool:
            return False

    with io.BufferedReader(Pipe(str(path))) as file:
        assert [one.record for one in IncidentReader(file)] == list(records(1, 3))


def test_entries_that_do_not_follow_cannot_be_written() -> None:
    """Neither a gap nor a repetition."""
    header = incident_header("c1", 1, b"", "0.1.0", 1)
    with IncidentWriter(io.BytesIO(), header) as writer:
        writer.write(record(1))
        for wrong in (1, 3):
            with pytest.raises(ValueError, match=f"entry {wrong} cannot follow on 1"):
                writer.write(record(wrong))


def collect(content: bytes, good: list[Located], name: str = "incident.log") -> None:
    """Put every entry that is read into `good`, until an error ends it."""
    for one in IncidentReader(io.BytesIO(content), name):
        good.append(one)


def fails(content: bytes) -> tuple[list[Located], IncidentTruncated | IncidentCorrupt]:
    """The good entries and the error after them."""
    good: list[Located] = []
    with pytest.raises((IncidentTruncated, IncidentCorrupt)) as caught:
        collect(content, good)
    return good, caught.value


def test_a_binary_file_cut_off_anywhere_says_where() -> None:
    """At every byte: all whole entries are given, then the place where the rest is missing."""
    content = written(IncidentFormat.BINARY, records(1, 4))
    ends = frame_ends(content)
    for size in range(len(content)):
        good, error = fails(content[:size])
        whole = [one for one, end in zip(records(1, 4), ends, strict=True) if end <= size]
        assert isinstance(error, IncidentTruncated), (size, str(error))
        assert [one.record for one in good] == whole, size
        assert error.offset <= size
        assert f"byte {error.offset} " in str(error)
        if whole:
            assert f"entries up to {len(whole)} are good" in str(error)


def frame_ends(content: bytes) -> list[int]:
    """Where the frame of each entry ends, from the lengths alone."""
    ends = []
    at = len(MAGIC)
    while not content[at:].startswith(END_MARK):
        at += 8 + int.from_bytes(content[at : at + 4], "big")
        ends.append(at)
    return ends[1:-1]


def test_a_flipped_bit_anywhere_in_a_binary_file_is_found() -> None:
    """Each of its bits: what came before is given, and the place is named."""
    content = written(IncidentFormat.BINARY, records(1, 3), b"state")
    ends = frame_ends(content)
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            good, error = fails(bytes(damaged))
            assert isinstance(error, IncidentCorrupt), (at, bit, str(error))
            assert error.offset <= at
            assert f"(byte {error.offset})" in str(error)
            assert [one.record for one in good] == [
                one for one, end in zip(records(1, 3), ends, strict=True) if end <= at
            ]


def test_more_after_the_end_is_found() -> None:
    """As when two files were put into one."""
    for file_format, says in (
        (IncidentFormat.BINARY, "no end mark"),
        (IncidentFormat.JSON_LINES, "after its footer"),
    ):
        content = written(file_format, records(1, 2))
        good, error = fails(content + content)
        assert (len(good), type(error)) == (2, IncidentCorrupt)
        assert says in str(error)


def test_a_writer_that_fails_leaves_a_file_that_says_so() -> None:
    """It has no end, as if it were cut off."""
    file = io.BytesIO()

    def interrupted() -> None:
        with IncidentWriter(file, incident_header("c1", 1, b"", "0.1.0", 1)) as writer:
            writer.write(record(1))
            raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        interrupted()
    good, error = fails(file.getvalue())
    assert ([one.record for one in good], type(error)) == ([record(1)], IncidentTruncated)


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"%PDF-1.7", b"[]", b"\x89PNG\r\n"])
def test_another_file_is_refused(content: bytes) -> None:
    """At its first byte."""
    good, error = fails(content)
    assert (good, error.offset, type(error)) == ([], 0, IncidentCorrupt)


def test_a_newer_format_is_refused() -> None:
    """With the way out."""
    line = b'{"type":"IncidentHeader","cluster":"c1","format":7}\n'
    assert "format 7, this release reads up to 1; upgrade" in str(fails(line)[1])


# JSON lines


def test_json_lines_cut_off_within_a_line_say_so() -> None:
    """Between two lines nothing is missed: a hand-written file has no footer either."""
    content = written(IncidentFormat.JSON_LINES, records(1, 2))
    lines = content.splitlines(keepends=True)
    for size in range(1, len(content)):
        cut = content[:size]
        whole = cut.endswith(b"\n") or any(
            cut + b"\n" == b"".join(lines[:number]) for number in range(1, 5)
        )
        if whole:
            assert len(read(cut)) == min(2, len(cut.splitlines()) - 1)
            continue
        good, error = fails(cut)
        assert isinstance(error, IncidentTruncated), (size, str(error))
        assert len(good) == max(0, min(2, cut.count(b"\n") - 1))
        assert error.offset == size - len(cut.splitlines()[-1])


HAND_WRITTEN = b"""
# What happened on Tuesday, as far as we remember.
{"type": "IncidentHeader", "cluster": "c1"}

{"entry": {"event": {"type": "NoteAdded", "actor": "ann", "subject": "s", "text": "one"}}}
  # An entry that says when it happened; the next one happened then, too.
{"entry": {"wall_ms": 1700000000000, "term": 3, "event": {"type": "ClockAdvanced"}}, "digest": "ab"}
{"entry": {"index":3, "origin": {"actor":"host:h","seq":9}, "event": {"type":"ClockAdvanced"}}}"""


def test_a_hand_written_file_may_leave_out_what_nobody_knows() -> None:
    """Comments and blank lines are skipped; what is missing follows from the line before."""
    reader = IncidentReader(io.BytesIO(HAND_WRITTEN))
    first, second, third = reader
    assert first.record.entry.event == NoteAdded("ann", "s", "one")
    assert first.record.entry.origin == Origin("client:hand", seq=1)
    assert (first.record.digest, first.record.now_ms, first.record.decisions) == ("", -1, ())
    assert (second.record.entry.index, second.record.digest) == (2, "ab")
    entry = third.record.entry
    assert (entry.index, entry.term, entry.wall_ms) == (3, 3, 1_700_000_000_000)
    assert entry.origin == Origin("host:h", seq=9)
    assert [one.line for one in (first, second, third)] == [5, 7, 8]
    assert all(HAND_WRITTEN[one.offset :].startswith(b'{"entry"') for one in (first, second, third))
    assert reader.footer is None


GOOD = b'{"entry":{"event":{"type":"ClockAdvanced"}}}\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"entry":{"event":{"type":"ClockAdvance"}}}', "line 3 cannot be read: .*ClockAdvance"),
        (b'{"entry":{"evnt":{"type":"ClockAdvanced"}}}', "line 3 cannot be read: .*evnt"),
        (
            b'{"entry":{"event":{"type":"LeaderElected","node":"x"}}}',
            "line 3 .*int.*entry.event.node",
        ),
        (b'{"entry":{"index":7,"event":{"type":"ClockAdvanced"}}}', "entry 7 where 2 .*line 3"),
        (
            b'{"entry":{"event":{"type":"TaskExited","host":"h","incarnation":1,"task":"t",'
            b'"signl":9}}}',
            r"line 3 has a field that TaskExited lacks: event\.signl",
        ),
        (
            b'{"entry":{"event":{"type":"JobSubmitted","spec":{"name":"x","roles":'
            b'[{"name":"r","command":["a"],"replcas":2}]}}}}',
            r"line 3 cannot be read: .*replcas.*roles",
        ),
        (b"not json", "line 3 cannot be read: JSON is malformed"),
        (b"\xff\xfe", "line 3 cannot be read"),
        (b'{"type":"IncidentFooter","count":9}', "count=9.*count=1.*line 3"),
        (b'{"type":"IncidentFooter"}', "line 3 cannot be read: .*count"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, says: str) -> None:
    """By its number, with what is wrong; the lines before it are good."""
    content = b'{"type":"IncidentHeader"}\n' + GOOD + line + b"\n"
    good: list[Located] = []
    with pytest.raises(IncidentCorrupt, match=says) as caught:
        collect(content, good, "hand.jsonl")
    assert len(good) == 1
    assert caught.value.line == 3
    assert str(caught.value).startswith("hand.jsonl")


def test_a_file_without_its_header_is_refused() -> None:
    """With an example of one."""
    assert 'line 1 must be the header, such as {"type":"IncidentHeader"' in str(fails(GOOD)[1])


# Large files


def beats(index: int) -> Recorded:
    """A frame of a thousand heartbeats."""
    slots = tuple(range(0, 2_000, 2))
    return record(index, HeartbeatsSeen("node:1", slots, (3,) * len(slots)))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three hundred frames, which make three hundred thousand heartbeats."""
    path = tmp_path_factory.mktemp("incident") / "incident.log"
    header = incident_header("c1", 1, STATE, "0.1.0", 1)
    with path.open("wb") as file, IncidentWriter(file, header) as writer:
        for index in range(1, 301):
            writer.write(beats(index))
    yield path
    path.unlink()


def test_reading_takes_constant_memory(large: Path) -> None:
    """Much less than the file, whatever its length."""
    with large.open("rb") as file:
        tracemalloc.start()
        try:
            count = sum(1 for _ in IncidentReader(file))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert count == 300
    assert large.stat().st_size > 600_000
    assert peak_bytes < 200_000


def test_a_hundred_thousand_heartbeats_are_read_in_a_second(large: Path) -> None:
    """It takes a small part of that; only a change of its nature fails."""
    best_s = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        with large.open("rb") as file:
            heartbeats = sum(len(one.record.entry.event.slots) for one in IncidentReader(file))
        best_s = min(best_s, time.perf_counter() - started)
    assert heartbeats / best_s > 100_000
