"""Hosts leave for a while, and come back: at once, or by a deadline, each gang at its checkpoint.

Drain stands beside a host's status and outlives a new registration (races.md 27).
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet, gangs
from coord.core.care import moves, quarantine, quarantine_course
from coord.core.step import Step
from coord.model.decisions import HostDraining, HostReturned
from coord.model.entities import DrainState, FailureCause, Host


def drain(step: Step, name: str, by_ms: int, reason: str, why: str) -> None:
    """An operator's drain: 0 for at once, else moves at checkpoints, the last by then."""
    host = replace(step.state.hosts[name], drain_requested=True)
    if not by_ms:
        empty(step, host, 0, FailureCause.DRAIN, reason, why)
        return
    by_ms = min(by_ms, host.move_by_ms or by_ms)
    decided = step.decide(HostDraining((why,), name, by_ms))
    host = replace(host, drain=DrainState.DRAINING, move_by_ms=by_ms, move_reason=reason)
    step.state.put_host(replace(host, move_cause=decided))
    step.state.timers.arm("moves", name, by_ms)
    fleet.drop_holds(step, name)
    fleet.look_if_drained(step, name)
    step.scheduling = True


def empty(
    step: Step, host: Host, deadline_ms: int, why: FailureCause, reason: str, because: str
) -> None:
    """All that runs there moves away now, within the grace that `deadline_ms` leaves (0: as each
    role says)."""
    state = step.state
    host = moves.without_moves(host)
    cause = step.decide(HostDraining((because,), host.host, deadline_ms))
    state.put_host(
        replace(
            host,
            drain=DrainState.DRAINING,
            drain_deadline_ms=deadline_ms or host.drain_deadline_ms,
        )
    )
    fleet.drop_holds(step, host.host)
    grace_ms = deadline_ms - step.now_ms if deadline_ms else -1
    gangs.move_away(step, host.host, why, reason, grace_ms, cause)
    fleet.look_if_drained(step, host.host)
    step.scheduling = True


def undrain(step: Step, host: Host, why: str) -> None:
    """An operator returns the host to the fleet, from drain and quarantine alike."""
    step.decide(HostReturned((why,), host.host))
    quarantined = bool(host.quarantine)
    step.state.put_host(replace(_undrained(moves.without_moves(host)), quarantine=""))
    if quarantined:
        quarantine_course.undrained(step, host.host)
        quarantine.withhold(step, host.host)
    step.scheduling = True


def end_drain(step: Step, host: Host, why: str) -> None:
    """The drain is over; a quarantine goes on, and with it what it wants moved."""
    if not host.quarantine:
        step.decide(HostReturned((why,), host.host))
        host = moves.without_moves(host)
    step.state.put_host(_undrained(host))
    step.scheduling = True


def _undrained(host: Host) -> Host:
    return replace(host, drain=DrainState.NONE, drain_deadline_ms=0, drain_requested=False)
