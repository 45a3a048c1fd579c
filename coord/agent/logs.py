"""Output of tasks: one directory a run, `logs/<job>/<role>/<index>/gen-<generation>/`.

A task writes straight into `stdout.log` and `stderr.log`, opened for appending, so it never waits
for the agent and goes on when the agent dies. That rules out renaming a full file away (the task
would follow it) and copying then truncating (what is written in between would be lost). Instead the
oldest segment is given back to the file system by punching a hole: the file keeps its length, so a
position in it is for ever the number of bytes since the task's start, nothing is moved, and no
line can be lost but by growing older than the last `segments` segments. `ls -s` shows what a file
takes; a tool that reads from the start sees zeros where the hole is. `tail -f` works.

On a file system that cannot punch holes, files grow, and the agent says so once.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import msgspec

from coord.agent import kernel
from coord.model.channel import LogChunk, LogRead
from coord.model.spec import NAME_LENGTH_LIMIT

STREAMS = ("stdout", "stderr")
READ_LIMIT_BYTES = 1 << 20
TAIL_BYTES = 4_096
TAIL_LINES = 20
ERROR_FILE_BYTES = 65_536

_TASK = re.compile(r"([^/#]+)/([^/#]+)/([0-9]+)#([0-9]+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class LogLimits(msgspec.Struct, frozen=True):
    """At most `segment_bytes * segments` are kept of a stream, and `generations` runs of a task."""

    segment_bytes: int = 64 << 20
    segments: int = 4
    generations: int = 20


def run_path(task: str) -> Path | None:
    """Where a run's output is below the root; None for what is no task key or could lead out."""
    match = _TASK.fullmatch(task)
    if match is None:
        return None
    job, role, index, generation = match.groups()
    for name in (job, role):
        if len(name) > NAME_LENGTH_LIMIT or not _NAME.fullmatch(name):
            return None
    return Path(job, role, index, f"gen-{generation}")


def run_directory(root: Path, task: str) -> Path | None:
    """The same below this root."""
    path = run_path(task)
    return None if path is None else root / path


def trim(path: Path, limits: LogLimits) -> int:
    """Give back what is older than the limits; returns how many bytes at the start are gone.

    Raises OSError (EOPNOTSUPP) where the file system cannot.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        surplus = size // limits.segment_bytes - limits.segments + 1
        if surplus <= 0:
            return 0
        end = surplus * limits.segment_bytes
        start = _first_data(descriptor, size)
        if start < end:
            kernel.punch_hole(descriptor, 0, end)
        return end
    finally:
        os.close(descriptor)


def prune(directory: Path, keep: int, busy: frozenset[Path]) -> list[Path]:
    """Delete all but the newest `keep` generations beside each other in a task's directory, never
    one in `busy`. Returns what was deleted."""
    found = [entry for entry in directory.glob("gen-*") if entry.name[4:].isdigit()]
    found.sort(key=lambda entry: int(entry.name[4:]), reverse=True)
    old = [entry for entry in found[keep:] if entry not in busy]
    for entry in old:
        shutil.rmtree(entry)
    return old


def read(root: Path, request: LogRead, *, live: bool) -> LogChunk:
    """Answer one read. A position that is gone already is answered with the next that is there."""
    absent = LogChunk(request.request, offset=request.offset, exists=False, ended=not live)
    directory = run_directory(root, request.task)
    if directory is None or request.stream not in STREAMS:
        return absent
    try:
        descriptor = os.open(directory / f"{request.stream}.log", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return absent
    try:
        size = os.fstat(descriptor).st_size
        offset = _next_data(descriptor, request.offset, size)
        limit = max(1, min(request.limit, READ_LIMIT_BYTES))
        data = os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)
    ended = not live and offset + len(data) >= size
    return LogChunk(request.request, data, offset, exists=True, ended=ended)


def tail(path: Path) -> str:
    """The last lines of a file, at most TAIL_LINES and TAIL_BYTES; empty when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        size = os.fstat(descriptor).st_size
        content = os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
    finally:
        os.close(descriptor)
    lines = content.decode(errors="replace").replace("\0", "").splitlines()
    return "\n".join(lines[-TAIL_LINES:]).strip("\n")


class ErrorFile(msgspec.Struct, frozen=True):
    """What a torchelastic error file says. `at_ms`: when it happened; 0 where it does not say."""

    message: str = ""
    at_ms: int = 0


def error_message(path: Path) -> str:
    """The message of an error file alone."""
    return read_error(path).message


def read_error(path: Path) -> ErrorFile:
    """Its `message`, or the `message` within that, and `extraInfo.timestamp` in seconds. What is
    not of this form is given as it is. Empty when there is no file; bounded like a tail."""
    try:
        with path.open("rb") as file:
            content = file.read(ERROR_FILE_BYTES)
    except FileNotFoundError:
        return ErrorFile()
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return ErrorFile(content.decode(errors="replace")[:TAIL_BYTES])
    at_ms = 0
    for _ in range(2):
        if isinstance(found, dict) and "message" in found:
            at_ms = at_ms or _timestamp_ms(found.get("extraInfo"))
            found = found["message"]
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return ErrorFile(text[:TAIL_BYTES], at_ms)


def _timestamp_ms(extra: object) -> int:
    stamp = extra.get("timestamp", "") if isinstance(extra, dict) else ""
    text = str(stamp)
    return int(text) * 1_000 if text.isdigit() and len(text) <= 12 else 0


def _first_data(descriptor: int, size: int) -> int:
    return _next_data(descriptor, 0, size)


def _next_data(descriptor: int, offset: int, size: int) -> int:
    if offset >= size:
        return offset
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        raise
