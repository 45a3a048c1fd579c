"""What moves a host along its quarantine (`quarantine.py`): operators, tests and time."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet
from coord.core.care import quarantine
from coord.core.causes import blame
from coord.core.step import Step, on
from coord.model.care import Quarantine, QuarantineState
from coord.model.care_decisions import HostReleased, QuarantineDropped
from coord.model.decisions import HostReturned
from coord.model.entities import Host, HostStatus
from coord.model.events import (
    HealthChecked,
    HostQuarantineRequested,
    HostReleaseRequested,
    QuarantineAnswered,
)
from coord.model.health import CheckOccasion
from coord.model.rejections import Rejection


@on(HostQuarantineRequested)
def _requested(step: Step, event: HostQuarantineRequested) -> Rejection | None:
    """An operator's word needs no approval, and counts as evidence."""
    host = _known(step, event.host)
    if host is None:
        return Rejection.UNKNOWN_HOST
    if host.quarantine:
        return Rejection.NOTHING_TO_DO
    reason = event.reason or "requested"
    row = quarantine.with_evidence(step, event.host, reason, step.cause)
    actor = event.actor or "unnamed"
    quarantine.take_out(step, row, reason, (step.cause,), actor=actor)
    fleet.drop_holds(step, event.host)
    fleet.look_if_drained(step, event.host)
    review(step)
    return None


@on(QuarantineAnswered)
def _answered(step: Step, event: QuarantineAnswered) -> Rejection | None:
    if _known(step, event.host) is None:
        return Rejection.UNKNOWN_HOST
    row = step.state.quarantines.get(event.host)
    if row is None or row.state != QuarantineState.PROPOSED:
        return Rejection.NOT_PROPOSED
    if event.version != row.version:
        return Rejection.STALE_PROPOSAL
    if not event.approved:
        _drop(step, row, f"declined by {event.actor or 'somebody unnamed'}")
        return None
    evidence = tuple(one.cause for one in row.evidence[-1:])
    actor = event.actor or "unnamed"
    quarantine.take_out(step, row, row.reason, (step.cause, *evidence), actor=actor)
    fleet.drop_holds(step, event.host)
    fleet.look_if_drained(step, event.host)
    review(step)
    return None


@on(HostReleaseRequested)
def _release_requested(step: Step, event: HostReleaseRequested) -> Rejection | None:
    """Whoever returns a host from repair vouches for it; from elsewhere, if they say so."""
    host = _known(step, event.host)
    if host is None:
        return Rejection.UNKNOWN_HOST
    row = step.state.quarantines.get(event.host)
    on_probation = row is not None and row.state == QuarantineState.PROBATION
    forgets = event.repaired and row is not None and row.state == QuarantineState.NONE
    if not host.quarantine and not on_probation and not forgets:
        return Rejection.NOTHING_TO_DO
    release(step, host, (step.cause,), repaired=event.repaired)
    return None


def release(step: Step, host: Host, causes: tuple[str, ...], *, repaired: bool) -> None:
    """Take the host back by a person's word."""
    row = step.state.quarantines.get(host.host) or Quarantine(host.host, QuarantineState.NONE)
    clean = repaired or row.state == QuarantineState.REPAIR
    step.decide(HostReleased(causes, host.host, clean))
    quarantine.back_in_fleet(step, row, clean=clean)
    if clean:
        blame.forget(step, host.host)
    review(step)


def is_of_another_test(step: Step, event: HealthChecked) -> bool:
    """A result that was asked for with another number than the host's test has now. Under rules of
    version 1 results had none."""
    asked = event.occasion == CheckOccasion.ON_REQUEST and step.state.meta.logic_version >= 2
    return asked and event.test != step.state.hosts[event.host].test


def tested(step: Step, name: str, passed: bool, detail: str) -> bool:
    """Its agent told how a check went that it was asked for. False when no test is under way."""
    row = step.state.quarantines.get(name)
    if row is None or row.state != QuarantineState.TESTING:
        return False
    if passed:
        quarantine.passed(step, row)
        # It was taken out for what was seen of it by then, and that has been looked into.
        blame.forget(step, name)
    else:
        quarantine.out_for_repair(step, row, f"its test: {detail}")
    review(step)
    return True


def look_at(step: Step, name: str) -> None:
    """The alarm of the host's quarantine went off."""
    state = step.state
    row = state.quarantines.get(name)
    if row is None:
        return
    if row.state == QuarantineState.PROPOSED:
        left = quarantine.forget_expired(step, row)
        if left is None or not left.evidence:
            _drop(step, row, "the evidence is too old")
            return
    elif row.state != QuarantineState.NONE:
        if row.due_ms and step.now_ms >= row.due_ms:
            _time_is_up(step, row)
        else:
            quarantine.rearm(step, row)
        return
    kept = quarantine.forget_expired(step, row)
    if kept is None:
        state.quarantines.drop(name)
        return
    if kept != row:
        state.quarantines.put(name, kept)
    quarantine.rearm(step, kept)


def registered(step: Step, name: str) -> None:
    """A proposal about the host as it was is none about the host as it is."""
    row = step.state.quarantines.get(name)
    if row is not None and row.state == QuarantineState.PROPOSED:
        _propose_again(step, row)


def undrained(step: Step, name: str) -> None:
    """An operator returned the host as from a drain; its row is yet to follow."""
    row = step.state.quarantines.get(name)
    if row is not None:
        clean = row.state == QuarantineState.REPAIR
        quarantine.back_in_fleet(step, row, clean=clean)
        if clean:
            blame.forget(step, name)
        review(step)


def removed(step: Step, name: str) -> None:
    """The host is forgotten, and so is what is held against it."""
    step.state.quarantines.drop(name)
    review(step)


def review(step: Step) -> None:
    """How many are out has changed: carry out proposals for which there is room, make the others
    anew. Each pass that changes something leaves fewer or newer proposals."""
    state = step.state
    changed = True
    while changed:
        changed = False
        asked = [row for row in state.quarantines.values() if row.state == QuarantineState.PROPOSED]
        for row in sorted(asked, key=lambda row: (row.since_ms, row.host)):
            changed = _review_one(step, row) or changed


def _review_one(step: Step, row: Quarantine) -> bool:
    state = step.state
    allowed = quarantine.allowed_out(state)
    full = quarantine.used_up(state, state.hosts[row.host], allowed)
    if full == (row.level, row.domain, row.quarantined, row.allowed):
        return False
    if full is not None:
        quarantine.propose(step, row, row.reason, _grounds(step, row), full)
        return True
    _carry_out(step, row, allowed.allowed)
    return True


def _propose_again(step: Step, row: Quarantine) -> None:
    state = step.state
    allowed = quarantine.allowed_out(state)
    full = quarantine.used_up(state, state.hosts[row.host], allowed)
    if full is None:
        _carry_out(step, row, allowed.allowed)
    else:
        quarantine.propose(step, row, row.reason, _grounds(step, row), full)


def _carry_out(step: Step, row: Quarantine, allowed: int) -> None:
    quarantine.take_out(step, row, row.reason, _grounds(step, row), allowed=allowed)
    fleet.drop_holds(step, row.host)
    fleet.look_if_drained(step, row.host)


def _grounds(step: Step, row: Quarantine) -> tuple[str, ...]:
    return (step.cause, *(one.cause for one in row.evidence[-1:]))


def _drop(step: Step, row: Quarantine, why: str) -> None:
    step.decide(QuarantineDropped(_grounds(step, row), row.host, why))
    quarantine.back_in_fleet(step, replace(row, evidence=()), clean=not row.strikes_ms)


def _time_is_up(step: Step, row: Quarantine) -> None:
    state = step.state
    if row.state == QuarantineState.PROBATION:
        step.decide(HostReturned((step.cause,), row.host))
        quarantine.back_in_fleet(step, row, clean=False)
    elif row.state == QuarantineState.TESTING:
        test_ms = quarantine.settings_of(state).test_ms
        if state.hosts[row.host].status == HostStatus.UP:
            quarantine.out_for_repair(step, row, f"no word of its test within {test_ms} ms")
        else:
            # Silence is no result: it has its time again, from when it may be heard.
            row = replace(row, due_ms=step.now_ms + test_ms)
            state.quarantines.put(row.host, row)
            quarantine.rearm(step, row)


def _known(step: Step, name: str) -> Host | None:
    host = step.state.hosts.get(name)
    return None if host is None or host.status == HostStatus.REMOVED else host


def next_step(row: Quarantine) -> str:
    """What the host waits for, in words for a person."""
    return _NEXT.get(row.state, "")


_NEXT = {
    QuarantineState.PROPOSED: "your answer: `coordctl host approve` or `decline`",
    QuarantineState.QUARANTINED: "what runs there to move away, then a test",
    QuarantineState.TESTING: "the health check of its agent",
    QuarantineState.PROBATION: "the end of its probation",
    QuarantineState.REPAIR: "repair, then `coordctl host release`",
}
