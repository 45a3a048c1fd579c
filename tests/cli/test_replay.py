"""`coordctl replay` reproduces what was recorded, or says where it does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import pytest
from click.testing import CliRunner, Result

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.cli.replay import replay_file
from coord.cli.replay_telling import LinesTelling
from coord.cli.timeline import Narrowing
from coord.core.machine import apply
from coord.core.state import new_state
from coord.model.entry import Origin, Recorded
from coord.store.incident import IncidentFormat
from tests.cli.recordings import TWO_FAILURES, entries_of, quiet_entries, recorded, written
from tests.conftest import Golden

GOLDEN = Path(__file__).parent / "golden" / "replay"


def replay(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", path.name, *arguments])


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two failures with digests, in the directory that commands run in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "incident.log"
    path.write_bytes(recorded(entries_of(TWO_FAILURES)))
    return path


TELLINGS = {
    "whole": [],
    "job": ["--job", "digits"],
    "host": ["--host", "host-2"],
    "span": ["--from", "15", "--until", "19"],
    "why": ["--why", "34.0"],
    "all": ["--all"],
    "summary": ["--summary"],
    "document": ["-o", "json"],
    "stream": ["-o", "json", "--stream", "--from", "22", "--until", "29"],
}


@pytest.mark.parametrize("name", TELLINGS)
def test_a_recording_is_told(recording: Path, golden: Golden, name: str) -> None:
    """Whole, narrowed and for programs; every digest is verified however narrow the telling."""
    result = replay(recording, *TELLINGS[name])
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    suffix = "json" if "json" in TELLINGS[name] else "txt"
    golden(GOLDEN / f"{name}.{suffix}", re.sub(r"\b[0-9a-f]{32}\b", "DIGEST", result.stdout))


def test_the_document_is_one_json_document(recording: Path) -> None:
    """With the timeline, the incidents with their cost, and the verdict."""
    document = json.loads(replay(recording, "-o", "json").stdout)
    assert document["summary"]["verdict"] == "matches"
    assert [incident["lost_steps"] for incident in document["incidents"]] == [3, 0]
    assert [incident["resolved"] for incident in document["incidents"]] == [True, False]
    assert len(document["timeline"]) > 40


@pytest.mark.parametrize("narrowed", [["--summary"], ["--job", "absent"], ["--until", "3"]])
def test_the_summary_counts_the_whole_file(recording: Path, narrowed: list[str]) -> None:
    """However narrow the telling."""
    whole = json.loads(replay(recording, "-o", "json").stdout)
    narrow = json.loads(replay(recording, "-o", "json", *narrowed).stdout)
    assert whole["summary"] == narrow["summary"]
    assert len(narrow["timeline"]) < 6


def test_requests_seen_twice_are_counted_whatever_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated heartbeat too, which is not worth a line."""
    monkeypatch.chdir(tmp_path)
    *before, last = quiet_entries(3)
    first = msgspec.structs.replace(last, origin=Origin("client:x", 0, 1))
    again = msgspec.structs.replace(first, index=first.index + 1)
    path = tmp_path / "incident.log"
    path.write_bytes(recorded([*before, first, again]))
    told = [replay(path, *narrowed).stdout for narrowed in ([], ["--all"])]
    counts = [text.partition("refused, ")[2] for text in told]
    assert [count.partition("\n")[0] for count in counts] == ["1 duplicate", "1 duplicate"]


def test_a_name_that_is_not_in_the_file_is_told(recording: Path) -> None:
    """Else a mistyped one looks like a job to which nothing happened."""
    result = replay(recording, "--job", "digit")
    assert result.exit_code == Exit.OK
    assert result.stderr == "nothing in it is about job digit\n"
    assert replay(recording, "--job", "digits").stderr == ""


def test_json_lines_with_digests_are_verified(recording: Path) -> None:
    """The same record as JSON lines replays to the same digests."""
    recording.write_bytes(recorded(entries_of(TWO_FAILURES), IncidentFormat.JSON_LINES))
    result = replay(recording, "--summary")
    assert result.exit_code == Exit.OK
    assert "35 of 35 verified" in result.stdout


@pytest.mark.parametrize("start_index", [2, 9, 16, 30])
def test_a_recording_that_begins_in_the_middle_starts_from_its_state(
    recording: Path, start_index: int
) -> None:
    """Incidents that were open by then are told with the rest."""
    recording.write_bytes(recorded(entries_of(TWO_FAILURES), start_index=start_index))
    result = replay(recording, "-o", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == Exit.OK
    assert document["summary"]["verified"] == 36 - start_index
    assert document["incidents"][-1]["incident"] == 2


def test_lines_written_by_hand_are_replayed_but_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no digest to compare with, and it says so."""
    monkeypatch.chdir(TWO_FAILURES.parent)
    result = replay(TWO_FAILURES)
    assert result.exit_code == Exit.OK
    assert result.stderr == "coordctl: not verified: no digests recorded\n"
    assert "replay matches" not in result.stdout


def test_what_is_written_by_hand_is_compared(tmp_path: Path, monkeypatch: Any) -> None:
    """A decision that somebody expects and that is not taken is a difference."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "by_hand.jsonl"
    note = '{"type":"NoteAdded","actor":"a","subject":"s","text":"t"}'
    path.write_text(
        '{"type":"IncidentHeader","cluster":"c1"}\n'
        f'{{"entry":{{"event":{note}}},"rejection":"unknown_host"}}\n'
    )
    result = replay(path)
    assert result.exit_code == Exit.FAILED
    assert 'rejection recorded: "unknown_host"' in result.stderr


def records_of(path: Path) -> list[Recorded]:
    state = new_state()
    return [apply(state, entry) for entry in entries_of(path)]


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (15, {"decisions": ()}),
        (21, {"duplicate_of": 0}),
        (35, {"rejection": ""}),
        (3, {"result": 9}),
        (9, {"now_ms": 4}),
        (9, {"digest": "0" * 32}),
    ],
)
def test_a_changed_record_is_a_difference(
    recording: Path, golden: Golden, index: int, change: dict[str, Any]
) -> None:
    """The message names the entry and the byte, what was recorded and what was derived."""
    records = records_of(TWO_FAILURES)
    changed = msgspec.structs.replace(records[index - 1], **change)
    assert changed != records[index - 1]
    records[index - 1] = changed
    recording.write_bytes(written(records))
    result = replay(recording)
    assert result.exit_code == Exit.FAILED
    assert f"entry {index} at byte " in result.stderr
    name = next(iter(change))
    told = re.sub(r"\b[0-9a-f]{32}\b", "DIGEST", result.stderr)
    golden(GOLDEN / f"difference_{name}.txt", re.sub("at byte [0-9]+", "at byte N", told))


def test_a_changed_entry_is_a_difference(recording: Path) -> None:
    """Even when nothing else would have come of it."""
    records = records_of(TWO_FAILURES)
    entry = msgspec.structs.replace(records[8].entry, wall_ms=records[8].entry.wall_ms + 1)
    records[8] = msgspec.structs.replace(records[8], entry=entry)
    recording.write_bytes(written(records))
    result = replay(recording)
    assert result.exit_code == Exit.FAILED
    assert "entry 9 at byte " in result.stderr


def test_a_cut_off_file_replays_to_its_last_good_frame(recording: Path) -> None:
    """Wherever it was cut; never with exit 0, always with the byte where the good part ends."""
    whole = recording.read_bytes()
    for size in [*range(0, len(whole), 61), len(whole) - 1]:
        recording.write_bytes(whole[:size])
        result = replay(recording, "--summary", "-o", "json")
        summary = json.loads(result.stdout)["summary"]
        assert (size, result.exit_code) == (size, Exit.INCOMPLETE)
        assert summary["verdict"] == "incomplete"
        assert "was cut off" in result.stderr
        assert "byte " in result.stderr
        assert summary["verified"] == summary["totals"]["entries"]


def test_a_flipped_bit_is_found_and_its_place_named(recording: Path) -> None:
    """Wherever it is: header, entry, footer or end mark."""
    whole = recording.read_bytes()
    for position in [*range(0, len(whole), 47), len(whole) - 1]:
        flipped = bytearray(whole)
        flipped[position] ^= 0x10
        recording.write_bytes(flipped)
        result = replay(recording, "--summary")
        assert result.exit_code == Exit.FAILED, (position, result.output)
        assert "byte " in result.stderr, position


def test_what_is_no_incident_file_is_refused(recording: Path) -> None:
    recording.write_text("hello\n")
    result = replay(recording)
    assert result.exit_code == Exit.FAILED
    assert "no incident file" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--why", "x"], "write an index such as 17"),
        (["--why", "99"], "the file has no entry 99"),
        (["--stream"], "needs -o json"),
    ],
)
def test_wrong_usage_is_told(recording: Path, arguments: list[str], told: str) -> None:
    result = replay(recording, *arguments)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr


def peak_bytes(path: Path) -> int:
    class Nowhere:
        def write(self, text: str) -> int:
            return len(text)

    tracemalloc.start()
    try:
        telling = LinesTelling(cast("IO[str]", Nowhere()))
        summary = replay_file(str(path), Narrowing(), telling)
        assert summary.exit_code == Exit.OK
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Ten times the entries take the same memory."""
    short, long = tmp_path / "short.log", tmp_path / "long.log"
    short.write_bytes(recorded(quiet_entries(1_000)))
    long.write_bytes(recorded(quiet_entries(10_000)))
    peak_bytes(short)  # whatever is only made once, is made now
    assert peak_bytes(long) < peak_bytes(short) + 300_000


def test_replay_runs_as_a_process(recording: Path) -> None:
    """As a person runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "coord.cli.main", "replay", str(recording), "--summary"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("replay matches the record\n")
