"""An incident: from the evidence that ended a generation to the first step of the next one."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.step import Step
from coord.model.decisions import IncidentClosed, IncidentOpened
from coord.model.entities import FailureCause, Gang, Incident
from coord.model.ids import event_cause


def open_incident(
    step: Step,
    gang: Gang,
    cause: FailureCause,
    subject: str,
    detail: str,
    last_sign_ms: int,
    why: str,
) -> tuple[Gang, str]:
    """(the gang with its incident, the decision's id). One still open is closed as not resolved."""
    state = step.state
    if gang.incident:
        gang = close_incident(step, gang, resolved=False)
    state.meta.incidents += 1
    number = state.meta.incidents
    decision = step.decide(
        IncidentOpened((why,), number, gang.job, gang.key, gang.generation, cause, subject, detail)
    )
    incident = Incident(
        number,
        gang.job,
        gang.key,
        gang.generation,
        cause,
        subject,
        detail,
        step.entry.index,
        min(last_sign_ms, step.now_ms),
        step.now_ms,
        failed_step=gang.step,
    )
    state.incidents.put(str(number), incident)
    return replace(gang, incident=number), decision


def incident_stopped(step: Step, gang: Gang) -> None:
    """The last task of the generation is gone."""
    _mark(step, gang, stopped_ms=step.now_ms)


def incident_placed(step: Step, gang: Gang) -> None:
    """The next generation has its places."""
    _mark(step, gang, placed_ms=step.now_ms, restored_step=gang.restore_step)


def incident_started(step: Step, gang: Gang) -> None:
    """All processes of the next generation exist."""
    _mark(step, gang, started_ms=step.now_ms)


def close_incident(step: Step, gang: Gang, *, resolved: bool) -> Gang:
    """Record what it cost; returns the gang without it. Nothing to do where none is open."""
    if not gang.incident:
        return gang
    state = step.state
    incident = state.incidents[str(gang.incident)]
    lost_steps = 0
    if incident.placed_ms >= 0:
        lost_steps = max(incident.failed_step - max(incident.restored_step, 0), 0)
    closed = replace(incident, closed_ms=step.now_ms, lost_steps=lost_steps, resolved=resolved)
    state.incidents.put(str(gang.incident), closed)
    step.decide(
        IncidentClosed(
            (step.cause, event_cause(closed.opened)),
            closed.incident,
            closed.job,
            closed.gang,
            closed.generation,
            closed.opened_ms - closed.last_sign_ms,
            _between(closed.opened_ms, closed.stopped_ms),
            _between(closed.stopped_ms, closed.placed_ms),
            _between(closed.placed_ms, closed.started_ms),
            _between(closed.started_ms, closed.closed_ms),
            lost_steps,
            resolved,
        )
    )
    return replace(gang, incident=0)


def _mark(step: Step, gang: Gang, **fields: int) -> None:
    """Each phase is reached once: a later stop, on request, is no part of this incident."""
    if gang.incident:
        key = str(gang.incident)
        incident = step.state.incidents[key]
        new = {name: value for name, value in fields.items() if getattr(incident, name) < 0}
        step.state.incidents.put(key, replace(incident, **new))


def _between(start_ms: int, end_ms: int) -> int:
    return end_ms - start_ms if start_ms >= 0 and end_ms >= 0 else -1
