"""Who pays, when more becomes known before a generation has stopped.

One dead rank makes its peers exit, and their exits may be reported first: the crash then looks like
the program's fault. The first evidence still decides that the generation stops; but while it stops,
evidence that a host or somebody outside was to blame takes the incident over, and its restart is
counted there. What a person or the program itself asked for is never revised.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import failures
from coord.core.step import Step
from coord.model.decisions import CauseRevised
from coord.model.entities import FailureCause, FailureReason, Gang, GangPhase

_MISTAKEN = (FailureCause.USER, FailureCause.UNKNOWN)
_BETTER = (FailureCause.INFRASTRUCTURE, FailureCause.PREEMPTION)
_WANTED = ("cancel", "remove", "succeed")


def revise_cause(
    step: Step, gang: Gang, cause: FailureCause, subject: str, detail: str, why: str
) -> None:
    """Evidence against a generation that is stopping already. Mostly it says nothing new."""
    if gang.phase != GangPhase.STOPPING or not gang.incident:
        return
    if gang.stop_cause not in _MISTAKEN or cause not in _BETTER:
        return
    if gang.stop_final in _WANTED or gang.fail_reason == FailureReason.DO_NOT_RESTART:
        return
    state = step.state
    number = gang.incident
    decided = step.decide(
        CauseRevised((why, gang.cause), number, gang.job, gang.key, cause, subject, detail)
    )
    incident = state.incidents[str(number)]
    state.incidents.put(str(number), replace(incident, cause=cause, subject=subject, detail=detail))
    gang = failures.uncount_restart(gang, gang.stop_cause)
    chance = failures.next_try(state.jobs[gang.job].spec.restart, gang, cause, gang.barren)
    state.put_gang(
        replace(
            failures.count_restart(gang, cause),
            stop_cause=cause,
            stop_final="fail" if chance.reason else "",
            backoff_ms=chance.backoff_ms,
            fail_reason=chance.reason,
            fail_detail=chance.detail,
            cause=decided,
        )
    )
