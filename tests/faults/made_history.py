"""A history as a run would have written it, with times of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jepsen_lite.history.journal import HistoryWriter
from jepsen_lite.history.operation import Fault, Operation, Outcome

FACTS = {"workload": "registers", "nemesis": "kill-leader", "seed": 1}
SECOND = 1_000_000_000


class MadeHistory:
    """Writes history.jsonl below a folder; `at` sets the clock, in seconds since the run began."""

    def __init__(self, directory: Path, facts: dict[str, Any] | None = None) -> None:
        self._now_ns = 0
        self.path = directory / "history.jsonl"
        self.writer = HistoryWriter(
            self.path, FACTS if facts is None else facts, clock=lambda: self._now_ns
        )

    def at(self, seconds: float) -> None:
        self._now_ns = round(seconds * SECOND)

    def begin(
        self, client: str, action: str, argument: Any = None, key: str = "register-1"
    ) -> Operation:
        return self.writer.invoke(
            client=client, workload="registers", key=key, action=action, argument=argument
        )

    def done(
        self,
        client: str,
        action: str,
        argument: Any = None,
        *,
        begins_s: float,
        ends_s: float,
        result: Any = None,
        outcome: Outcome = Outcome.OK,
        index: int = 0,
        key: str = "register-1",
        note: str = "",
    ) -> Operation:
        self.at(begins_s)
        operation = self.begin(client, action, argument, key)
        self.at(ends_s)
        self.writer.complete(operation, outcome, result=result, index=index, note=note)
        return operation

    def fault(self, what: str, *, begins_s: float, ends_s: float) -> Fault:
        self.at(begins_s)
        fault = self.writer.fault("kill-leader", what, ("s1",))
        self.at(ends_s)
        self.writer.fault_ended(fault)
        return fault

    def mark(self, name: str, at_s: float) -> None:
        self.at(at_s)
        self.writer.mark(name)


def stale_read(directory: Path) -> Path:
    """A register that is written 5, then 7, and read as 5 when all is over."""
    made = MadeHistory(directory)
    made.done("registers/0", "write", 5, begins_s=1.0, ends_s=1.2, index=3)
    made.done("registers/0", "write", 7, begins_s=1.5, ends_s=1.7, index=4)
    made.fault("kill -9 of the leader s1", begins_s=1.8, ends_s=3.0)
    made.done("registers/1", "read", begins_s=2.0, ends_s=2.1, result=5)
    made.writer.close()
    return made.path
