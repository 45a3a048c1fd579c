"""Quarantine: who is taken out of the fleet, and what is remembered of it.

| state       | upon                              | becomes     | decision           |
| ----------- | --------------------------------- | ----------- | ------------------ |
| in fleet    | evidence; an operator's request   | quarantined | HostQuarantined    |
| in fleet    | evidence, but too many are out    | proposed    | QuarantineProposed |
| proposed    | approved; there is room again     | quarantined | HostQuarantined    |
| proposed    | declined; the evidence is too old | in fleet    | QuarantineDropped  |
| quarantined | nothing runs there any more       | testing     | HostTesting        |
| quarantined | the same, the `repair_at`-th time | repair      | HostOutForRepair   |
| testing     | its health check passed           | probation   | HostOnProbation    |
| testing     | failed, missing, not told in time | repair      | HostOutForRepair   |
| probation   | its time is over                  | in fleet    | HostReturned       |
| any         | an operator releases it           | in fleet    | HostReleased       |

Here are the states and the limits; `quarantine_course.py` has the events. What runs on the host is
moved as in a drain (`moves.py`). Rows are kept under rules of version 2 and above; before, a host
was only marked, until an operator returned it.

The share of the fleet, and of each failure domain, that evidence alone may take out is limited
(`QuarantineSettings`). Beyond it a person decides, on a proposal with a version: whenever what it
was worked out from changes, it is made anew under another version, and an answer to the old one is
refused. What is known to be broken, and not only suspected, takes no new work in the meantime, and
for as long as a task there cannot be killed, by nobody's word: the limit is on what is withdrawn.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from coord.core import topology
from coord.core.state import LIVE_HOST, State
from coord.core.step import Step
from coord.model.care import OUT_OF_FLEET, Evidence, Quarantine, QuarantineState
from coord.model.care_decisions import (
    HostOnProbation,
    HostOutForRepair,
    HostTesting,
    QuarantineProposed,
)
from coord.model.decisions import HostQuarantined
from coord.model.entities import Host, HostStatus, TaskStatus
from coord.model.place import LEVELS, domain
from coord.model.settings import LONGEST_MS, QuarantineSettings

WITHHELD_SINCE = 2
"""The logic version."""

EVIDENCE_KEPT = 8
"""Of one host, the newest."""


class Limit(NamedTuple):
    """How many of a domain (empty: the fleet) are out, and how many may be without approval."""

    level: str
    domain: str
    quarantined: int
    allowed: int


def settings_of(state: State) -> QuarantineSettings:
    return state.meta.settings.policy.quarantine


def accuse(step: Step, name: str, reason: str, cause: str, *, proven: bool) -> bool:
    """Evidence against a host: it is taken out, or that is proposed. True when it is out now."""
    host = step.state.hosts[name]
    if host.status == HostStatus.REMOVED:
        return False
    row = with_evidence(step, name, reason, cause, proven=proven)
    if row.state in OUT_OF_FLEET:
        step.state.quarantines.put(name, row)
        return False
    if host.quarantine:  # It was marked under rules of version 1: it is out already.
        take_out(step, row, reason, (step.cause, cause), actor="rules of version 1")
        return True
    fleet = allowed_out(step.state)
    full = used_up(step.state, host, fleet)
    if full is None:
        take_out(step, row, reason, (step.cause, cause), allowed=fleet.allowed)
        return True
    propose(step, row, reason, (step.cause, cause), full)
    return False


def with_evidence(
    step: Step, name: str, reason: str, cause: str, *, proven: bool = False
) -> Quarantine:
    """The host's row with one reason more, and without what is too old to count."""
    row = step.state.quarantines.get(name) or Quarantine(name, QuarantineState.NONE)
    row = forget_expired(step, row) or Quarantine(name, QuarantineState.NONE)
    proven = proven and step.state.meta.logic_version >= WITHHELD_SINCE
    evidence = (*row.evidence, Evidence(cause, reason, step.now_ms, proven))[-EVIDENCE_KEPT:]
    return replace(row, evidence=evidence)


def take_out(
    step: Step,
    row: Quarantine,
    reason: str,
    causes: tuple[str, ...],
    *,
    actor: str = "",
    allowed: int = 0,
) -> None:
    """Out of the fleet from now on; what runs there is to move. `allowed` 0: by a person's word."""
    state = step.state
    host = state.hosts[row.host]
    settings = settings_of(state)
    decided = step.decide(HostQuarantined(_once(causes), row.host, reason))
    strikes = (*_remembered(step, row.strikes_ms, settings.memory_ms), step.now_ms)
    _enter(
        step,
        replace(row, strikes_ms=strikes, allowed=allowed, actor=actor, version=0),
        QuarantineState.QUARANTINED,
        reason,
    )
    by_ms = step.now_ms + settings.drain_ms
    if not host.drain or host.move_by_ms > by_ms:
        told = f"quarantine: {reason}"
        host = replace(host, move_by_ms=by_ms, move_reason=told, move_cause=decided)
        state.timers.arm("moves", row.host, by_ms)
    state.put_host(_unlimited(step, replace(host, quarantine=reason, withheld="")))
    step.scheduling = True


def propose(
    step: Step, row: Quarantine, reason: str, causes: tuple[str, ...], limit: Limit
) -> None:
    """Ask an operator, about things as they are at this index. What runs there runs on meanwhile;
    new work goes there only if the host is merely suspected."""
    step.decide(
        QuarantineProposed(
            _once(causes),
            row.host,
            reason,
            step.entry.index,
            limit.level,
            limit.domain,
            limit.quarantined,
            limit.allowed,
        )
    )
    asked = replace(
        row,
        version=step.entry.index,
        level=limit.level,
        domain=limit.domain,
        quarantined=limit.quarantined,
        allowed=limit.allowed,
    )
    _enter(step, asked, QuarantineState.PROPOSED, reason)
    withhold(step, row.host)


def withhold(step: Step, name: str) -> None:
    """Keep new work away from a host for as long as it is in the fleet and known to be broken."""
    state = step.state
    if state.meta.logic_version < WITHHELD_SINCE:
        return
    host = state.hosts[name]
    why = "" if host.quarantine else _why_withheld(state, host)
    if why != host.withheld:
        state.put_host(replace(host, withheld=why))
        step.scheduling = True


def _why_withheld(state: State, host: Host) -> str:
    for key in host.tasks:
        if state.tasks[key].status == TaskStatus.UNKILLABLE:
            return f"unkillable task {key}"
    row = state.quarantines.get(host.host)
    if row is None or row.state != QuarantineState.PROPOSED:
        return ""
    return next((one.reason for one in row.evidence if one.proven), "")


def emptied(step: Step, name: str) -> None:
    """Nothing runs there any more: the test may begin, if there is to be one."""
    state = step.state
    row = state.quarantines.get(name)
    host = state.hosts[name]
    if row is None or row.state != QuarantineState.QUARANTINED or host.status not in LIVE_HOST:
        return
    settings = settings_of(state)
    if len(row.strikes_ms) >= settings.repair_at:
        out_for_repair(step, row, f"quarantine {len(row.strikes_ms)} within memory: {row.reason}")
        return
    step.decide(HostTesting((step.cause,), name))
    due_ms = step.now_ms + settings.test_ms
    _enter(step, row, QuarantineState.TESTING, row.reason, due_ms)
    index = step.entry.index
    state.put_host(replace(host, test=index, plan_version=index))


def passed(step: Step, row: Quarantine) -> None:
    """The test found nothing: limited work, for longer each time."""
    state = step.state
    settings = settings_of(state)
    strikes = _remembered(step, row.strikes_ms, settings.memory_ms)
    doubled = min(max(len(strikes) - 1, 0), 30)
    lasts_ms = min(settings.probation_ms << doubled, LONGEST_MS)
    tasks = settings.probation_tasks
    step.decide(HostOnProbation((step.cause,), row.host, step.now_ms + lasts_ms, tasks))
    _enter(step, row, QuarantineState.PROBATION, row.reason, step.now_ms + lasts_ms)
    host = _unlimited(step, state.hosts[row.host])
    state.put_host(replace(host, quarantine="", probation=tasks))
    step.scheduling = True


def out_for_repair(step: Step, row: Quarantine, reason: str) -> None:
    step.decide(HostOutForRepair((step.cause,), row.host, reason))
    _enter(step, row, QuarantineState.REPAIR, reason)
    host = _unlimited(step, step.state.hosts[row.host])
    step.state.put_host(replace(host, quarantine=reason, move_by_ms=0, move_reason=""))


def back_in_fleet(step: Step, row: Quarantine, *, clean: bool) -> None:
    """Nothing is held against the host any more if `clean`; else only what is remembered."""
    state = step.state
    host = _unlimited(step, state.hosts[row.host])
    if not host.drain:
        host = replace(host, move_by_ms=0, move_reason="", move_cause="")
    state.put_host(replace(host, quarantine=""))
    step.scheduling = True
    if clean or not row.strikes_ms:
        state.quarantines.drop(row.host)
    else:
        kept = Quarantine(row.host, QuarantineState.NONE, strikes_ms=row.strikes_ms)
        _enter(step, kept, QuarantineState.NONE, "")
    withhold(step, row.host)


def forget_expired(step: Step, row: Quarantine) -> Quarantine | None:
    """The row without what is too old to count; None when nothing is left to know."""
    settings = settings_of(step.state)
    row = replace(
        row,
        evidence=tuple(
            one
            for one in row.evidence
            if _stands(row, one) or one.at_ms + settings.evidence_ms > step.now_ms
        ),
        strikes_ms=_remembered(step, row.strikes_ms, settings.memory_ms),
    )
    nothing = row.state == QuarantineState.NONE and not row.evidence and not row.strikes_ms
    return None if nothing else row


def _stands(row: Quarantine, one: Evidence) -> bool:
    """A broken host does not mend by waiting for an answer."""
    return one.proven and row.state == QuarantineState.PROPOSED


def rearm(step: Step, row: Quarantine) -> None:
    """Look at it again when something of it ends or is forgotten."""
    settings = settings_of(step.state)
    dues = [row.due_ms] if row.due_ms else []
    if row.state in (QuarantineState.NONE, QuarantineState.PROPOSED):
        dues += [at_ms + settings.memory_ms for at_ms in row.strikes_ms]
        dues += [one.at_ms + settings.evidence_ms for one in row.evidence if not _stands(row, one)]
    if dues:
        step.state.timers.arm("quarantine", row.host, min(dues))


def allowed_out(state: State) -> Limit:
    """How many of the whole fleet are out, and how many may be without approval."""
    settings = settings_of(state)
    fleet = sum(1 for host in state.hosts.values() if host.status != HostStatus.REMOVED)
    out = sum(1 for row in state.quarantines.values() if row.state in OUT_OF_FLEET)
    return Limit("", "", out, max(fleet * settings.share_permille // 1000, settings.free_hosts))


def used_up(state: State, host: Host, fleet: Limit) -> Limit | None:
    """The first limit that leaves no room for this host: the fleet's, then those of its domains
    from the widest inwards. None when it may go without approval."""
    if fleet.quarantined >= fleet.allowed:
        return fleet
    settings = settings_of(state)
    for (level, name), names in _neighbours(state, host).items():
        rows = [state.quarantines.get(other) for other in names]
        out = sum(1 for row in rows if row is not None and row.state in OUT_OF_FLEET)
        share = len(names) * settings.domain_share_permille // 1000
        limit = Limit(level, name, out, max(share, settings.free_hosts))
        if limit.quarantined >= limit.allowed:
            return limit
    return None


def _neighbours(state: State, host: Host) -> dict[tuple[str, str], list[str]]:
    """The hosts of each failure domain that a host stands in; `switch` for its leaves."""
    found: dict[tuple[str, str], list[str]] = {}
    levels = [level for level in LEVELS if level != "host" and getattr(host.place, level)]
    mine = [domain(host.place, host.host, level) for level in levels]
    leaves = topology.leaves(state, host)
    for name, other in state.hosts.items():
        if other.status == HostStatus.REMOVED:
            continue
        for level, where in zip(levels, mine, strict=True):
            if domain(other.place, name, level) != where:
                break  # Nor does it share what is inside.
            found.setdefault((level, where), []).append(name)
        for leaf in topology.leaves(state, other) if leaves else ():
            if leaf in leaves:
                found.setdefault(("switch", leaf), []).append(name)
    order = [*zip(levels, mine, strict=True), *(("switch", leaf) for leaf in leaves)]
    return {where: found[where] for where in order if where in found}


def _remembered(step: Step, times_ms: tuple[int, ...], memory_ms: int) -> tuple[int, ...]:
    return tuple(at_ms for at_ms in times_ms if at_ms + memory_ms > step.now_ms)


def _enter(
    step: Step, row: Quarantine, state: QuarantineState, reason: str, due_ms: int = 0
) -> None:
    row = replace(
        row,
        state=state,
        reason=reason,
        since=step.entry.index,
        since_ms=step.now_ms,
        due_ms=due_ms,
    )
    step.state.quarantines.put(row.host, row)
    rearm(step, row)


def _unlimited(step: Step, host: Host) -> Host:
    """Neither on probation nor asked for a test."""
    if host.test:
        host = replace(host, test=0, plan_version=step.entry.index)
    return replace(host, probation=0) if host.probation else host


def _once(causes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(causes))
