"""What `coordctl host show` tells of a host's health and of what speaks against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coord.cli.wording import count_text
from coord.model.faults import fault_of
from coord.model.health import BAD_OUTCOMES

if TYPE_CHECKING:
    from coord.client.views import HostView
    from coord.model.evidence import HostEvidence, SeenFault, SeenHealth

FAULTS_SHOWN = 5
UNCHECKED = "unchecked"
"""No check has ever told of this host, which is no pass."""


def health_text(evidence: HostEvidence | None) -> str:
    """In a few words: `passed (gpu)`, `failed (gpu)`, `unchecked`."""
    seen = evidence.health if evidence is not None else ()
    bad = [one for one in seen if one.outcome in BAD_OUTCOMES]
    if bad:
        return ", ".join(f"{_words(one.outcome)} ({one.check})" for one in bad)
    told = [one for one in seen if one.outcome == "passed"]
    return f"passed ({', '.join(one.check for one in told)})" if told else UNCHECKED


def evidence_pairs(view: HostView) -> list[tuple[str, str]]:
    """Lines for `host show`: each check, the newest faults, whether it was blamed."""
    evidence = view.evidence
    pairs = [("health", health_text(evidence))]
    if evidence is None:
        return pairs
    pairs += [("check", _check(one)) for one in evidence.health]
    faults = evidence.faults[-FAULTS_SHOWN:]
    pairs += [("fault", _fault(one)) for one in reversed(faults)]
    earlier = len(evidence.faults) - len(faults)
    if earlier:
        pairs.append(("", f"and {count_text(earlier, 'earlier fault')}"))
    if evidence.blamed:
        pairs.append(
            ("blamed", f"failures began there too often, up to incident {evidence.blamed}")
        )
    if evidence.clean_since:
        pairs.append(("clean since", f"incident {evidence.clean_since}"))
    return pairs


def _check(one: SeenHealth) -> str:
    code = f" with exit code {one.exit_code}" if one.exit_code else ""
    detail = f": {' '.join(one.detail.split())[:80]}" if one.detail else ""
    how = f"{_words(one.outcome)}{code}, {_words(one.occasion)}"
    return f"{one.check} {how}, index {one.index}{detail}"


def _fault(one: SeenFault) -> str:
    fault = fault_of(one.kind, one.code, one.text)
    code = f" {one.code}" if one.code else ""
    device = f" of {one.device}" if one.device else ""
    what = f"{fault.name} ({fault.fault_class}, {_words(fault.recovery)})"
    return f"{one.kind}{code}{device}: {what}, index {one.index}"


def _words(value: str) -> str:
    return value.replace("_", " ")
