"""From candidate to confirmed: somebody shows that a whole cluster can come to a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from .findings import Finding, Status

Confirmer = Callable[[Finding], bool]
"""Whether a simulation of servers, agents and network, told to delay and to fail as the finding
says, breaks the same property. Without one, every finding stays a candidate."""


def confirmed(findings: Iterable[Finding], confirmer: Confirmer | None) -> list[Finding]:
    """The findings, each with the status that it has earned."""
    return [
        replace(finding, status=Status.CONFIRMED) if confirmer and confirmer(finding) else finding
        for finding in findings
    ]
