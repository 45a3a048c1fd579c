"""What watchers were given against the exported log: nothing missed, nothing twice, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import msgspec

from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement

IN_ORDER = "a watcher is given every entry from its start on, each once and in order"
AS_LOGGED = "what a watcher is given is what the log holds"
TO_THE_END = "a watcher that is not cut off gets to the end of the log"


class Seen(msgspec.Struct, gc=False, frozen=True):
    """An entry as a watcher was given it. `digest` is the running digest that came with it."""

    index: int
    digest: str
    event: str = ""
    at_ns: int = 0
    """CLOCK_MONOTONIC."""


class Watched(msgspec.Struct):
    """Everything one watcher was given, in the order in which it was."""

    watcher: str
    start: int
    """The index from which it asked."""
    seen: list[Seen]
    until: int = 0
    """The index to which it was given time to come after the last fault; 0: not said."""
    broke_off: str = ""
    """What ended it early."""


class _Opened(msgspec.Struct, tag="watch"):
    watcher: str
    start: int


class _Entry(msgspec.Struct, tag="entry", gc=False):
    index: int
    digest: str
    event: str = ""
    at_ns: int = 0


class _Closed(msgspec.Struct, tag="end"):
    until: int = 0
    broke_off: str = ""


_LINE = msgspec.json.Decoder(_Opened | _Entry | _Closed)


class WatchWriter:
    """Writes what a watcher is given to a file of its own, as it is given."""

    def __init__(self, path: Path, watcher: str, start: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb", buffering=0)
        self._write(_Opened(watcher, start))

    def seen(self, seen: Seen) -> None:
        """One entry more."""
        self._write(_Entry(seen.index, seen.digest, seen.event, seen.at_ns))

    def close(self, *, until: int = 0, broke_off: str = "") -> None:
        """It watches no longer."""
        self._write(_Closed(until, broke_off))
        self._file.close()

    def _write(self, line: _Opened | _Entry | _Closed) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")


def read_watched(path: Path) -> Watched:
    """What `WatchWriter` wrote there. Without its end line the watcher was killed: it broke off.
    Raises msgspec.DecodeError for a line that is not one, ValueError for a file without any."""
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # Empty, or cut off by a kill.
    opened = _LINE.decode(lines[0]) if lines else None
    if not isinstance(opened, _Opened):
        raise ValueError(f"{path} does not begin as a watcher's file; it must begin with its start")
    watched = Watched(opened.watcher, opened.start, [], broke_off="its file has no end")
    for text in lines[1:]:
        line = _LINE.decode(text)
        if isinstance(line, _Entry):
            watched.seen.append(Seen(line.index, line.digest, line.event, line.at_ns))
        elif isinstance(line, _Closed):
            watched.until, watched.broke_off = line.until, line.broke_off
    return watched


def judge_watches(watchers: Iterable[Watched], log: ExportedLog) -> list[Judgement]:
    """All watchers of a run against the log exported after it."""
    listed = list(watchers)
    given = sum(len(each.seen) for each in listed)
    of = f"entries given to {len(listed)} watchers"
    ends = f"watchers with an end to get to, among {len(listed)}"
    bound = sum(bool(each.until) for each in listed)
    return [
        judged(IN_ORDER, chain.from_iterable(map(_out_of_order, listed)), seen=given, of=of),
        judged(AS_LOGGED, _unlike(listed, log), seen=given, of=of),
        judged(TO_THE_END, chain.from_iterable(map(_short, listed)), seen=bound, of=ends),
    ]


def _out_of_order(watched: Watched) -> Iterator[Finding]:
    highest = watched.start - 1
    for seen in watched.seen:
        if seen.index > highest + 1:
            last = seen.index - 1
            missed = f"{highest + 1} to {last}" if last > highest + 1 else str(last)
            yield Finding(f"{watched.watcher} missed index {missed}, being given {seen.index}")
        elif seen.index < watched.start:
            yield Finding(
                f"{watched.watcher} was given index {seen.index}, before its start {watched.start}"
            )
        elif seen.index <= highest:
            yield Finding(
                f"{watched.watcher} was given index {seen.index} again or late, after {highest}"
            )
        highest = max(highest, seen.index)


def _unlike(watchers: list[Watched], log: ExportedLog) -> Iterator[Finding]:
    for watched in watchers:
        for seen in watched.seen:
            record = log.at(seen.index)
            if record is None:
                elsewhere = seen.index < log.start_index or bool(log.cut_off)
                text = f"{watched.watcher} was given index {seen.index}, which the log has not"
                yield Finding(text, undecided=elsewhere)
            elif (seen.digest, seen.event) != (record.digest, type(record.entry.event).__name__):
                yield Finding(
                    f"{watched.watcher} was given index {seen.index} as {seen.event} with digest "
                    f"{seen.digest}; the log has {type(record.entry.event).__name__} with "
                    f"{record.digest}"
                )


def _short(watched: Watched) -> Iterator[Finding]:
    last = watched.seen[-1].index if watched.seen else watched.start - 1
    if watched.broke_off:
        text = f"{watched.watcher} broke off after index {last}: {watched.broke_off}"
        yield Finding(text, undecided=True)
    elif last < watched.until:
        yield Finding(
            f"{watched.watcher} was given nothing after index {last}, though {watched.until} was "
            "there and nothing was broken any more"
        )
