"""An incident: from the evidence that ended a generation to the first step of the next one.

It closes with what it cost: steps, and device-milliseconds by phase (`model/cost.py`). The newest
ones are kept; what all that ever were cost is kept by who paid.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.queueing.claims import DEVICE, each_of
from coord.core.state import State
from coord.core.step import Step
from coord.model.care_decisions import DomainLost
from coord.model.cost import NO_COST, DeviceTime, IncidentCost, IncidentTotal, added
from coord.model.decisions import HostLost, IncidentClosed, IncidentOpened
from coord.model.entities import FailureCause, Gang, Incident
from coord.model.ids import event_cause

COSTED_SINCE = 2
"""The logic version."""


def costed(state: State) -> bool:
    return state.meta.logic_version >= COSTED_SINCE


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
    follows = gang.incident
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
    if costed(state):
        incident = replace(
            incident,
            evidence_ms=max(_evidence_ms(step, incident.last_sign_ms, why), incident.last_sign_ms),
            host=_host_of(state, gang, subject),
            began_ms=gang.began_ms or -1,
            begun_step=max(gang.restore_step, 0),
            device_millis=_devices(state, gang),
            follows=follows,
        )
        _forget_oldest(state)
    state.incidents.put(str(number), incident)
    return replace(gang, incident=number), decision


def made_progress(step: Step, gang: Gang) -> Gang:
    """The generation has reported its first step."""
    return replace(gang, began_ms=max(step.now_ms, 1)) if costed(step.state) else gang


def incident_stopped(step: Step, gang: Gang) -> None:
    """The last task of the generation is gone."""
    state = step.state
    if gang.incident and costed(state):
        incident = state.incidents[str(gang.incident)]
        if incident.stopped_ms < 0:
            holds = () if gang.stop_final else gang.holds
            incident = replace(
                incident,
                host=_host_of(state, gang, incident.subject),
                held_millis=sum(
                    hold.device_millis or len(hold.devices) * DEVICE
                    for hold in holds
                    if not hold.spare
                ),
                with_millis=_devices_of_companions(state, gang),
            )
            state.incidents.put(str(gang.incident), incident)
    _mark(step, gang, stopped_ms=step.now_ms)


def incident_placed(step: Step, gang: Gang) -> None:
    """The next generation has its places."""
    if gang.incident and costed(step.state):
        key = str(gang.incident)
        incident = step.state.incidents[key]
        if incident.placed_ms < 0:
            waited_ms = _held_ms(step, incident)
            step.state.incidents.put(key, replace(incident, idle_ms=waited_ms))
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
    cause, cost = "", NO_COST
    if costed(state):
        if closed.placed_ms < 0:
            closed = replace(closed, idle_ms=_held_ms(step, closed))
        cause, cost = closed.cause.value, _cost_of(closed)
        closed = replace(closed, closed=step.entry.index, cost=cost)
        _add_up(state, closed)
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
            cause,
            cost,
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


# What it cost


def _evidence_ms(step: Step, last_sign_ms: int, why: str) -> int:
    """When there was something to see: what is lost for its silence was suspected first."""
    index, _, ordinal = why.partition(".")
    verdict = step.decisions[int(ordinal)] if ordinal and index == step.cause else None
    if isinstance(verdict, HostLost | DomainLost):
        return min(last_sign_ms + step.state.meta.settings.suspect_ms, step.now_ms)
    return step.now_ms


def _host_of(state: State, gang: Gang, subject: str) -> str:
    """The host that the subject is or, in the gang's newest generation, ran on; else empty."""
    if "#" not in subject:
        return subject if subject in state.hosts else ""
    known = state.tasks.get(subject)
    if known is not None and known.generation == gang.generation:
        return known.host  # A standby that took a rank has a key of its own.
    run, _, generation = subject.rpartition("#")
    index = int(run.rpartition("/")[2]) if gang.index < 0 else 0
    newest = subject.startswith(gang.key) and generation == str(gang.generation)
    return gang.hosts[index] if newest and index < len(gang.hosts) else ""


def _devices(state: State, gang: Gang) -> int:
    """Thousandths of devices that its generation has."""
    role = state.jobs[gang.job].spec.role(gang.role)
    return gang.size * each_of(role.resources) if role is not None else 0


def _devices_of_companions(state: State, gang: Gang) -> int:
    """Of those that stopped for this incident and have none of their own."""
    if not gang.together:
        return 0
    others = [state.gangs[key] for key in state.jobs[gang.job].gangs if key != gang.key]
    return sum(
        _devices(state, other)
        for other in others
        if other.together == gang.together and not other.incident
    )


def _held_ms(step: Step, incident: Incident) -> int:
    """How long the places that were kept for the gang have waited: they are kept for `hold_ms`."""
    if incident.stopped_ms < 0 or not incident.held_millis:
        return 0
    return min(step.now_ms - incident.stopped_ms, step.state.meta.settings.hold_ms)


def _cost_of(incident: Incident) -> IncidentCost:
    """Of a closed incident. What was not reached took no time; what was under way, all of it."""
    ends = (
        incident.evidence_ms,
        incident.opened_ms,
        incident.stopped_ms,
        incident.placed_ms,
        incident.started_ms,
        incident.closed_ms,
    )
    # What passed before it opened is charged to the one that it followed on, if any.
    at_ms = incident.opened_ms if incident.follows else incident.last_sign_ms
    phases_ms = []
    for reached_ms in ends:
        end_ms = reached_ms if reached_ms >= 0 else incident.closed_ms
        phases_ms.append(max(end_ms - at_ms, 0))
        at_ms = max(at_ms, end_ms)
    own = incident.device_millis
    everybody = own + incident.with_millis
    detection_ms, decision_ms, *later_ms = phases_ms
    stop_ms, placement_ms, launch_ms, progress_ms = (everybody * ms // DEVICE for ms in later_ms)
    lost = DeviceTime(
        work_ms=own * _work_ms(incident) // DEVICE,
        detection_ms=own * detection_ms // DEVICE,
        decision_ms=own * decision_ms // DEVICE,
        stop_ms=stop_ms,
        placement_ms=placement_ms,
        launch_ms=launch_ms,
        progress_ms=progress_ms,
        idle_ms=incident.held_millis * incident.idle_ms // DEVICE,
    )
    return IncidentCost(everybody, decision_ms, lost)


def _work_ms(incident: Incident) -> int:
    """How long the lost steps took, at the pace of all that the generation did."""
    done = incident.failed_step - incident.begun_step
    if incident.began_ms < 0 or done <= 0:
        return 0
    worked_ms = max(incident.last_sign_ms - incident.began_ms, 0)
    return worked_ms * min(incident.lost_steps, done) // done


def _add_up(state: State, incident: Incident) -> None:
    key = incident.cause.value
    total = state.incident_totals.get(key) or IncidentTotal(key)
    state.incident_totals.put(
        key,
        IncidentTotal(
            key,
            total.incidents + 1,
            total.resolved + incident.resolved,
            total.lost_steps + incident.lost_steps,
            total.lasted_ms + incident.closed_ms - incident.last_sign_ms,
            added(total.lost, incident.cost.lost),
        ),
    )


def _forget_oldest(state: State) -> None:
    """Of those that are over, the newest are kept: so many, with the one just opened."""
    kept = state.meta.settings.policy.incidents.kept
    if len(state.incidents) < kept:
        return
    oldest = state.meta.incidents - kept
    gone = [
        key for key, one in state.incidents.items() if one.incident <= oldest and one.closed_ms >= 0
    ]
    for key in gone:
        state.incidents.drop(key)
