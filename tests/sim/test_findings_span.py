"""Of a long log the span with the most failures is taken apart; what cannot be is refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest
from coord_sim.explore.incident import IncidentDiffers, IncidentUnfit, replayed
from coord_sim.explore.span import read_span

from coord.core.state import new_state, state_digest
from coord.store.incident import IncidentFormat, IncidentTruncated
from tests.cli.recordings import TWO_FAILURES, entries_of, quiet_entries, recorded
from tests.fleet_story import eventful_life


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "incident.log"


def test_a_short_log_is_taken_whole(path: Path) -> None:
    """In either format, every digest compared."""
    for file_format in (IncidentFormat.BINARY, IncidentFormat.JSON_LINES):
        path.write_bytes(recorded(entries_of(TWO_FAILURES), file_format))
        span = read_span(str(path))
        assert (span.entries, span.verified, span.notes) == (35, 35, ())
        assert len(span.incident.records) == 35
        assert state_digest(span.incident.start_state()) == state_digest(new_state())


def test_of_a_long_log_the_failures_are_taken(path: Path) -> None:
    """With the state before them, and it says which entries they are."""
    entries = entries_of(TWO_FAILURES)
    beats = [
        msgspec.structs.replace(entry, wall_ms=entries[-1].wall_ms)
        for entry in quiet_entries(1_000)[2:]
    ]
    long = [*entries, *beats]
    long = [msgspec.structs.replace(one, index=at) for at, one in enumerate(long, 1)]
    path.write_bytes(recorded(long))
    span = read_span(str(path), longest=100)
    first = span.incident.header.start_index
    assert first == 1
    assert len(span.incident.records) == 100
    (note,) = span.notes
    assert "1,035 entries are more than the 100" in note
    assert "1 to 100, the 100 with the most failures in them" in note


def test_a_span_from_the_middle_replays(path: Path) -> None:
    """From the state that was kept before it."""
    story = eventful_life()
    path.write_bytes(recorded([record.entry for record in story.records]))
    span = read_span(str(path), longest=40)
    incident = span.incident
    assert incident.header.start_index > 1
    assert len(incident.records) <= 40
    again = replayed(incident.header, incident.start, list(incident.records))
    assert again.records == incident.records


def test_a_log_in_which_nothing_failed_is_taken_at_its_end(path: Path) -> None:
    path.write_bytes(recorded(quiet_entries(998)))
    span = read_span(str(path), longest=100)
    assert span.incident.records[-1].entry.index == 1_000
    assert "the last ones, since nothing failed in any" in span.notes[0]


def test_entries_can_be_chosen(path: Path) -> None:
    """By index, both ends included."""
    path.write_bytes(recorded(entries_of(TWO_FAILURES)))
    span = read_span(str(path), first=10, last=20)
    assert [one.entry.index for one in span.incident.records] == list(range(10, 21))
    assert span.notes == ("Of 35 entries, 10 to 20 are taken apart, as asked.",)
    with pytest.raises(IncidentUnfit, match="has no entry between 90 and 99; it has 35 entries"):
        read_span(str(path), first=90, last=99)
    with pytest.raises(IncidentUnfit, match="has no entry from 90 on; it has 35 entries"):
        read_span(str(path), first=90)


def test_digests_that_differ_are_named(path: Path) -> None:
    """With the index, both digests and what to do."""
    whole = recorded(entries_of(TWO_FAILURES), IncidentFormat.JSON_LINES)
    lines = whole.splitlines(keepends=True)
    lines[9] = lines[9].replace(b'"wall_ms":1000900', b'"wall_ms":1000901')
    path.write_bytes(b"".join(lines))
    with pytest.raises(IncidentDiffers) as differs:
        read_span(str(path))
    told = str(differs.value)
    assert "entry 9 at byte" in told
    assert told.count("digest recorded: ") == 1
    assert told.count("digest derived:  ") == 1
    assert "coordctl incident export" in told


def test_a_digest_that_differs_alone_is_told_once(path: Path) -> None:
    whole = recorded(entries_of(TWO_FAILURES), IncidentFormat.JSON_LINES)
    path.write_bytes(whole.replace(b'"digest":"', b'"digest":"0', 1))
    with pytest.raises(IncidentDiffers) as differs:
        read_span(str(path))
    assert str(differs.value).count("digest recorded: ") == 1


def test_what_cannot_be_taken_apart_is_refused(path: Path) -> None:
    """An empty file, a single entry, rules that are not known here, each with the next step."""
    path.write_bytes(b"")
    with pytest.raises(IncidentUnfit, match=r"is empty; write an incident file with"):
        read_span(str(path))
    path.write_bytes(recorded(entries_of(TWO_FAILURES)[:1]))
    with pytest.raises(IncidentUnfit, match=r"single entry .* takes two"):
        read_span(str(path))
    header = b'{"type":"IncidentHeader","logic_version":99}\n'
    path.write_bytes(header)
    with pytest.raises(IncidentUnfit, match=r"version 99, this release has 2; upgrade"):
        read_span(str(path))


def test_a_file_that_was_cut_off_is_taken_as_far_as_it_goes(path: Path) -> None:
    """And it says where it ends."""
    whole = recorded(entries_of(TWO_FAILURES))
    path.write_bytes(whole[: len(whole) * 3 // 4])
    span = read_span(str(path))
    assert 20 < len(span.incident.records) < 35
    assert "was cut off" in span.notes[0]
    path.write_bytes(whole[:40])
    with pytest.raises(IncidentTruncated):
        read_span(str(path))


def test_memory_is_that_of_the_span(path: Path) -> None:
    """Ten times the entries take the same memory."""

    def peak_bytes(count: int) -> int:
        path.write_bytes(recorded(quiet_entries(count)))
        tracemalloc.start()
        try:
            read_span(str(path), longest=200)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_bytes(1_000)  # whatever is only made once, is made now
    assert peak_bytes(10_000) < peak_bytes(1_000) + 400_000
