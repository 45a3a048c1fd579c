"""Gangs: what starts, stops and restarts as one.

| phase | upon | becomes | decision |
| --- | --- | --- | --- |
| waiting | a place for all, back-off over | starting | TasksPlaced |
| starting | TaskStarted of the last task | running | GenerationStarted |
| starting, running | the first evidence against the generation | stopping | TasksStopping |
| starting, running | every task succeeded and reaped | succeeded | GangSucceeded |
| stopping | last task reaped, lost or abandoned; another try | waiting | RestartScheduled |
| stopping | the same; none | stopped | GangStopped |
| waiting | its job ends | stopped | GangStopped |

The first evidence decides; whatever follows from the same crash finds the gang stopping and changes
nothing. An exclusive gang also waits for the fence of lost hosts and for tasks that cannot be
killed.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import failures, fleet
from coord.core.causes import blame, pace
from coord.core.causes.attribution import (
    VAGUE,
    Finding,
    begin_burst,
    conclude,
    revise_cause,
)
from coord.core.ending import gang_ended
from coord.core.incidents import close_incident, incident_stopped, open_incident
from coord.core.queueing import waiting
from coord.core.queueing.yielding import gave_way, hand_over
from coord.core.recovery import standbys
from coord.core.recovery.generations import all_started
from coord.core.recovery.restarting import await_fence, schedule_restart
from coord.core.recovery.scope import companions, goes_on, recovery_in, waiting_for, widest_first
from coord.core.step import Step
from coord.core.stopping import role_of, stop_task
from coord.model.decisions import (
    GangStopped,
    GangSucceeded,
    ScopeStopping,
    TaskAbandoned,
    TasksStopping,
)
from coord.model.entities import (
    NO_BURST,
    FailureCause,
    FailureReason,
    Gang,
    GangPhase,
    Host,
    Task,
    TaskStatus,
)

ACTIVE = (GangPhase.STARTING, GangPhase.RUNNING)
COUNTED = (TaskStatus.PLACED, TaskStatus.RUNNING, TaskStatus.STOPPING, TaskStatus.EXITED)
_GIVEN_WORK = (TaskStatus.PLACED, TaskStatus.RUNNING)


def counts(gang: Gang, task: Task) -> bool:
    """The task is one of `gang.live`. (Told from its row: a gang may have many thousands.)"""
    return task.generation == gang.generation and task.status in COUNTED


def fail_gang(
    step: Step,
    key: str,
    cause: FailureCause,
    subject: str,
    detail: str,
    last_sign_ms: int,
    why: str,
    *,
    grace_ms: int = -1,
) -> None:
    """Evidence against the current generation that leaves no doubt. `grace_ms` caps the role's
    own."""
    found = Finding(cause, subject, detail)
    weigh_against(step, key, found, last_sign_ms, why, grace_ms=grace_ms)


def weigh_against(
    step: Step, key: str, found: Finding, last_sign_ms: int, why: str, *, grace_ms: int = -1
) -> None:
    """Evidence against the current generation. The first stops it; later evidence may still say
    who was to blame (`attribution.py`)."""
    gang = step.state.gangs[key]
    if not goes_on(gang):
        revise_cause(step, gang, found, why)
        return
    cause, subject, detail = found.cause, found.subject, found.detail
    spec = step.state.jobs[gang.job].spec
    required = recovery_in(step.state, gang).required
    gang, opened = open_incident(step, gang, cause, subject, detail, last_sign_ms, why)
    gang = begin_burst(step, gang, found)
    barren = gang.barren
    if gang.step > gang.best_step:
        barren = 0
    elif cause not in failures.FREE_CAUSES:
        barren += 1
    chance = failures.next_try(spec.restart, gang, cause, barren, required=required)
    reason, because = chance.reason, chance.detail
    if found.final:
        reason, because = FailureReason.DO_NOT_RESTART, detail
    gang = replace(
        failures.count_restart(gang, cause),
        barren=barren,
        best_step=max(gang.best_step, gang.step),
        backoff_ms=chance.backoff_ms,
        fail_reason=reason,
        fail_detail=because,
    )
    if not reason:
        gang = _take_along(step, gang, cause, opened, grace_ms)
    _stop_tasks(step, gang, cause, detail, opened, failures.final_of(reason, required), grace_ms)


def _take_along(step: Step, gang: Gang, cause: FailureCause, why: str, grace_ms: int) -> Gang:
    """Stop the others that restart with it; returns the gang as one of them."""
    state = step.state
    others = [state.gangs[key] for key in companions(state, gang)]
    running = [other for other in others if goes_on(other)]
    leaving = [one for one in others if one.phase == GangPhase.STOPPING and not one.stop_final]
    if not running and not leaving:
        return gang
    number = gang.incident
    for other in [*leaving, *waiting_for(state, leaving)]:
        state.put_gang(replace(other, together=number))
    decided = why
    if running:
        scope = recovery_in(state, gang).scope
        keys = tuple(other.key for other in running)
        decided = step.decide(
            ScopeStopping((why,), gang.job, gang.key, gang.generation, scope, keys)
        )
    for other in running:
        taken = replace(
            close_incident(step, other, resolved=False),
            burst=NO_BURST,
            together=number,
            best_step=max(other.best_step, other.step),
            backoff_ms=gang.backoff_ms,
        )
        _stop_tasks(step, taken, cause, f"restarts with {gang.key}", decided, "", grace_ms)
    return replace(gang, together=number)


def end_gang(step: Step, key: str, cause: FailureCause, final: str, why: str) -> None:
    """The gang is not wanted any more. `final` as `Gang.stop_final`; one that somebody wanted
    before stays, one that followed from a failure does not."""
    gang = step.state.gangs[key]
    if gang.phase == GangPhase.WAITING:
        _end(step, replace(gang, stop_final=final, cause=why), why)
    elif gang.phase in ACTIVE:
        _stop_tasks(step, gang, cause, cause.value, why, final, -1)
    elif gang.phase == GangPhase.STOPPING and gang.stop_final in ("", "fail", "give_up"):
        gang = standbys.let_go_all(step, gang, standbys.ENDING, why)
        step.state.put_gang(replace(gang, stop_final=final, holds=()))
        step.scheduling = True


def give_way(step: Step, key: str, by: str, grace_ms: int, why: str) -> None:
    """The gang must leave its place to another one. It restarts once there is room again."""
    gang = step.state.gangs[key]
    # Its queue is not charged with it any more: its place is charged to who gets it.
    gang = standbys.end_with_it(step, gang, by, why)
    step.state.put_gang(replace(gang, yields_to=by, claim=0, holds=()))
    cause, detail = FailureCause.PREEMPTION, f"gives way to {by}"
    fail_gang(step, key, cause, by, detail, step.now_ms, why, grace_ms=grace_ms)


def _stop_tasks(
    step: Step, gang: Gang, cause: FailureCause, reason: str, why: str, final: str, grace_ms: int
) -> None:
    role_grace_ms = role_of(step, gang).grace_ms
    if grace_ms < 0:
        grace_ms = role_grace_ms
    elif not gang.yields_to:  # Whoever gives way to a gang has been promised all of its notice.
        grace_ms = min(grace_ms, role_grace_ms)
    stopping = []
    for key in gang.live:
        task = step.state.tasks[key]
        if task.status in _GIVEN_WORK:
            stopping.append(key)
            stop_task(step, task, TaskStatus.STOPPING, grace_ms)
    decided = step.decide(
        TasksStopping((why,), gang.job, gang.key, gang.generation, cause, reason, tuple(stopping))
    )
    if final and gang.holds:
        step.scheduling = True
    if final:
        gang = standbys.let_go_all(step, gang, standbys.ENDING, decided, grace_ms)
    step.state.put_gang(
        replace(
            gang,
            phase=GangPhase.STOPPING,
            stop_cause=cause,
            stop_final=final,
            cause=decided,
            holds=() if final else gang.holds,
        )
    )
    settle(step, gang.key, why)


def settle(step: Step, key: str, why: str = "") -> None:
    """Has the last task of the generation gone? `why`: what may have taken it, if not the entry."""
    why = why or step.cause
    gang = step.state.gangs.get(key)
    if gang is None or gang.live:
        return
    if gang.awaits_fence:
        await_fence(step, gang, why)
    elif gang.phase in ACTIVE and gang.succeeded == gang.size:
        _end(step, replace(gang, stop_final="succeed"), why)
    elif gang.phase == GangPhase.STOPPING:
        gang = conclude(step, gang, why)
        blame.remember(step, gang, why)
        incident_stopped(step, gang)
        if gang.stop_final:
            _end(step, gang, why)
        else:
            schedule_restart(step, gang, why)


def _end(step: Step, gang: Gang, why: str) -> None:
    gang = standbys.let_go_all(step, gave_way(step, gang), standbys.ENDING, why)
    succeeded = gang.stop_final == "succeed"
    gang = close_incident(step, gang, resolved=succeeded)
    causes = (why, gang.cause) if gang.cause not in ("", why) else (why,)
    if succeeded:
        phase = GangPhase.SUCCEEDED
        decided = step.decide(GangSucceeded(causes, gang.job, gang.key, gang.generation))
    else:
        phase = GangPhase.STOPPED
        decided = step.decide(GangStopped(causes, gang.job, gang.key, gang.generation))
    gang = replace(
        gang,
        phase=phase,
        holds=(),
        live=(),
        cause=decided,
        claim=0,
        victims=(),
        reserving=False,
    )
    step.state.put_gang(gang)
    step.scheduling = True
    gang_ended(step, gang, end_gang)


# What happens to single tasks. Each ends in `settle` or in evidence.


def task_started(step: Step, task: Task, pid: int) -> None:
    """The process exists; with the last one the generation has started."""
    state = step.state
    state.tasks.put(task.key, replace(task, status=TaskStatus.RUNNING, pid=pid))
    if task.standby:
        return
    gang = replace(state.gangs[task.gang], started=state.gangs[task.gang].started + 1)
    if gang.phase == GangPhase.STARTING and gang.started == gang.size:
        gang = all_started(step, gang)
    state.put_gang(gang)


def task_gone(step: Step, task: Task) -> None:
    """Reaped: its place is free, or kept for its gang's restart."""
    state = step.state
    gang = state.gangs.get(task.gang)
    if task.standby:
        standbys.gone(step, task)
        return
    blame.worked(step, task)
    fleet.release(step, task)
    if gang is None:
        step.scheduling = True
        return
    held = len(gang.holds)
    if counts(gang, task):
        gang = _without(gang, task.key)
        if gang.phase in ACTIVE and task.status in _GIVEN_WORK:
            state.put_gang(fleet.hold_place(step, gang, task))
            step.scheduling = True
            found = Finding(FailureCause.UNKNOWN, task.key, "reaped without an exit", VAGUE)
            weigh_against(step, gang.key, found, step.now_ms, step.cause)
            return
        if gang.yields_to:
            hand_over(step, gang, task)
        elif gang.phase == GangPhase.STOPPING and not gang.stop_final:
            gang = fleet.hold_place(step, gang, task)
        state.put_gang(gang)
    if len(gang.holds) == held:
        step.scheduling = True  # Its place is free for everybody.
    _unfence(step, task.key, gang.key)
    settle(step, gang.key)


def tasks_vanished(step: Step, tasks: list[Task], last_seen_ms: int, why: str) -> None:
    """Their host registered anew without them; its row has forgotten them already.

    All rows first, then each gang once.
    """
    state = step.state
    broken: dict[str, str] = {}
    """Gang -> the first of its tasks that should have been there still, or empty."""
    for task in tasks:
        state.tasks.drop(task.key)
        gang = state.gangs.get(task.gang)
        if task.standby:
            standbys.ended(step, task, "gone when its host registered again", why)
            continue
        if gang is None:
            continue
        broken.setdefault(gang.key, "")
        if counts(gang, task):
            state.put_gang(_without(gang, task.key))
            if task.status in _GIVEN_WORK and not broken[gang.key]:
                broken[gang.key] = task.key
        _unfence(step, task.key, gang.key)
    for gang_key in widest_first(step.state, broken):
        if broken[gang_key]:
            detail, cause = "gone when its host registered again", FailureCause.INFRASTRUCTURE
            fail_gang(step, gang_key, cause, broken[gang_key], detail, last_seen_ms, why)
        settle(step, gang_key, why)


def task_fenced(step: Step, task: Task, why: str) -> None:
    """Its lost host has ended it, by contract."""
    _unfence(step, task.key, task.gang)
    settle(step, task.gang, why)


def task_abandoned(step: Step, task: Task) -> None:
    """It cannot be killed: it keeps its devices, its host takes no more, its gang goes on."""
    state = step.state
    cause = step.decide(TaskAbandoned((step.cause,), task.key, task.host))
    fleet.change(step, replace(task, status=TaskStatus.UNKILLABLE))
    fleet.quarantine(step, task.host, f"unkillable task {task.key}", cause)
    if task.standby:
        standbys.ended(step, task, "cannot be killed", cause)
        return
    gang = state.gangs.get(task.gang)
    if gang is None or not counts(gang, task):
        return
    gang = _without(gang, task.key)
    if role_of(step, gang).exclusive:
        gang = replace(gang, awaits_fence=(*gang.awaits_fence, task.key))
    state.put_gang(gang)
    if gang.phase in ACTIVE and not task.succeeded:
        detail, why = "cannot be killed", FailureCause.INFRASTRUCTURE
        fail_gang(step, gang.key, why, task.key, detail, step.now_ms, cause)
    settle(step, gang.key, cause)


def tasks_lost(
    step: Step, hosts: tuple[Host, ...], cause: FailureCause, subject: str, detail: str, why: str
) -> None:
    """Everything on lost hosts. All rows first, then each gang once."""
    state = step.state
    unfinished: dict[str, bool] = {}
    last_seen_ms: dict[str, int] = {}
    for key in [key for host in hosts for key in host.tasks]:
        task = state.tasks[key]
        state.tasks.put(key, replace(task, status=TaskStatus.LOST))
        if task.standby:
            standbys.ended(step, task, detail, why)
            continue
        blame.worked(step, task)
        gang = state.gangs.get(task.gang)
        if gang is None or not counts(gang, task):
            continue
        gang = _without(gang, key)
        if role_of(step, gang).exclusive and not task.succeeded:
            gang = replace(gang, awaits_fence=(*gang.awaits_fence, key))
        state.put_gang(gang)
        unfinished[gang.key] = unfinished.get(gang.key, False) or not task.succeeded
        seen_ms = state.last_seen_ms[state.hosts[task.host].slot]
        last_seen_ms[gang.key] = min(seen_ms, last_seen_ms.get(gang.key, seen_ms))
    for gang_key in widest_first(step.state, unfinished):
        if unfinished[gang_key]:
            fail_gang(step, gang_key, cause, subject, detail, last_seen_ms[gang_key], why)
        settle(step, gang_key, why)


def move_away(
    step: Step, name: str, cause: FailureCause, reason: str, grace_ms: int, why: str
) -> None:
    """Stop every gang with a task on that host. `grace_ms` -1: as its role says."""
    state = step.state
    moved: dict[str, None] = {}
    for key in state.hosts[name].tasks:
        task = state.tasks[key]
        if task.standby and task.status in _GIVEN_WORK:
            standbys.let_go(step, task, f"{name}: {reason}" if reason else name, why, grace_ms)
        elif task.status in _GIVEN_WORK:
            moved[task.gang] = None
        elif task.status == TaskStatus.STOPPING and grace_ms >= 0:
            stop_task(step, task, TaskStatus.STOPPING, grace_ms)
    for gang_key in widest_first(step.state, moved):
        detail = f"{name}: {reason}" if reason else name
        fail_gang(step, gang_key, cause, name, detail, step.now_ms, why, grace_ms=grace_ms)


def look_at(step: Step, key: str) -> None:
    """The gang's alarm went off: back-off over, holds expired, or hung?"""
    state = step.state
    gang = state.gangs.get(key)
    if gang is None:
        return
    if gang.phase == GangPhase.WAITING:
        waiting.look_at(step, gang)
        return
    standbys.look_at(step, gang)
    if gang.phase == GangPhase.RUNNING and gang.progress_ms:
        pace.look_for_hang(step, gang, role_of(step, gang), weigh_against)


def heard_again(step: Step, task: Task) -> None:
    """Its host was silent for a while, and what happened meanwhile is yet to be told: whatever was
    due of the task in that time gets its full time again."""
    state = step.state
    if task.status == TaskStatus.PLACED:
        state.tasks.put(task.key, replace(task, placed_ms=step.now_ms))
    elif task.stop_deadline_ms:
        deadline_ms = max(task.stop_deadline_ms, step.now_ms)
        state.tasks.put(task.key, replace(task, stop_deadline_ms=deadline_ms))
    state.timers.arm("task", task.key, step.now_ms)
    gang = state.gangs.get(task.gang)
    if gang is None or not counts(gang, task) or not gang.progress_ms:
        return
    state.put_gang(replace(gang, progress_ms=max(step.now_ms, 1)))
    state.timers.arm("gang", gang.key, step.now_ms)


def _without(gang: Gang, key: str) -> Gang:
    at = gang.live.index(key)
    return replace(gang, live=(*gang.live[:at], *gang.live[at + 1 :]))


def _unfence(step: Step, key: str, gang_key: str) -> None:
    gang = step.state.gangs.get(gang_key)
    if gang is not None and key in gang.awaits_fence:
        left = tuple(kept for kept in gang.awaits_fence if kept != key)
        step.state.put_gang(replace(gang, awaits_fence=left))
