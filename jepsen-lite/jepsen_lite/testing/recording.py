"""What a test's clients asked and were told, on record, and its judgement."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jepsen_lite.history.journal import History, HistoryWriter
from jepsen_lite.history.operation import Fault, Modelled, Operation, Outcome
from jepsen_lite.judge.models import Model, name_of
from jepsen_lite.judge.verdict import Judgement, Log, judge_history
from jepsen_lite.testing.verdicts import assert_holds


class Asked:
    """An operation that is under way. Without a word it is answered None."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.result: Any = None
        self.index = 0

    def answered(self, result: Any, index: int = 0) -> None:
        """What the client was told, a JSON value, and the index in the log if it knows it."""
        self.result, self.index = result, index


class SharedHistory(HistoryWriter):
    """A HistoryWriter for the threads and tasks of a test."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self._lock = threading.RLock()
        self._lost: Counter[str] = Counter()
        self._at_end: list[Callable[[], object]] = []
        self.facts = facts
        super().__init__(path, facts)

    @contextmanager
    def asking(
        self,
        key: str,
        action: str,
        argument: Any = None,
        *,
        client: str = "test",
        workload: str = "test",
        token: str = "",
        failed: tuple[type[Exception], ...] = (),
    ) -> Iterator[Asked]:
        """Record what the block asks, between two lines; also around `await`.

        A client asks one thing at a time. An error that leaves the block goes on, recorded: one of
        `failed` says that nothing was done, for certain (a service of several requests must know
        that of all of them together). After any other nobody knows whether it was, and the client
        goes on under another name by itself.
        """
        with self._lock:
            lost = self._lost[client]
            name = f"{client}.{lost}" if lost else client
            operation = self.invoke(
                client=name,
                workload=workload,
                key=key,
                action=action,
                argument=argument,
                token=token,
            )
        asked = Asked(operation)
        try:
            yield asked
        except BaseException as error:
            outcome = Outcome.FAIL if isinstance(error, failed) else Outcome.INFO
            self._answer(client, asked, outcome, f"{type(error).__name__}: {error}")
            raise
        self._answer(client, asked, Outcome.OK)

    def judge(
        self,
        model: Model[Any],
        *,
        keys: str = "",
        workload: str = "",
        budget_s: float = 60.0,
        log: Log | None = None,
    ) -> list[Judgement]:
        """Whether one order explains it all, key by key, of keys that begin so. Raises Violated
        with the smallest prefix that cannot be, in a picture."""
        self._told(model, keys, workload)
        operations = [
            operation
            for operation in self.operations
            if operation.key.startswith(keys) and workload in ("", operation.workload)
        ]
        return assert_holds(judge_history(operations, model, budget_s=budget_s, log=log))

    def judge_at_end(self, model: Model[Any], **options: Any) -> None:
        """`judge` once the test's own lines have passed; the test fails if it does. Asked for at
        the beginning, it also tells `coordctl faults judge` how to judge what a test that failed
        for another reason has recorded."""
        self._told(model, options.get("keys", ""), options.get("workload", ""))
        self._at_end.append(lambda: self.judge(model, **options))

    def recorded(self) -> History:
        """All so far, as it would be read from the file."""
        with self._lock:
            return History(
                self.facts,
                [*self.operations],
                [*self.faults],
                [*self.marks],
                [*self.models],
            )

    def judge_what_was_asked_for(self) -> None:
        """Once."""
        while self._at_end:
            self._at_end.pop(0)()

    def invoke(self, **what: Any) -> Operation:
        with self._lock:
            return super().invoke(**what)

    def complete(self, operation: Operation, outcome: Outcome, **what: Any) -> None:
        with self._lock:
            super().complete(operation, outcome, **what)

    def fault(self, nemesis: str, what: str, targets: Iterable[str] = ()) -> Fault:
        with self._lock:
            return super().fault(nemesis, what, targets)

    def fault_ended(self, fault: Fault) -> None:
        with self._lock:
            super().fault_ended(fault)

    def mark(self, name: str) -> None:
        with self._lock:
            super().mark(name)

    def model(self, modelled: Modelled) -> None:
        with self._lock:
            super().model(modelled)

    def _told(self, model: Model[Any], keys: str, workload: str) -> None:
        first = getattr(model, "first", None)
        self.model(Modelled(keys, workload, name_of(model), first))

    def _answer(self, client: str, asked: Asked, outcome: Outcome, note: str = "") -> None:
        result, index = (asked.result, asked.index) if outcome is Outcome.OK else (None, 0)
        with self._lock:
            self.complete(asked.operation, outcome, result=result, index=index, note=note)
            if outcome is Outcome.INFO:
                self._lost[client] += 1
