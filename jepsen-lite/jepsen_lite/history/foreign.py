"""Histories that others recorded: Jepsen's log of one etcd register, and a key-value store's.

Both are lines of edges in order of time, without times; the number of the line stands for it. A
name that ends in .gz is unpacked. Whatever does not fit is a HistoryError with file and line.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jepsen_lite.history.journal import HistoryError
from jepsen_lite.history.operation import Operation, Outcome

_ETCD = re.compile(
    r"INFO\s+jepsen\.util - (?P<process>\d+)\s+:(?P<edge>invoke|ok|fail|info)"
    r"\s+:(?P<action>read|write|cas)\s+(?P<value>nil|:timed-out|-?\d+|\[-?\d+ -?\d+\])\s*"
)
_ETCD_LOOK = "`INFO  jepsen.util - 3 :invoke :cas [1 4]`"

_TEXT = re.compile(
    r"\{:process (?P<process>\d+), :type :(?P<edge>invoke|ok|fail|info),"
    r' :f :(?P<action>get|put|append), :key (?P<key>"(?:[^"\\]|\\.)*"),'
    r' :value (?P<value>nil|"(?:[^"\\]|\\.)*")\}\s*'
)
_TEXT_LOOK = '`{:process 0, :type :invoke, :f :append, :key "0", :value "x 0 0 y"}`'


def read_etcd_log(path: Path) -> list[Operation]:
    """The operations of a register, for the model `Register`. A compare-and-set that failed is an
    answer: the register held something else. A read that timed out has failed."""
    reading = _Reading(path, "etcd")
    for line, text in enumerate(_lines(path), 1):
        found = _ETCD.fullmatch(text)
        if found is None:
            raise reading.wrong(line, f"{text[:60]!r} is no edge", _ETCD_LOOK)
        try:
            value = _etcd_value(found["value"])
        except ValueError as error:  # Of a number with thousands of digits.
            raise reading.wrong(line, str(error), _ETCD_LOOK) from error
        reading.take(line, found, "etcd", value, _etcd_answer)
    return reading.whole()


def read_text_log(path: Path) -> list[Operation]:
    """The operations of a key-value store, for the model `TextByKey`."""
    reading = _Reading(path, "text")
    for line, text in enumerate(_lines(path), 1):
        found = _TEXT.fullmatch(text)
        if found is None:
            raise reading.wrong(line, f"{text[:60]!r} is no edge", _TEXT_LOOK)
        try:
            key = msgspec.json.decode(found["key"])
            value = None if found["value"] == "nil" else msgspec.json.decode(found["value"])
        except msgspec.DecodeError as error:
            raise reading.wrong(line, str(error), _TEXT_LOOK) from error
        reading.take(line, found, key, value, _text_answer)
    return reading.whole()


Answer = Callable[[Operation, str, Any], tuple[Outcome, Any]]
"""(the operation, the word of its last edge, that edge's value) -> outcome and result."""


def _etcd_answer(operation: Operation, edge: str, value: Any) -> tuple[Outcome, Any]:
    if edge == "info":
        return Outcome.INFO, None
    if operation.action == "cas" and value != ":timed-out":
        return Outcome.OK, edge == "ok"
    if edge == "fail":
        return Outcome.FAIL, None
    return Outcome.OK, value if operation.action == "read" else None


def _text_answer(operation: Operation, edge: str, value: Any) -> tuple[Outcome, Any]:
    if edge == "ok":
        return Outcome.OK, value if operation.action == "get" else None
    return (Outcome.INFO if edge == "info" else Outcome.FAIL), None


def _etcd_value(text: str) -> Any:
    if text == "nil":
        return None
    if text.startswith("["):
        return [int(number) for number in text[1:-1].split()]
    return text if text == ":timed-out" else int(text)


class _Reading:
    """Pairs the edges of one file by their process."""

    def __init__(self, path: Path, workload: str) -> None:
        self.path = path
        self.workload = workload
        self.operations: list[Operation] = []
        self.under_way: dict[str, Operation] = {}

    def wrong(self, line: int, what: str, expected: str) -> HistoryError:
        return HistoryError(f"{self.path}: line {line}: {what}; expected {expected}")

    def take(self, line: int, found: re.Match[str], key: str, value: Any, answer: Answer) -> None:
        process, edge, action = found["process"], found["edge"], found["action"]
        if edge == "invoke":
            self._invoked(line, process, key, action, value)
            return
        operation = self.under_way.pop(process, None)
        if operation is None:
            raise self.wrong(line, f"process {process} has nothing under way", "an :invoke before")
        asked = f":{operation.action} of key {operation.key!r}"
        if (operation.action, operation.key) != (action, key):
            raise self.wrong(
                line, f"process {process} is at another operation", f"the end of {asked}"
            )
        looking = action in ("read", "get")
        if not looking and value not in (operation.argument, ":timed-out"):
            raise self.wrong(
                line, f"the value is {value!r}", f"{operation.argument!r} as in {asked}"
            )
        if looking and edge == "ok" and value == ":timed-out":
            raise self.wrong(line, "a read is answered :timed-out", "its value")
        operation.completed_ns = line
        operation.outcome, operation.result = answer(operation, edge, value)

    def whole(self) -> list[Operation]:
        if not self.operations:
            raise HistoryError(f"{self.path}: it holds no operation; give a recorded history")
        return self.operations

    def _invoked(self, line: int, process: str, key: str, action: str, value: Any) -> None:
        before = self.under_way.get(process)
        if before is not None:
            raise self.wrong(
                line,
                f"process {process} asks again",
                f"the end of its :{before.action} of line {before.invoked_ns} first",
            )
        takes_value = action not in ("read", "get")
        if takes_value == (value is None) or value == ":timed-out":
            raise self.wrong(
                line,
                f":{action} is asked with {value!r}",
                "a value" if takes_value else "nil",
            )
        if (action == "cas") != isinstance(value, list):
            raise self.wrong(line, f":{action} is asked with {value!r}", "[from to] for :cas alone")
        operation = Operation(
            len(self.operations) + 1, process, self.workload, key, action, value, line
        )
        self.operations.append(operation)
        self.under_way[process] = operation


def _lines(path: Path) -> list[str]:
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        text = raw.decode()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise HistoryError(f"{path}: {error}; expected a whole gzip file") from error
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}; give a recorded history") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise HistoryError(
            f"{path}: line {line}: byte {error.start}: {error.reason}; expected text in UTF-8"
        ) from error
    return text.splitlines()
