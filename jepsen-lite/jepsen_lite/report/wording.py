"""Verdicts and judgements in words, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from jepsen_lite.judge.verdict import Judgement, Verdict

HOLDS = "holds"
UNKNOWN = str(Verdict.UNKNOWN)
CHECK_OF_ORDER = "linearizable"


def verdict_word(judgement: Judgement) -> str:
    """`linearizable` of histories, `holds` of all other checks; `violation`, `unknown`, and
    `nothing to check`."""
    holds = judgement.verdict is Verdict.LINEARIZABLE
    if holds and not judgement.check.startswith(CHECK_OF_ORDER):
        return HOLDS
    return str(judgement.verdict)


def is_bad(judgement: Judgement) -> bool:
    """Unknown fails as a violation does; that there was nothing to check does not."""
    return judgement.verdict in (Verdict.VIOLATION, Verdict.UNKNOWN)


def worst_first(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Violations, what is unknown, what holds, what had nothing to check; each in the order in
    which it was judged."""
    order = (Verdict.VIOLATION, Verdict.UNKNOWN, Verdict.LINEARIZABLE, Verdict.NOTHING)
    return sorted(judgements, key=lambda one: order.index(one.verdict))


def verdict_of(judgements: Iterable[Judgement]) -> str:
    """Of all of them in a word. Where none looked at anything, nothing was judged."""
    found = {one.verdict for one in judgements}
    if Verdict.VIOLATION in found:
        return str(Verdict.VIOLATION)
    return HOLDS if found & {Verdict.LINEARIZABLE} and Verdict.UNKNOWN not in found else UNKNOWN
