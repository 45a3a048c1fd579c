"""From what a check found to its judgement."""

from __future__ import annotations

import time
from collections.abc import Iterable

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
    check: str, findings: Iterable[Finding], *, looked_at: str = "", began_s: float = 0.0
) -> Judgement:
    """A violation if any finding is one, else unknown if any is undecided, else it holds.

    `looked_at` says how much was checked, for whoever doubts a check that found nothing; `began_s`
    is `time.perf_counter()` of the beginning, for what is computed before the findings are.
    """
    began_s = began_s or time.perf_counter()
    found = list(findings)
    sure = [finding for finding in found if not finding.undecided]
    told = sure or found
    verdict = Verdict.LINEARIZABLE
    if told:
        verdict = Verdict.VIOLATION if sure else Verdict.UNKNOWN
    lines = [finding.text for finding in told[:TOLD]]
    if len(told) > TOLD:
        lines.append(f"and {len(told) - TOLD} more")
    return Judgement(
        check=check,
        verdict=verdict,
        detail="\n".join(lines) or looked_at,
        operations=tuple(each for finding in told[:TOLD] for each in finding.operations),
        seconds=time.perf_counter() - began_s,
        by="log",
    )
