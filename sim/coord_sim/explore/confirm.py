"""From candidate to confirmed: somebody shows that a whole cluster can come to a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from .findings import Finding, Status


class Tried(msgspec.Struct, frozen=True):
    """What came of it, and how it was tried, in words."""

    confirmed: bool
    words: str


Confirmer = Callable[[Finding], Tried]
"""Whether a simulation of servers, agents and network, told to delay and to fail as the finding
says, breaks the same property. Without one, every finding stays a candidate."""


def confirmed(findings: Iterable[Finding], confirmer: Confirmer | None) -> list[Finding]:
    """The findings, each with the status that it has earned."""
    if confirmer is None:
        return list(findings)
    return [_judged(finding, confirmer(finding)) for finding in findings]


def _judged(finding: Finding, tried: Tried) -> Finding:
    status = Status.CONFIRMED if tried.confirmed else Status.CANDIDATE
    return replace(finding, status=status, tried=tried.words)
