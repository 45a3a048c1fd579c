"""What is seen of a host's health: faults of devices, health checks, collectives that timed out.

Evidence is kept with its host, the newest of it, and never stops anything by itself but for two
cases: a collective that timed out will not complete, so its generation is over; and a host whose
check failed, or whose device needs more than a restart, is given no new work. What else follows
from evidence is in `attribution.py` (who pays) and `blame.py` (which host).
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet, gangs
from coord.core.care import quarantine_course
from coord.core.causes import attribution
from coord.core.state import LIVE_HOST, State
from coord.core.step import Step, on
from coord.core.tasks import current_task
from coord.model.entities import FailureCause, Gang, Task
from coord.model.events import CollectiveTimedOut, DeviceFaultSeen, HealthChecked
from coord.model.evidence import HostEvidence, SeenFault, SeenHealth
from coord.model.faults import Fault, fault_of
from coord.model.health import BAD_OUTCOMES, CheckOccasion, HealthOutcome
from coord.model.ids import task_key
from coord.model.rejections import Rejection

FAULTS_KEPT = 16
CHECKS_KEPT = 16
TEXT_LIMIT = 300
"""Characters of a fault's line that are remembered; the log has all of it."""
DETAIL_LIMIT = 2_000
"""The same of what a check printed."""
QUARANTINE = 2
"""`EvidenceSettings.on_fault` and `on_blame`: not only told."""


def evidence_of(state: State, host: str) -> HostEvidence:
    """What is known of a host; empty where nothing is."""
    return state.evidence.get(host) or HostEvidence(host)


def _rejected(step: Step, name: str, incarnation: int) -> Rejection | None:
    host = step.state.hosts.get(name)
    if host is None:
        return Rejection.UNKNOWN_HOST
    if incarnation != host.incarnation:
        return Rejection.STALE_INCARNATION
    return None if host.status in LIVE_HOST else Rejection.HOST_NOT_LIVE


@on(DeviceFaultSeen)
def _fault_seen(step: Step, event: DeviceFaultSeen) -> Rejection | None:
    if min(event.code, event.at_ms, *event.numbers, 0) < 0 or not event.kind:
        return Rejection.INVALID
    rejected = _rejected(step, event.host, event.incarnation)
    if rejected:
        return rejected
    state = step.state
    known = evidence_of(state, event.host)
    seen = SeenFault(
        event.kind,
        event.code,
        event.device,
        step.now_ms,
        step.entry.index,
        event.text[:TEXT_LIMIT],
        event.numbers,
    )
    state.evidence.put(event.host, replace(known, faults=(*known.faults, seen)[-FAULTS_KEPT:]))
    fault = fault_of(event.kind, event.code, event.text)
    attribution.explain_by_fault(step, event.host, seen, fault)
    if fault.stops_work and state.meta.settings.policy.evidence.on_fault == QUARANTINE:
        fleet.quarantine(step, event.host, fault_text(seen, fault), step.cause)
    return None


def fault_text(seen: SeenFault, fault: Fault) -> str:
    """`xid 79: fell off the bus (reboot host)`"""
    code = f" {seen.code}" if seen.code else ""
    return f"{seen.kind}{code}: {fault.name} ({fault.recovery.replace('_', ' ')})"


@on(HealthChecked)
def _health_checked(step: Step, event: HealthChecked) -> Rejection | None:
    if not event.check:
        return Rejection.INVALID
    rejected = _rejected(step, event.host, event.incarnation)
    if rejected:
        return rejected
    if quarantine_course.is_of_another_test(step, event):
        return Rejection.STALE_TEST
    state = step.state
    known = evidence_of(state, event.host)
    seen = SeenHealth(
        event.check,
        event.outcome,
        event.occasion,
        step.now_ms,
        step.entry.index,
        event.exit_code,
        event.detail[:DETAIL_LIMIT],
    )
    others = [one for one in known.health if one.check != event.check]
    kept = sorted((*others, seen), key=lambda one: one.index)[-CHECKS_KEPT:]
    state.evidence.put(
        event.host, replace(known, health=tuple(sorted(kept, key=lambda one: one.check)))
    )
    passed, on_request = event.outcome == HealthOutcome.PASSED, CheckOccasion.ON_REQUEST
    if event.occasion == on_request and quarantine_course.tested(
        step, event.host, passed, health_text(seen)
    ):
        if passed:  # What spoke against the host is forgotten by now, and this is not.
            state.evidence.put(event.host, replace(evidence_of(state, event.host), health=(seen,)))
        return None
    if event.outcome in BAD_OUTCOMES:
        fleet.quarantine(step, event.host, health_text(seen), step.cause)
    return None


@on(CollectiveTimedOut)
def _collective_timed_out(step: Step, event: CollectiveTimedOut) -> Rejection | None:
    """It will not complete any more: its generation is over."""
    if min(event.seq, event.elapsed_ms, *event.missing, 0) < 0:
        return Rejection.INVALID
    found = _speaker(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    missing = tuple(sorted(dict.fromkeys(event.missing)))
    if missing != event.missing or any(rank >= gang.size for rank in missing):
        return Rejection.INVALID
    gangs.weigh_against(step, gang.key, _timed_out(event, gang, task), step.now_ms, step.cause)
    return None


def _speaker(step: Step, event: CollectiveTimedOut) -> tuple[Task, Gang] | Rejection:
    if event.host:
        return current_task(step, event)
    task = step.state.tasks.get(event.task)
    if task is None:
        return Rejection.UNKNOWN_TASK
    gang = step.state.gangs.get(task.gang)
    if gang is None or not gangs.counts(gang, task):
        return Rejection.STALE_GENERATION
    return task, gang


def _timed_out(event: CollectiveTimedOut, gang: Gang, task: Task) -> attribution.Finding:
    what = event.op or "a collective"
    if event.group:
        what += f" of {event.group}"
    if event.seq:
        what += f" (number {event.seq})"
    if not event.missing:
        weight = attribution.CONSEQUENCE
        detail = f"{what} timed out"
        return attribution.Finding(FailureCause.UNKNOWN, task.key, detail, weight)
    first = task_key(gang.job, gang.role, event.missing[0], gang.generation)
    ranks = ", ".join(str(rank) for rank in event.missing)
    detail = f"did not join {what}; missing: {ranks}"
    return attribution.Finding(
        FailureCause.UNKNOWN, first, detail, attribution.PROVEN, missing=event.missing
    )


def health_text(seen: SeenHealth) -> str:
    """`health check gpu failed with exit code 3`, `health check gpu timed out`"""
    if seen.outcome == "failed":
        return f"health check {seen.check} failed with exit code {seen.exit_code}"
    return f"health check {seen.check} {seen.outcome.replace('_', ' ')}"
