"""Verdicts and judgements in words, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from jepsen_lite.judge.verdict import Judgement, Verdict

HOLDS = "holds"
CHECK_OF_ORDER = "linearizable"


def verdict_word(judgement: Judgement) -> str:
    """`linearizable` of histories, `holds` of all other checks; `violation`, `unknown`."""
    holds = judgement.verdict is Verdict.LINEARIZABLE
    if holds and not judgement.check.startswith(CHECK_OF_ORDER):
        return HOLDS
    return str(judgement.verdict)


def is_bad(judgement: Judgement) -> bool:
    """Unknown fails as a violation does."""
    return judgement.verdict is not Verdict.LINEARIZABLE


def worst_first(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Violations, what is unknown, then what holds; each in the order in which it was judged."""
    order = (Verdict.VIOLATION, Verdict.UNKNOWN, Verdict.LINEARIZABLE)
    return sorted(judgements, key=lambda one: order.index(one.verdict))


def verdict_of(judgements: Iterable[Judgement]) -> str:
    """Of all of them in a word. Without any, nothing was judged."""
    found = {one.verdict for one in judgements}
    if Verdict.VIOLATION in found:
        return str(Verdict.VIOLATION)
    return str(Verdict.UNKNOWN) if Verdict.UNKNOWN in found or not found else HOLDS
