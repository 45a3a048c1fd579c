"""The history's file: one JSON line for every edge, given to the kernel as it happens.

A run that is killed loses nothing it had written; what was open then is an INFO. The first line
holds the facts of the run, every other one is an `Edge`:

    {"type":"run","seed":7,"workload":"registers","nemesis":"kill",...}
    {"type":"invoke","number":1,"client":"registers/3","workload":"registers","key":"r1",...}
    {"type":"complete","number":1,"at_ns":52,"outcome":"ok","result":3,"index":17}
    {"type":"fault","number":1,"nemesis":"kill","what":"kill -9","targets":["s1"],"at_ns":60}
    {"type":"fault_ended","number":1,"at_ns":90}
    {"type":"mark","name":"healing","at_ns":100}
    {"type":"model","keys":"r","workload":"","model":"register","first":null}
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from jepsen_lite.history.operation import Fault, Mark, Modelled, Operation, Outcome


class HistoryError(Exception):
    """A history that cannot be read: the message names file, line, what is wrong, what to do."""


class _Invoke(
    msgspec.Struct, tag="invoke", omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    number: int
    client: str
    workload: str
    key: str
    action: str
    at_ns: int
    argument: Any = None
    token: str = ""


class _Complete(
    msgspec.Struct, tag="complete", omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    number: int
    at_ns: int
    outcome: Outcome
    result: Any = None
    index: int = 0
    note: str = ""


class _Fault(msgspec.Struct, tag="fault", forbid_unknown_fields=True):
    number: int
    nemesis: str
    what: str
    targets: tuple[str, ...]
    at_ns: int


class _FaultEnded(msgspec.Struct, tag="fault_ended", forbid_unknown_fields=True):
    number: int
    at_ns: int


class _Mark(msgspec.Struct, tag="mark", forbid_unknown_fields=True):
    name: str
    at_ns: int


class _Model(msgspec.Struct, tag="model", forbid_unknown_fields=True):
    keys: str
    workload: str
    model: str
    first: Any = None


Edge = _Invoke | _Complete | _Fault | _FaultEnded | _Mark | _Model


class HistoryWriter:
    """Records a run, from one thread. The file must not exist yet; its folder must.

    `facts` are JSON values by name: seed, workload, nemesis, version, commit.
    """

    def __init__(
        self, path: Path, facts: dict[str, Any], *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.path = path
        self.operations: list[Operation] = []
        self.faults: list[Fault] = []
        self.marks: list[Mark] = []
        self.models: list[Modelled] = []
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._file = path.open("xb", buffering=0)
        self._began = clock()
        self._write({"type": "run", **facts})

    def now_ns(self) -> int:
        """Since the run began; never 0, which stands for never."""
        return max(1, self._clock() - self._began)

    def invoke(
        self,
        *,
        client: str,
        workload: str,
        key: str,
        action: str,
        argument: Any = None,
        token: str = "",
    ) -> Operation:
        """Record that a client is about to ask; call it before the first byte is sent."""
        operation = Operation(
            len(self.operations) + 1,
            client,
            workload,
            key,
            action,
            argument,
            self.now_ns(),
            token=token,
        )
        self._write(
            _Invoke(
                operation.number,
                client,
                workload,
                key,
                action,
                operation.invoked_ns,
                argument,
                token,
            )
        )
        self.operations.append(operation)
        return operation

    def complete(
        self,
        operation: Operation,
        outcome: Outcome,
        *,
        result: Any = None,
        index: int = 0,
        note: str = "",
    ) -> None:
        """Record what became of it; call it after the last byte of the answer has come."""
        if operation.completed_ns:
            raise ValueError(f"operation {operation.number} was completed before")
        at_ns = self.now_ns()
        self._write(_Complete(operation.number, at_ns, outcome, result, index, note))
        operation.completed_ns = at_ns
        operation.outcome = outcome
        operation.result = result
        operation.index = index
        operation.note = note

    def fault(self, nemesis: str, what: str, targets: Iterable[str] = ()) -> Fault:
        """Record that a misfortune begins."""
        number = len(self.faults) + 1
        fault = Fault(number, nemesis, what, tuple(targets), self.now_ns())
        self._write(_Fault(number, nemesis, what, fault.targets, fault.began_ns))
        self.faults.append(fault)
        return fault

    def fault_ended(self, fault: Fault) -> None:
        """Record that it is over; once more changes nothing, for healing ends whatever is left."""
        if not fault.ended_ns:
            at_ns = self.now_ns()
            self._write(_FaultEnded(fault.number, at_ns))
            fault.ended_ns = at_ns

    def mark(self, name: str) -> None:
        """Record a moment of the run."""
        mark = Mark(name, self.now_ns())
        self._write(_Mark(mark.name, mark.at_ns))
        self.marks.append(mark)

    def model(self, modelled: Modelled) -> None:
        """Record by which model operations are judged; once more changes nothing."""
        if modelled not in self.models:
            self._write(_Model(*msgspec.structs.astuple(modelled)))
            self.models.append(modelled)

    def close(self) -> None:
        """Nothing more is recorded; what is open stays an INFO."""
        self._file.close()

    def _write(self, edge: Edge | dict[str, Any]) -> None:
        line = memoryview(self._encoder.encode(edge) + b"\n")
        while line:
            line = line[self._file.write(line) :]


class History(msgspec.Struct):
    """A run as it was recorded."""

    facts: dict[str, Any]
    operations: list[Operation] = []
    faults: list[Fault] = []
    marks: list[Mark] = []
    models: list[Modelled] = []
    """Of a test with operations of its own; runs of workloads need none."""
    cut_off: str = ""
    """What was dropped at the end, because a crash cut it off; empty when the file is whole."""


def read_history(path: Path) -> History:
    """The history in a file that `HistoryWriter` wrote. Raises HistoryError; a last line that a
    crash cut off is dropped, and `cut_off` says so."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}; give the history.jsonl of a run") from error
    rest = lines.pop()
    if not lines:
        raise HistoryError(
            f"{path}: line 1: no whole line; a history begins with its run's facts, so this run"
            " ended before it began, or the file is not a history"
        )
    history = History(_facts(path, lines[0]))
    if rest:
        history.cut_off = f"line {len(lines) + 1} was cut off after {len(rest)} bytes"
    _Reading(path, history).read(lines)
    return history


def _facts(path: Path, line: bytes) -> dict[str, Any]:
    expected = 'a history begins with {"type":"run",...}; give the history.jsonl of a run'
    try:
        facts = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HistoryError(f"{path}: line 1: {error}; {expected}") from error
    if facts.pop("type", None) != "run":
        raise HistoryError(f"{path}: line 1: it has no run; {expected}")
    return facts


class _Reading:
    """Puts the edges of one file together."""

    def __init__(self, path: Path, history: History) -> None:
        self.path = path
        self.history = history
        self.operations: dict[int, Operation] = {}
        self.faults: dict[int, Fault] = {}

    def read(self, lines: list[bytes]) -> None:
        decode = msgspec.json.Decoder(Edge).decode
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                if number > 1:
                    self._take(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise HistoryError(
                f"{self.path}: line {number}: {error}; the file was changed or damaged after it was"
                f" written. To judge what stands before, keep its first {number - 1} lines"
            ) from error
        self.history.operations = list(self.operations.values())
        self.history.faults = list(self.faults.values())

    def _take(self, edge: Edge) -> None:
        if edge.__class__ is _Invoke:
            self._invoked(edge)
        elif edge.__class__ is _Complete:
            self._completed(edge)
        elif isinstance(edge, _Fault):
            if edge.number in self.faults:
                raise ValueError(f"fault {edge.number} began before")
            self.faults[edge.number] = Fault(
                edge.number, edge.nemesis, edge.what, edge.targets, edge.at_ns
            )
        elif isinstance(edge, _FaultEnded):
            fault = self.faults.get(edge.number)
            if fault is None or fault.ended_ns:
                raise ValueError(f"fault {edge.number} ends, but is not there")
            fault.ended_ns = edge.at_ns
        elif isinstance(edge, _Mark):
            self.history.marks.append(Mark(edge.name, edge.at_ns))
        elif isinstance(edge, _Model):
            self.history.models.append(Modelled(*msgspec.structs.astuple(edge)))

    def _invoked(self, edge: _Invoke) -> None:
        if edge.number in self.operations:
            raise ValueError(f"operation {edge.number} was invoked before")
        self.operations[edge.number] = Operation(
            edge.number,
            edge.client,
            edge.workload,
            edge.key,
            edge.action,
            edge.argument,
            edge.at_ns,
            token=edge.token,
        )

    def _completed(self, edge: _Complete) -> None:
        operation = self.operations.get(edge.number)
        if operation is None:
            raise ValueError(f"operation {edge.number} completes, but was never invoked")
        if operation.completed_ns:
            raise ValueError(f"operation {edge.number} was completed before")
        if edge.at_ns < operation.invoked_ns:
            raise ValueError(
                f"operation {edge.number} completes at {edge.at_ns} ns, before its invocation"
                f" at {operation.invoked_ns} ns"
            )
        operation.completed_ns = edge.at_ns
        operation.outcome = edge.outcome
        operation.result = edge.result
        operation.index = edge.index
        operation.note = edge.note
