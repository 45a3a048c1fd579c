"""Judgements as a test knows them: it passes or it fails."""

from __future__ import annotations

from collections.abc import Iterable

from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.report.wording import HOLDS, is_bad, verdict_of, verdict_word, worst_first


class Violated(AssertionError):
    """Something does not hold, or could not be decided. `judgements` are those that are bad."""

    def __init__(self, judgements: list[Judgement]) -> None:
        super().__init__("\n".join(_told(judgement) for judgement in judgements))
        self.judgements = judgements


def assert_holds(judgements: Iterable[Judgement]) -> list[Judgement]:
    """All of them, when they hold. Raises Violated with details and pictures; an unknown verdict
    fails as a violation does, and so does a list of none that looked at anything."""
    judged = list(judgements)
    bad = worst_first(one for one in judged if is_bad(one))
    if bad:
        raise Violated(bad)
    if verdict_of(judged) != HOLDS:
        raise AssertionError("nothing was judged")
    return judged


def _told(judgement: Judgement) -> str:
    lines = [f"{judgement.check}: {verdict_word(judgement)}", judgement.detail, judgement.picture]
    return "\n".join(line for line in lines if line)
