"""Which failure of a burst came first, and who pays.

One dead rank makes its peers exit, and their exits may be reported first: the order in which the
log accepts them is not the order in which they happened. So every failure of a generation is
weighed by what it says of itself, and the likeliest root is kept (`entities.Burst`):

| weight      | evidence                                                                         |
| ----------- | -------------------------------------------------------------------------------- |
| PROVEN      | a rank known not to have joined; an exit on a host whose device had failed       |
| OWN         | an exit that nobody asked for and that names no other; a lost host; no launch    |
| TOLD        | an error of its own while being ended, dated no later than the root known        |
| VAGUE       | SIGABRT without words; an exit that nobody saw; the only one behind in a hang    |
| CONSEQUENCE | time-outs of collectives, connections that a peer closed                         |
| SILENT      | it ended because it was told to                                                  |

Of the same weight, a host's failure comes before a program's, then the earlier one by the time in
its error file; otherwise the one accepted first stays. Clocks of hosts differ, so times never
outweigh what was said. When everybody but one complained of waiting, that one was waited for.

The first evidence decides that the generation stops. A better one takes the incident over, and its
restart is counted where that one says. What a person or the program itself asked for is never
revised. (Before logic version 2, only evidence that a host or somebody outside was to blame did.)
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from coord.core import failures
from coord.core.causes.readings import Sign, sign_of
from coord.core.recovery.scope import recovery_in, role_in
from coord.core.state import State
from coord.core.step import Step
from coord.model.decisions import CauseRevised
from coord.model.entities import NO_BURST, Burst, FailureCause, FailureReason, Gang, GangPhase, Task
from coord.model.events import TaskExited
from coord.model.evidence import SeenFault
from coord.model.faults import Fault, fault_of

PROVEN, OWN, TOLD, VAGUE, CONSEQUENCE, SILENT = range(6)

_MISTAKEN = (FailureCause.USER, FailureCause.UNKNOWN)
_BETTER = (FailureCause.INFRASTRUCTURE, FailureCause.PREEMPTION)
_ATTRIBUTED = (*_MISTAKEN, *_BETTER)
"""What evidence says. Anything else somebody asked for."""
_WANTED = ("cancel", "remove", "succeed")
_ABORT = 6


class Finding(msgspec.Struct, frozen=True):
    """What one piece of evidence says. `at_ms`: when, by its host's clock; 0: not known."""

    cause: FailureCause
    subject: str
    detail: str
    weight: int = OWN
    at_ms: int = 0
    final: bool = False
    missing: tuple[int, ...] = ()
    """Ranks known not to have joined a collective operation."""


def weighs(state: State) -> bool:
    """Whether evidence is weighed, or the first one counts."""
    return state.meta.logic_version >= 2


# What one exit says


def read_exit(step: Step, task: Task, event: TaskExited, preempted: bool) -> Finding:
    """Of an exit without success. What it means beside a device's fault: `_beside_faults`."""
    verdict = failures.classify_exit(event, preempted)
    found = Finding(verdict.cause, task.key, verdict.detail, OWN, event.failed_at_ms, verdict.final)
    if not weighs(step.state) or preempted or verdict.final:
        return found
    return _beside_faults(step, task, _weighed(event, found))


def _weighed(event: TaskExited, found: Finding) -> Finding:
    sign = sign_of(event.error, event.stderr_tail)
    if event.oom:
        return found
    if sign == Sign.HARDWARE:
        return replace(found, cause=FailureCause.INFRASTRUCTURE)
    if event.expected:
        weight = _weight_of_ended(event, sign)
        return replace(found, weight=weight)
    if not event.observed:
        return replace(found, weight=VAGUE)
    if event.signal in failures.FROM_OUTSIDE:
        return found
    if sign == Sign.CONSEQUENCE:
        return replace(found, cause=FailureCause.UNKNOWN, weight=CONSEQUENCE)
    if sign == Sign.DOUBTFUL:
        return replace(found, cause=FailureCause.UNKNOWN)
    if sign == Sign.ENDED:
        return replace(found, cause=FailureCause.INFRASTRUCTURE)
    if event.signal == _ABORT:
        return replace(found, weight=VAGUE)
    return found


def _weight_of_ended(event: TaskExited, sign: Sign) -> int:
    """Of a task that was being ended when it exited."""
    if sign == Sign.CONSEQUENCE:
        return CONSEQUENCE
    told = sign in (Sign.PROGRAM, Sign.DOUBTFUL) and event.error and event.failed_at_ms
    return TOLD if told else SILENT


def _beside_faults(step: Step, task: Task, found: Finding) -> Finding:
    """An exit soon after a fault of a device on its host."""
    if not task.devices or found.weight == SILENT:
        return found
    seen = _recent_fault(step, task)
    if seen is None:
        return found
    fault = fault_of(seen.kind, seen.code, seen.text)
    if fault.blames_host:
        detail = f"{found.detail}; {_named(seen, fault)}"
        cause = FailureCause.INFRASTRUCTURE
        return replace(found, cause=cause, detail=detail, weight=PROVEN)
    if found.cause == FailureCause.UNKNOWN and found.weight < CONSEQUENCE:
        detail = f"{found.detail}; {_named(seen, fault)}"
        return replace(found, cause=FailureCause.USER, detail=detail)
    return found


def _recent_fault(step: Step, task: Task) -> SeenFault | None:
    """The one that explains most: of the machine before of the program, then the newest. A fault of
    a device that is another task's explains nothing."""
    known = step.state.evidence.get(task.host)
    if known is None:
        return None
    since_ms = step.now_ms - step.state.meta.settings.policy.evidence.fault_window_ms
    program = None
    for seen in reversed(known.faults):
        if seen.at_ms < since_ms:
            break
        if not seen.may_concern(task.devices):
            continue
        fault = fault_of(seen.kind, seen.code, seen.text)
        if fault.blames_host:
            return seen
        if fault.blames_program and program is None:
            program = seen
    return program


def _named(seen: SeenFault, fault: Fault) -> str:
    code = f" {seen.code}" if seen.code else ""
    return f"{seen.kind}{code} on its host: {fault.name}"


# What a burst says


def begin_burst(step: Step, gang: Gang, found: Finding) -> Gang:
    """The evidence that opened the incident."""
    if not weighs(step.state):
        return gang
    return replace(gang, burst=_counted(step, gang, NO_BURST, found, taken=True))


def revise_cause(step: Step, gang: Gang, found: Finding, why: str) -> None:
    """Evidence against a generation that has failed already. Mostly it says nothing new."""
    if not weighs(step.state):
        if gang.phase == GangPhase.STOPPING and gang.incident:
            _revise_to_better(step, gang, found, why)
        return
    if not gang.incident or gang.burst is NO_BURST:
        return
    before = _cause_of(step, gang)
    found = _of_the_known(step, gang, found, before)
    taken = _is_better(gang.burst, before, found)
    gang = replace(gang, burst=_counted(step, gang, gang.burst, found, taken=taken))
    step.state.put_gang(gang)
    if taken:
        _take_over(step, gang, found, why)


def _of_the_known(step: Step, gang: Gang, found: Finding, before: FailureCause) -> Finding:
    """A rank that did not join says why; or one that had said why is known not to have joined."""
    burst = gang.burst
    own = found.weight <= VAGUE and not found.missing
    rank = where(step.state, gang, found.subject)[1]
    if own and rank in burst.missing and before == FailureCause.UNKNOWN:
        return replace(found, weight=PROVEN - (found.cause != FailureCause.UNKNOWN))
    if burst.rank in found.missing and burst.weight <= VAGUE:
        incident = step.state.incidents[str(gang.incident)]
        detail = f"{incident.detail}; {found.detail}"
        return replace(found, cause=before, subject=burst.subject, detail=detail)
    return found


def note_ended(step: Step, gang: Gang, task: Task, event: TaskExited) -> None:
    """A task ended as it was told to: it may have said something before."""
    if not weighs(step.state) or not gang.incident or gang.burst is NO_BURST:
        return
    found = Finding(FailureCause.NONE, task.key, "", SILENT)
    if event.exit_code not in (0, failures.DO_NOT_RESTART) or event.signal:
        found = read_exit(step, task, event, preempted=False)
    revise_cause(step, gang, found, step.cause)


def conclude(step: Step, gang: Gang, why: str) -> Gang:
    """The generation has gone. If all but one of its tasks waited in vain, it was for that one."""
    burst = gang.burst
    if not gang.incident or burst is NO_BURST or burst.weight != CONSEQUENCE:
        return gang
    if burst.silent != 1 or burst.complaints < 2 or burst.complaints + 1 != gang.size:
        return gang
    detail = f"the {burst.complaints} others waited for it in vain"
    found = Finding(_cause_of(step, gang), burst.silent_task, detail, VAGUE)
    gang = replace(gang, burst=_counted(step, gang, burst, found, taken=True))
    step.state.put_gang(gang)
    _take_over(step, gang, found, why)
    return step.state.gangs[gang.key]


def explain_by_fault(step: Step, host: str, seen: SeenFault, fault: Fault) -> None:
    """A device's fault came to light after what it caused."""
    if not fault.blames_host and not fault.blames_program:
        return
    state = step.state
    window_ms = state.meta.settings.policy.evidence.fault_window_ms
    for key in sorted(state.gangs):
        gang = state.gangs[key]
        if not gang.incident or gang.burst is NO_BURST:
            continue
        incident = state.incidents[str(gang.incident)]
        if step.now_ms - incident.opened_ms > window_ms or not _uses_devices(step, gang):
            continue
        if _is_of_others(state, gang, host, seen):
            continue
        on_root = gang.burst.host == host
        took_part = host in gang.hosts and gang.phase in (GangPhase.STOPPING, GangPhase.WAITING)
        detail = f"{incident.detail}; {_named(seen, fault)}" if on_root else _named(seen, fault)
        if fault.blames_host and (on_root or (took_part and gang.burst.weight >= VAGUE)):
            subject = gang.burst.subject if on_root else host
            cause = FailureCause.INFRASTRUCTURE
            revise_cause(step, gang, Finding(cause, subject, detail, PROVEN), step.cause)
            continue
        open_question = incident.cause == FailureCause.UNKNOWN and gang.burst.weight < CONSEQUENCE
        if on_root and open_question and fault.blames_program:
            cause = FailureCause.USER
            found = Finding(cause, gang.burst.subject, detail, gang.burst.weight)
            _take_over(step, gang, found, step.cause)


def _is_of_others(state: State, gang: Gang, host: str, seen: SeenFault) -> bool:
    """The device is known, and none that the gang's root, or any task of its generation there, has.
    Of tasks that are gone nothing is known any more."""
    root = state.tasks.get(gang.burst.subject)
    if root is not None and root.host == host:
        return not seen.may_concern(root.devices)
    there = [state.tasks[key] for key in state.hosts[host].tasks]
    mine = [task for task in there if task.gang == gang.key and task.generation == gang.generation]
    return bool(mine) and not any(seen.may_concern(task.devices) for task in mine)


def _uses_devices(step: Step, gang: Gang) -> bool:
    job = step.state.jobs.get(gang.job)
    role = job.spec.role(gang.role) if job else None
    return role is not None and bool(role.resources.devices or role.resources.device_millis)


def _cause_of(step: Step, gang: Gang) -> FailureCause:
    return step.state.incidents[str(gang.incident)].cause


def _is_better(burst: Burst, cause: FailureCause, found: Finding) -> bool:
    if found.cause not in _ATTRIBUTED or cause not in _ATTRIBUTED or found.weight == SILENT:
        return False
    if found.weight == TOLD:
        dated = burst.at_ms and found.at_ms <= burst.at_ms
        return bool(dated) and burst.weight > OWN
    if found.weight != burst.weight:
        return found.weight < burst.weight
    if (found.cause in _BETTER) != (cause in _BETTER):
        return found.cause in _BETTER
    return bool(burst.at_ms and found.at_ms and found.at_ms < burst.at_ms)


def _counted(step: Step, gang: Gang, burst: Burst, found: Finding, *, taken: bool) -> Burst:
    """The burst with one more piece of evidence, as its root where `taken`."""
    missing = found.missing or burst.missing
    complaints = burst.complaints + (found.weight == CONSEQUENCE and "#" in found.subject)
    silent = burst.silent + (found.weight == SILENT)
    silent_task = burst.silent_task or (found.subject if found.weight == SILENT else "")
    if not taken:
        return replace(
            burst,
            complaints=complaints,
            silent=silent,
            silent_task=silent_task,
            missing=missing,
        )
    host, rank = where(step.state, gang, found.subject)
    return Burst(
        found.weight,
        found.subject,
        host,
        rank,
        found.at_ms or (burst.at_ms if burst.subject == found.subject else 0),
        complaints,
        silent,
        silent_task,
        missing,
    )


def where(state: State, gang: Gang, subject: str) -> tuple[str, int]:
    """(host, rank) that a subject names; empty and -1 where it names none."""
    if "#" in subject:
        index = int(subject.rpartition("#")[0].rpartition("/")[2])
        at = index if gang.index < 0 else 0
        task = state.tasks.get(subject)
        if task is not None:
            return task.host, task.index
        if gang.index < 0 and index >= role_in(state, gang).largest:
            return "", -1  # A standby that took a rank, and is gone.
        return (gang.hosts[at] if at < len(gang.hosts) else ""), index
    return (subject, -1) if subject in state.hosts else ("", -1)


def _take_over(step: Step, gang: Gang, found: Finding, why: str) -> None:
    """The incident is about this from now on, and its restart counted there."""
    state = step.state
    number = gang.incident
    incident = state.incidents[str(number)]
    same = (incident.cause, incident.subject) == (found.cause, found.subject)
    if same and not found.final and not found.missing:
        return
    if gang.stop_final in _WANTED or gang.fail_reason == FailureReason.DO_NOT_RESTART:
        return
    revised = CauseRevised(
        _reasons(why, gang.cause),
        number,
        gang.job,
        gang.key,
        found.cause,
        found.subject,
        found.detail,
    )
    decided = step.decide(revised)
    state.incidents.put(
        str(number),
        replace(incident, cause=found.cause, subject=found.subject, detail=found.detail),
    )
    known = state.attributions.get(str(number))
    if known is not None:
        host, rank = where(state, gang, found.subject)
        state.attributions.put(str(number), replace(known, cause=found.cause, host=host, rank=rank))
    _count_anew(step, gang, incident.cause, found, decided)


def _reasons(why: str, before: str) -> tuple[str, ...]:
    return (why, before) if before not in ("", why) else (why,)


def _count_anew(step: Step, gang: Gang, before: FailureCause, found: Finding, decided: str) -> None:
    state = step.state
    gang = failures.uncount_restart(gang, before)
    if gang.phase != GangPhase.STOPPING:
        # Whether it may start again was settled; only the accounts are put right.
        state.put_gang(failures.count_restart(gang, found.cause))
        return
    required = recovery_in(state, gang).required
    policy = state.jobs[gang.job].spec.restart
    chance = failures.next_try(policy, gang, found.cause, gang.barren, required=required)
    reason, because = chance.reason, chance.detail
    if found.final:
        reason, because = FailureReason.DO_NOT_RESTART, found.detail
    state.put_gang(
        replace(
            failures.count_restart(gang, found.cause),
            stop_cause=found.cause,
            stop_final=failures.final_of(reason, required),
            backoff_ms=chance.backoff_ms,
            fail_reason=reason,
            fail_detail=because,
            cause=decided,
        )
    )


def _revise_to_better(step: Step, gang: Gang, found: Finding, why: str) -> None:
    """As logic version 1 did."""
    if gang.stop_cause not in _MISTAKEN or found.cause not in _BETTER:
        return
    if gang.stop_final in _WANTED or gang.fail_reason == FailureReason.DO_NOT_RESTART:
        return
    state = step.state
    number = gang.incident
    decided = step.decide(
        CauseRevised(
            (why, gang.cause),
            number,
            gang.job,
            gang.key,
            found.cause,
            found.subject,
            found.detail,
        )
    )
    incident = state.incidents[str(number)]
    state.incidents.put(
        str(number),
        replace(incident, cause=found.cause, subject=found.subject, detail=found.detail),
    )
    _count_anew(step, gang, gang.stop_cause, replace(found, final=False), decided)
