"""What watchers were given against the log: each planted fault is found, and only it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from jepsen_lite.judge import watches
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.verdict import Verdict
from jepsen_lite.judge.watches import Seen, Watched, WatchWriter, judge_watches, read_watched

from coord.model.events import NoteAdded
from tests.faults.made_logs import MadeLog, verdicts

VIOLATION, UNKNOWN = Verdict.VIOLATION, Verdict.UNKNOWN
START, LAST = 3, 12


@pytest.fixture
def log() -> ExportedLog:
    made = MadeLog()
    for number in range(10):
        made.say(NoteAdded("c/1", "k", f"t{number}"))
    assert made.records[-1].entry.index == LAST
    return made.log()


@pytest.fixture
def watched(log: ExportedLog) -> Watched:
    """One that was given everything."""
    seen = [
        Seen(record.entry.index, record.digest, type(record.entry.event).__name__)
        for record in log.records[START - 1 :]
    ]
    return Watched("w/1", START, seen, until=LAST)


def test_a_watcher_that_was_given_everything_is_fine(log: ExportedLog, watched: Watched) -> None:
    """From its start to the end of the log, and one that began later as well."""
    later = Watched("w/2", 10, watched.seen[7:], until=LAST)
    assert verdicts(judge_watches([watched, later], log)) == {}


def test_a_missed_event_is_found(log: ExportedLog, watched: Watched) -> None:
    """One in the middle, and the very first."""
    del watched.seen[4]
    judgements = judge_watches([watched], log)
    assert verdicts(judgements) == {watches.IN_ORDER: VIOLATION}
    assert judgements[0].detail.startswith("w/1 missed index 7, being given 8\nof ")
    del watched.seen[0]
    assert "missed index 3, being given 4" in judge_watches([watched], log)[0].detail


def test_an_event_given_twice_is_found(log: ExportedLog, watched: Watched) -> None:
    """As after a reconnection that goes on one too early."""
    watched.seen.insert(5, watched.seen[4])
    assert verdicts(judge_watches([watched], log)) == {watches.IN_ORDER: VIOLATION}


def test_reordered_events_are_found(log: ExportedLog, watched: Watched) -> None:
    """None is missing, none is there twice."""
    watched.seen[4], watched.seen[5] = watched.seen[5], watched.seen[4]
    assert verdicts(judge_watches([watched], log)) == {watches.IN_ORDER: VIOLATION}


def test_an_event_from_before_the_start_is_found(log: ExportedLog, watched: Watched) -> None:
    """It was not asked for."""
    watched.seen.insert(0, Seen(2, log.records[1].digest, "ClusterConfigured"))
    assert verdicts(judge_watches([watched], log)) == {watches.IN_ORDER: VIOLATION}


@pytest.mark.parametrize("change", [{"digest": "00"}, {"event": "ClockAdvanced"}])
def test_an_event_that_differs_from_the_log_is_found(
    log: ExportedLog, watched: Watched, change: dict[str, str]
) -> None:
    """As one that a leader showed before it was decided, and that was then lost."""
    watched.seen[4] = msgspec.structs.replace(watched.seen[4], **change)
    assert verdicts(judge_watches([watched], log)) == {watches.AS_LOGGED: VIOLATION}


def test_an_event_beyond_the_log_is_found(log: ExportedLog, watched: Watched) -> None:
    """It was given, and then it was gone. Of a log that was cut off nobody knows."""
    watched.seen.append(Seen(LAST + 1, "00", "NoteAdded"))
    assert verdicts(judge_watches([watched], log)) == {watches.AS_LOGGED: VIOLATION}
    log.cut_off = "in the middle"
    assert verdicts(judge_watches([watched], log)) == {watches.AS_LOGGED: UNKNOWN}


def test_a_watcher_that_is_given_nothing_more_is_found(log: ExportedLog, watched: Watched) -> None:
    """It had its time after healing. One that broke off shows nothing, which is not enough."""
    del watched.seen[6:]
    assert verdicts(judge_watches([watched], log)) == {watches.TO_THE_END: VIOLATION}
    watched.broke_off = "its process was killed"
    assert verdicts(judge_watches([watched], log)) == {watches.TO_THE_END: UNKNOWN}


def test_what_a_watcher_writes_is_read_again(tmp_path: Path, watched: Watched) -> None:
    """With its end, and without one when it was killed in the middle of a line."""
    path = tmp_path / "watches" / "1.jsonl"
    writer = WatchWriter(path, watched.watcher, watched.start)
    for seen in watched.seen:
        writer.seen(seen)
    whole = path.read_bytes()
    writer.close(until=LAST)
    assert read_watched(path) == watched
    path.write_bytes(whole[:-5])
    killed = read_watched(path)
    assert killed.seen == watched.seen[:-1]
    assert killed.broke_off == "its file has no end"


@pytest.mark.parametrize("content", [b"", b'{"type":"entry","index":1,"digest":""}\n'])
def test_a_file_that_does_not_begin_as_one_is_refused(tmp_path: Path, content: bytes) -> None:
    """The message says which."""
    path = tmp_path / "1.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"1\.jsonl does not begin"):
        read_watched(path)
