"""What a check found, and the check of histories itself."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import Model
from jepsen_lite.judge.picture import Moment, as_svg, as_text, draw, seconds
from jepsen_lite.judge.prefix import smallest_prefix
from jepsen_lite.judge.search import Memory, Search, search_in_turns
from jepsen_lite.judge.witness import Log, Settled, settle, why_not

__all__ = ["Judgement", "Log", "Verdict", "judge_history"]

EXPLAINED = 5
"""Violations that get a prefix and a picture; of more keys only the names are told."""


class Verdict(StrEnum):
    """The answer of a check. For checks that are not of linearizability the first is shown as
    "holds"."""

    LINEARIZABLE = "linearizable"
    VIOLATION = "violation"
    UNKNOWN = "unknown"
    """It could not be decided, which fails a run as a violation does."""
    NOTHING = "nothing to check"
    """What the check is about did not happen."""


class Judgement(msgspec.Struct):
    """What one check found, and how to see it."""

    check: str
    verdict: Verdict
    detail: str = ""
    """What is wrong, and at how much of what the check has looked."""
    operations: tuple[Operation, ...] = ()
    """Of a violation: the smallest prefix of the key's operations that is one already."""
    picture: str = ""
    """Of a violation: the operations around it, for a terminal of 100 columns."""
    seconds: float = 0.0
    """Of the processor."""
    by: str = ""
    """How it was found: "witness", "search", "witness and search", or "log"."""
    svg: str = ""
    """The picture for a page: one element that needs nothing else."""


def judge_history(
    operations: Iterable[Operation],
    model: Model[Any],
    *,
    budget_s: float = 60.0,
    log: Log | None = None,
    moment: Moment = seconds,
    changes_due: bool = False,
) -> list[Judgement]:
    """Whether one order explains what clients were told, key by key.

    One judgement for all keys of which it is so, then one for each other key, violations first.
    With a log, what clients never heard the end of is settled by it, and a write that stands in it
    twice is a violation. After `budget_s` a key that is not decided is UNKNOWN; naming the smallest
    prefix of the violations found may take as long once more. All seconds are of the processor, so
    that a busy machine changes no verdict. A history without any answer is UNKNOWN, for nothing
    was judged; with `changes_due` so is one of looks and refusals alone. `moment` words times.
    """
    began = time.thread_time()
    by_key: dict[str, list[Operation]] = {}
    for operation in operations:
        by_key.setdefault(operation.key, []).append(operation)
    judging = _Judging(model, by_key, log, moment)
    judging.decide(began + budget_s)
    judgements = [
        *judging.proven(time.thread_time() - began),
        *judging.twice(),
        *judging.violations(budget_s),
        *judging.undecided(budget_s),
    ]
    if nothing := judging.nothing(changes_due):
        judgements = [one for one in judgements if one.verdict is not Verdict.LINEARIZABLE]
        judgements.append(Judgement(judging.check, Verdict.UNKNOWN, nothing))
    return judgements


class _Judging:
    """One history under judgement: its keys by what is known of them."""

    def __init__(
        self,
        model: Model[Any],
        by_key: dict[str, list[Operation]],
        log: Log | None,
        moment: Moment,
    ) -> None:
        self.model = model
        self.check = f"linearizable: {model.name}"
        self.log = log
        self.moment = moment
        self.by_key = by_key
        self.settled: dict[str, Settled] = {}
        self.by_witness: list[str] = []
        self.searches: dict[str, Search[Any]] = {}
        self.why_not: dict[str, str] = {}

    def decide(self, deadline: float) -> None:
        memory = Memory()
        for key, operations in self.by_key.items():
            settled = settle(operations, self.log)
            why = why_not(settled.operations, self.model)
            if not why:
                self.by_witness.append(key)
            else:
                self.searches[key] = Search(settled.operations, self.model, memory)
                self.why_not[key] = why
            if why or settled.twice:
                self.settled[key] = settled
        search_in_turns(list(self.searches.values()), deadline)

    def nothing(self, changes_due: bool) -> str:
        """Why what holds says nothing; empty when it does."""
        operations = [each for of_key in self.by_key.values() for each in of_key]
        answered = [each for each in operations if each.outcome is Outcome.OK]
        look = "; look whether the workload reached the cluster"
        if not operations:
            return f"there is no operation to judge{look}"
        if not answered:
            return f"none of {len(operations)} operations was answered{look}"
        if changes_due and all(self.model.only_looks(one.action, one.result) for one in answered):
            return f"none of {len(answered)} answered operations changed anything{look}"
        return ""

    def proven(self, took_s: float) -> list[Judgement]:
        searched = self._found(True)
        keys = [*self.by_witness, *searched]
        if not keys:
            return []
        operations = [each for key in keys for each in self.by_key[key]]
        opened = sum(each.outcome is Outcome.INFO for each in operations)
        failed = sum(each.outcome is Outcome.FAIL for each in operations)
        by = [name for name, some in (("witness", self.by_witness), ("search", searched)) if some]
        detail = (
            f"{len(operations) - opened - failed} answered operations of {len(keys)} keys,"
            f" {opened} of unknown outcome, {failed} failed;"
            f" {len(self.by_witness)} keys by the log's order, {len(searched)} by search"
        )
        return [
            Judgement(self.check, Verdict.LINEARIZABLE, detail, seconds=took_s, by=" and ".join(by))
        ]

    def twice(self) -> list[Judgement]:
        return [
            Judgement(
                f"{self.check} {key}",
                Verdict.VIOLATION,
                f"{len(settled.twice)} operations were applied more than once: "
                + "; ".join(
                    f"{self.model.tell(each)} of {each.client} at indexes"
                    f" {', '.join(map(str, indexes))}"
                    for each, indexes in settled.twice[:EXPLAINED]
                ),
                operations=tuple(each for each, _ in settled.twice),
                by="log",
            )
            for key, settled in self.settled.items()
            if settled.twice
        ]

    def violations(self, budget_s: float) -> list[Judgement]:
        keys = self._found(False)
        deadline = time.thread_time() + budget_s
        judgements = [self._explained(key, deadline) for key in keys[:EXPLAINED]]
        rest = keys[EXPLAINED:]
        if rest:
            detail = f"{len(rest)} more keys are no better: {', '.join(rest)}"
            judgements.append(Judgement(self.check, Verdict.VIOLATION, detail, by="search"))
        return judgements

    def undecided(self, budget_s: float) -> list[Judgement]:
        return [
            Judgement(
                f"{self.check} {key}",
                Verdict.UNKNOWN,
                f"{len(self.by_key[key])} operations; the log's order does not explain them"
                f" ({self.why_not[key]}), and {budget_s:g} s of search did not decide; give more"
                " time, or record fewer operations at a time on a key",
                seconds=budget_s,
                by="search",
            )
            for key in self._found(None)
        ]

    def _explained(self, key: str, deadline: float) -> Judgement:
        began = time.thread_time()
        search = self.searches[key]
        prefix = smallest_prefix(
            self.settled[key].operations, self.model, search, deadline=deadline
        )
        picture = draw(key, prefix, self.model, self.moment)
        return Judgement(
            f"{self.check} {key}",
            Verdict.VIOLATION,
            f"{picture.explanation} This is told by the first {len(prefix.operations)} of"
            f" {len(self.by_key[key])} operations.",
            operations=prefix.operations,
            picture=as_text(picture),
            seconds=time.thread_time() - began,
            by="search",
            svg=as_svg(picture),
        )

    def _found(self, answer: bool | None) -> list[str]:
        return [key for key, search in self.searches.items() if search.found is answer]
