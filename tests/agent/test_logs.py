"""Output on disk: bounded without losing a line, and readable by position."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coord.agent.logs import (
    LogLimits,
    error_message,
    prune,
    read,
    run_directory,
    tail,
    trim,
)
from coord.model.channel import LogChunk, LogRead
from tests.agent.support import key

LIMITS = LogLimits(segment_bytes=65_536, segments=3)


def stream(tmp_path: Path) -> Path:
    directory = run_directory(tmp_path, key())
    assert directory is not None
    directory.mkdir(parents=True, exist_ok=True)
    return directory / "stdout.log"


def read_from(tmp_path: Path, offset: int, *, live: bool = False, limit: int = 8_192) -> LogChunk:
    return read(tmp_path, LogRead(7, key(), "stdout", offset, limit), live=live)


def read_rest(tmp_path: Path) -> tuple[int, bytes]:
    """(position of the first byte that is left, everything from there)"""
    first = read_from(tmp_path, 0)
    found = first.data
    chunk = first
    while not chunk.ended:
        chunk = read_from(tmp_path, chunk.offset + len(chunk.data))
        found += chunk.data
    return first.offset, found


def test_trimming_while_a_program_writes_loses_no_line(tmp_path: Path) -> None:
    """A program writes numbered lines as fast as it can while its output is trimmed again and
    again: what is left is the end of what it wrote, whole, at its true position, in little room."""
    path = stream(tmp_path)
    lines = 60_000
    code = f"import os\nfor n in range({lines}): os.write(1, b'%063d\\n' % n)"
    trims = 0
    with path.open("ab") as output:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=output)
        while child.poll() is None:
            trims += bool(trim(path, LIMITS))
    assert child.wait() == 0
    trim(path, LIMITS)
    assert trims > 1
    offset, rest = read_rest(tmp_path)
    assert offset % 64 == 0
    assert offset + len(rest) == lines * 64
    numbers = [int(line) for line in rest.splitlines()]
    assert numbers == list(range(offset // 64, lines))
    assert LIMITS.segment_bytes * 2 <= len(rest) <= LIMITS.segment_bytes * 3
    assert path.stat().st_blocks * 512 <= LIMITS.segment_bytes * 3 + 65_536


def test_a_short_file_is_left_alone(tmp_path: Path) -> None:
    """Up to the limit nothing is given back."""
    path = stream(tmp_path)
    path.write_bytes(b"x" * (LIMITS.segment_bytes * LIMITS.segments - 1))
    assert trim(path, LIMITS) == 0
    assert read_from(tmp_path, 0).offset == 0


def test_reading_goes_by_position(tmp_path: Path) -> None:
    """From anywhere, up to the limit; at the end of a live stream there is nothing yet, at the end
    of a finished one the chunk says so."""
    stream(tmp_path).write_bytes(b"hello world\n")
    assert read_from(tmp_path, 6, limit=3).data == b"wor"
    assert read_from(tmp_path, 6, live=True) == LogChunk(7, b"world\n", 6)
    assert read_from(tmp_path, 12, live=True) == LogChunk(7, b"", 12)
    assert read_from(tmp_path, 6) == LogChunk(7, b"world\n", 6, ended=True)
    assert read_from(tmp_path, 99) == LogChunk(7, b"", 99, ended=True)


@pytest.mark.parametrize(
    ("task", "name"),
    [("job/role/9#9", "stdout"), (key(), "../../secret"), ("../x/0#1", "stdout"), ("", "stdout")],
)
def test_what_does_not_exist_says_so(tmp_path: Path, task: str, name: str) -> None:
    """A run without output, a stream of another name, what is no task key."""
    stream(tmp_path).write_bytes(b"x")
    chunk = read(tmp_path, LogRead(7, task, name), live=False)
    assert not chunk.exists
    assert chunk.data == b""


@pytest.mark.parametrize(
    "task",
    ["a/b/0", "a/b/x#1", "a/../0#1", "a/b/0#1/..", "/etc/0#1", ".a/b/0#1", "a/b/0#1\n", "ä/b/0#1"],
)
def test_what_is_no_task_key_has_no_directory(tmp_path: Path, task: str) -> None:
    """Keys come over the network; none may name a path outside."""
    assert run_directory(tmp_path, task) is None


def test_old_runs_make_room(tmp_path: Path) -> None:
    """The newest generations stay, by number, not by name; so does one that still runs."""
    for generation in (1, 2, 9, 10, 11):
        (tmp_path / f"gen-{generation}").mkdir()
        (tmp_path / f"gen-{generation}" / "stdout.log").touch()
    (tmp_path / "notes").mkdir()
    prune(tmp_path, 2, frozenset([tmp_path / "gen-1"]))
    assert sorted(os.listdir(tmp_path)) == ["gen-1", "gen-10", "gen-11", "notes"]


def test_a_tail_is_the_last_lines(tmp_path: Path) -> None:
    """At most twenty, decoded whatever they hold; a missing or empty file has none."""
    path = tmp_path / "stderr.log"
    assert tail(path) == ""
    path.write_bytes(b"")
    assert tail(path) == ""
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(100)) + b"\xff end")
    assert tail(path).splitlines()[0] == "line 81"
    assert tail(path).splitlines()[-1] == "\ufffd end"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"message": {"message": "boom", "extraInfo": {}}}', "boom"),
        ('{"message": "plain", "errorCode": 3}', "plain"),
        ('{"other": 1}', '{"other":1}'),
        ("not json", "not json"),
        ("", ""),
        ('{"message": {"message": "' + "x" * 100_000, '{"message": {"message": "xxxxx'),
    ],
)
def test_error_files_of_any_kind_are_read(tmp_path: Path, content: str, message: str) -> None:
    """torchelastic's two forms give their message; anything else comes as it is, bounded."""
    path = tmp_path / "error.json"
    assert error_message(path) == ""
    path.write_text(content)
    assert error_message(path).startswith(message)
    assert len(error_message(path)) <= 4_096
