"""Hot spares: processes that are up on places kept beside a gang, and wait there for a rank.

A spare place (`spares.py`) becomes a task that is no rank: `Task.standby`, listed in
`Gang.standbys` and not among `Gang.live`. So no generation waits for it, counts it or fails with
it. Its key is its own (a generation number from the job's counter, an index beyond all ranks) and
stays with the process, also when it takes a rank: then its row gets the rank's index and the
gang's generation (`promotion.py`), and from there on it is a task like any other.

| standby          | upon                                            | then            |
| ---------------- | ----------------------------------------------- | --------------- |
| placed, running  | its gang starts again and lacks a rank          | takes that rank |
| placed, running  | it exits, vanishes, is lost, fails to launch    | ended           |
| placed, running  | its host takes no more work; its gang ends,     | let go          |
|                  | gives way, or waits for too long                |                 |
| exited, stopping | TaskReaped                                      | a warm spare    |

Only who is listed can be promoted, and nobody is listed twice or after its end: so none is promoted
twice, or while it dies. The place of one that ended is kept for the next, which is launched at
once; after a second end in one generation with a back-off as for restarts.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet
from coord.core.recovery.scope import recovery_in, role_in
from coord.core.state import State
from coord.core.step import Step
from coord.core.stopping import exit_task, stop_task
from coord.model.entities import Gang, GangPhase, Hold, HostStatus, Task, TaskStatus
from coord.model.events import LaunchFailed, TaskExited, TaskStarted
from coord.model.ids import task_key
from coord.model.place import domain
from coord.model.rejections import Rejection
from coord.model.standby_decisions import StandbyEnded, StandbyPlaced

STANDBYS_SINCE = 2
"""The logic version."""

ENDING = "its gang does not go on"
ACTIVE = (GangPhase.STARTING, GangPhase.RUNNING)
WAITING = (TaskStatus.PLACED, TaskStatus.RUNNING)


def wanted(state: State, gang: Gang) -> int:
    """How many of the places kept beside it are to be hot."""
    if state.meta.logic_version < STANDBYS_SINCE:
        return 0
    return min(recovery_in(state, gang).hot_spares, gang.spares)


# From a place kept to a process that waits


def launch(step: Step) -> None:
    """Place a standby on what gangs that run keep beside them, as many as are to be hot."""
    state = step.state
    sparing = [state.gangs[key] for key in state.recovering.sparing]
    for gang in sorted(sparing, key=lambda gang: (gang.submitted, gang.key)):
        missing = wanted(state, gang) - len(gang.standbys)
        if missing <= 0 or step.now_ms < gang.standby_from_ms:
            continue
        spare = [hold for hold in gang.holds if hold.spare]
        up = [hold for hold in spare if state.hosts[hold.host].status == HostStatus.UP]
        for hold in up[:missing]:
            _launch(step, gang.key, hold)


def _launch(step: Step, key: str, hold: Hold) -> None:
    state = step.state
    gang = state.gangs[key]
    job = state.jobs[gang.job]
    generation = job.generation + 1
    state.put_job(replace(job, generation=generation))
    task = Task(
        key=task_key(gang.job, gang.role, _index(state, gang), generation),
        job=gang.job,
        role=gang.role,
        index=_index(state, gang),
        generation=generation,
        gang=key,
        host=hold.host,
        status=TaskStatus.PLACED,
        placed_ms=step.now_ms,
        devices=hold.devices,
        cpu_millis=hold.cpu_millis,
        memory_mib=hold.memory_mib,
        device_millis=hold.device_millis,
        standby=True,
    )
    at = gang.holds.index(hold)
    holds = (*gang.holds[:at], *gang.holds[at + 1 :])
    state.put_gang(replace(gang, holds=holds, standbys=(*gang.standbys, task.key)))
    fleet.take(step, [task])
    state.timers.arm("task", task.key, step.now_ms + state.meta.settings.launch_timeout_ms)
    causes = (step.cause, gang.cause) if gang.cause != step.cause else (step.cause,)
    step.decide(
        StandbyPlaced(causes, gang.job, key, gang.generation, task.key, task.host, task.devices)
    )


def _index(state: State, gang: Gang) -> int:
    """The least beyond all ranks that none of its standbys has."""
    used = [state.tasks[key].index for key in gang.standbys]
    index = role_in(state, gang).largest
    while index in used:
        index += 1
    return index


# What agents tell of it


def started(step: Step, task: Task, event: TaskStarted) -> Rejection | None:
    """Its process exists."""
    if task.status == TaskStatus.STOPPING:
        return Rejection.TASK_STOPPING
    if task.status != TaskStatus.PLACED:
        return Rejection.NOTHING_TO_DO
    step.state.tasks.put(task.key, replace(task, status=TaskStatus.RUNNING, pid=event.pid))
    return None


def launch_failed(step: Step, task: Task, event: LaunchFailed) -> Rejection | None:
    """It never had a process. Nobody pays for that but its own back-off."""
    if task.status not in (TaskStatus.PLACED, TaskStatus.STOPPING):
        return Rejection.NOTHING_TO_DO
    exit_task(step, task, TaskStatus.EXITED)
    ended(step, task, f"launch failed: {event.error}", step.cause, by_itself=True)
    return None


def exited(step: Step, task: Task, event: TaskExited) -> Rejection | None:
    """Its process ended, with whatever code: a standby has nothing to succeed in."""
    if task.status == TaskStatus.ORPHANED:
        return Rejection.STALE_GENERATION
    if task.status not in (*WAITING, TaskStatus.STOPPING):
        return Rejection.NOTHING_TO_DO
    row = replace(task, exit_code=event.exit_code, exit_signal=event.signal)
    exit_task(step, row, TaskStatus.EXITED)
    how = f"signal {event.signal}" if event.signal else f"exit code {event.exit_code}"
    ended(step, task, how if event.observed else "its end was not seen", step.cause, by_itself=True)
    return None


# Its ends


def ended(step: Step, task: Task, reason: str, why: str, *, by_itself: bool = False) -> None:
    """It is no standby of its gang any more. Nothing to do for one that was let go before."""
    gang = step.state.gangs.get(task.gang)
    if gang is None or task.key not in gang.standbys:
        return
    gang = _unlisted(step, gang, task, reason, why)
    if by_itself:
        ends = gang.standby_ends + 1
        wait_ms = _backoff_ms(step.state, gang, ends)
        from_ms = step.now_ms + wait_ms if wait_ms else 0
        gang = replace(gang, standby_ends=ends, standby_from_ms=from_ms)
        step.state.timers.arm("gang", gang.key, from_ms or step.now_ms)
    step.state.put_gang(gang)
    step.scheduling = True


def _unlisted(step: Step, gang: Gang, task: Task, reason: str, why: str) -> Gang:
    causes = (step.cause, why) if why != step.cause else (step.cause,)
    step.decide(
        StandbyEnded(causes, gang.job, gang.key, gang.generation, task.key, task.host, reason)
    )
    return replace(gang, standbys=tuple(key for key in gang.standbys if key != task.key))


def _backoff_ms(state: State, gang: Gang, ends: int) -> int:
    policy = state.jobs[gang.job].spec.restart
    if ends < 2:
        return 0
    return min(policy.backoff_ms << min(ends - 2, 30), policy.backoff_max_ms)


def let_go(step: Step, task: Task, reason: str, why: str, grace_ms: int = -1) -> None:
    """Tell it to end. `grace_ms` -1: as its role says."""
    gang = step.state.gangs[task.gang]
    step.state.put_gang(_let_go(step, gang, task, reason, why, grace_ms))
    step.scheduling = True


def _let_go(step: Step, gang: Gang, task: Task, reason: str, why: str, grace_ms: int) -> Gang:
    role_ms = role_in(step.state, gang).grace_ms
    stop_task(step, task, TaskStatus.STOPPING, role_ms if grace_ms < 0 else min(grace_ms, role_ms))
    return _unlisted(step, gang, task, reason, why)


def let_go_all(step: Step, gang: Gang, reason: str, why: str, grace_ms: int = -1) -> Gang:
    """Tell all of a gang's to end; returns the gang without them, which the caller stores."""
    for key in gang.standbys:
        gang = _let_go(step, gang, step.state.tasks[key], reason, why, grace_ms)
    return gang


def end_with_it(step: Step, gang: Gang, by: str, why: str) -> Gang:
    """The gang gives way to another one: its standbys are stopped and waited for as tasks of this
    generation are, for whoever gets its places gets theirs, too."""
    state = step.state
    for key in gang.standbys:
        task = state.tasks[key]
        gang = _unlisted(step, gang, task, f"gives way to {by}", why)
        state.tasks.put(key, replace(task, standby=False, generation=gang.generation))
        gang = replace(gang, live=(*gang.live, key))
    return gang


def gone(step: Step, task: Task) -> None:
    """Reaped: its place is kept for the next, while its gang goes on and its host is well."""
    state = step.state
    ended(step, task, "reaped without an exit", step.cause)
    fleet.release(step, task)
    gang = state.gangs.get(task.gang)
    if gang is not None and _keeps_place(step, gang):
        state.put_gang(fleet.hold_place(step, gang, task, spare=True))
    step.scheduling = True


def _keeps_place(step: Step, gang: Gang) -> bool:
    if gang.spares <= sum(hold.spare for hold in gang.holds) + len(gang.standbys):
        return False
    if gang.phase == GangPhase.WAITING:
        return bool(gang.claim) and step.now_ms < gang.holds_until_ms
    stopping = gang.phase == GangPhase.STOPPING and not gang.stop_final and not gang.yields_to
    return stopping or gang.phase in ACTIVE


# When time passes, and when others react


def review(step: Step) -> None:
    """Let go who may not wait any longer. Before anybody is placed."""
    state = step.state
    for key in sorted(state.recovering.standing):
        for task_name in state.gangs[key].standbys:
            task = state.tasks[task_name]
            reason = _objection(step, state.gangs[key], task)
            if reason:
                let_go(step, task, reason, step.cause)


def _objection(step: Step, gang: Gang, task: Task) -> str:
    host = step.state.hosts[task.host]
    if host.drain or host.quarantine:
        return "its host takes no more work"
    if gang.phase == GangPhase.WAITING and step.now_ms >= gang.holds_until_ms:
        return "its gang has waited for too long"
    within = role_in(step.state, gang).placement.within
    if within and gang.phase in ACTIVE:
        first = step.state.hosts[gang.hosts[0]]
        mine = domain(host.place, host.host, within)
        if mine != domain(first.place, first.host, within):
            return f"its gang stands in another {within}"
    return ""


def late(step: Step, task: Task) -> None:
    """It has not started in time."""
    gang = step.state.gangs.get(task.gang)
    if gang is None or task.key not in gang.standbys:
        return
    limit_ms = step.state.meta.settings.launch_timeout_ms
    stop_task(step, task, TaskStatus.STOPPING, role_in(step.state, gang).grace_ms)
    ended(step, task, f"not started within {limit_ms} ms", step.cause, by_itself=True)


def look_at(step: Step, gang: Gang) -> None:
    """The gang's alarm went off: may another standby be launched?"""
    if not gang.standby_from_ms:
        return
    if step.now_ms < gang.standby_from_ms:
        step.state.timers.arm("gang", gang.key, gang.standby_from_ms)
        return
    step.state.put_gang(replace(gang, standby_from_ms=0))
    step.scheduling = True
