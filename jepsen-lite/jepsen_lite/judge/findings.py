"""From what a check found to its judgement."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

import msgspec

from jepsen_lite.history.operation import Operation
from jepsen_lite.judge.verdict import Judgement, Verdict

TOLD = 5
"""So many findings are spelled out; the others are counted."""


class Finding(msgspec.Struct, frozen=True):
    """Something that must not be. `undecided`: what would decide it is not there."""

    text: str
    operations: tuple[Operation, ...] = ()
    undecided: bool = False


def judged(
    check: str, findings: Iterable[Finding], *, seen: int, of: str, began_s: float = 0.0
) -> Judgement:
    """A violation if any finding is one, else unknown if any is undecided, else it holds; where
    nothing was found and nothing seen, there was nothing to check.

    `seen` is how much of its subject the check has looked at, and `of` names that, for whoever
    doubts a check that found nothing; `began_s` is `time.perf_counter()` of the beginning, for what
    is computed before the findings are.
    """
    began_s = began_s or time.perf_counter()
    found = list(findings)
    sure = [finding for finding in found if not finding.undecided]
    told = sure or found
    verdict = Verdict.LINEARIZABLE if seen else Verdict.NOTHING
    if told:
        verdict = Verdict.VIOLATION if sure else Verdict.UNKNOWN
    lines = [finding.text for finding in told[:TOLD]]
    if len(told) > TOLD:
        lines.append(f"and {len(told) - TOLD} more")
    looked_at = f"{seen:,} {of}"
    return Judgement(
        check=check,
        verdict=verdict,
        detail="\n".join([*lines, f"of {looked_at}"]) if lines else looked_at,
        operations=tuple(each for finding in told[:TOLD] for each in finding.operations),
        seconds=time.perf_counter() - began_s,
        by="log",
    )


def said(check: str, trouble: Sequence[str], seen: int, of: str) -> Judgement:
    """The judgement of what the run itself could see, in sentences. Where it saw nothing of what it
    must have seen it is unknown."""
    findings = [Finding("; ".join(trouble))] if trouble else []
    judgement = msgspec.structs.replace(judged(check, findings, seen=seen, of=of), by="run")
    return with_subjects([judgement], {check})[0]


def with_subjects(judgements: Iterable[Judgement], due: Collection[str]) -> list[Judgement]:
    """The same, but of the checks that are `due`, for what the run did makes what they are about,
    those that had nothing to check are unknown."""
    return [
        msgspec.structs.replace(
            one,
            verdict=Verdict.UNKNOWN,
            detail=f"{one.detail}, of which this run must have had some; see its logs for why it "
            "had none, or give it more time",
        )
        if one.verdict is Verdict.NOTHING and one.check in due
        else one
        for one in judgements
    ]
