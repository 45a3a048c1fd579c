"""What must hold in every execution, beside the invariants of the core.

The invariants look at one state. The properties here look at what was decided over time, and at
what the simulated processes know to be true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from coord.core.state import State
from coord.model.decisions import (
    CauseRevised,
    CheckpointCommitted,
    HangDetected,
    HostCleared,
    HostJoined,
    HostLost,
    HostSuspected,
    IncidentOpened,
    JobCancelled,
    JobCompleted,
    JobFailed,
    RestartScheduled,
    TasksPlaced,
)
from coord.model.entities import (
    FailureCause,
    Gang,
    GangPhase,
    Hold,
    Host,
    HostStatus,
    QueueReason,
    Task,
    TaskStatus,
)
from coord.model.entry import Recorded
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    JobSubmitted,
    LeaderElected,
    ShardSaved,
)
from coord_sim.core_world.restore_points import SENTENCE, RestorePoints, restore_points_of

from .fork import RowKey

NOTHING_CHANGED = "what is refused or repeated changes nothing"
DECIDED_ONCE = "no request is decided twice"
ONE_RESTART = "one failure makes one restart"
CURRENT_COMMITS = "an old generation commits nothing"
ONE_GENERATION = "every shard of a committed checkpoint is of one generation"
COMMITS_GROW = "each commit is of a later step than those before"
RESTORES_GROW = SENTENCE
GENERATIONS_GROW = "generations only grow"
INCARNATIONS_GROW = "incarnations only grow"
FINISHED_STAYS = "a finished job stays finished"
TRUE_SILENCE = "only a host that was silent for its lease is lost"
CHARGED_ONCE = "each failure is charged once, and to whom it is due"
HOST_TO_BLAME = "the loss of a host is not charged to the user"
TERMS_GROW = "terms only grow"
VERDICTS_IN_TERM = "deadlines are judged in the term whose leader is recorded"
IN_SIGHT = "time out of sight counts against no task"
TIME_FORWARD = "log time goes forward, and by no more than a step"
MASS_SILENCE = "no host is declared lost while much of the fleet is silent"
DEVICE_OWNER = "a device has one live owner"
EXCLUSIVE_ONCE = "an exclusive task runs once"
RESTORED_SAME = "a server restored from a snapshot decides as the others do"
NEVER_RAISES = "applying an event never raises"
IN_THE_END = "what fits is running or finished once all has healed"
AS_STATED = "what runs is what the state says"

HISTORY_PROPERTIES = (
    NOTHING_CHANGED, DECIDED_ONCE, ONE_RESTART, CURRENT_COMMITS, ONE_GENERATION, COMMITS_GROW,
    RESTORES_GROW, GENERATIONS_GROW, INCARNATIONS_GROW, FINISHED_STAYS, TRUE_SILENCE, CHARGED_ONCE,
    HOST_TO_BLAME, TERMS_GROW, VERDICTS_IN_TERM, IN_SIGHT, TIME_FORWARD, MASS_SILENCE, DEVICE_OWNER,
    EXCLUSIVE_ONCE, RESTORED_SAME, NEVER_RAISES, IN_THE_END, AS_STATED,
)  # fmt: skip

Value = TypeVar("Value")

Broken = tuple[str, str]
"""Sentence and detail."""

Outcome = tuple["Memory", Broken | None]
"""What is remembered now, and what was broken."""


class Memory(msgspec.Struct, frozen=True):
    """What was decided so far. Its dicts are never changed in place."""

    ended: dict[str, str] = {}
    """Job -> the decision that ended it."""
    generations: dict[str, int] = {}
    """Job -> the newest generation placed."""
    restore_points: RestorePoints = RestorePoints()
    incarnations: dict[str, int] = {}
    failed: dict[str, int] = {}
    """Gang -> the newest generation that an incident ended."""
    restarted: dict[str, int] = {}
    """Gang -> the newest generation that was followed by a restart."""
    cleared: dict[str, int] = {}
    """Host -> when it was heard again after it was suspected."""
    term: int = 0


class Sight(msgspec.Struct, frozen=True):
    """What was true when an entry was applied, as far as a judgement needs it."""

    host_before: Host | None = None
    """The row of the host that reports."""
    silent_ms: dict[str, int] = {}
    """Of hosts that this entry declared lost: since when none of their beats was taken."""
    slack_ms: int = 0
    """How much of that may be due to jumps of the leader's clock."""
    now_ms: int = 0
    """Log time before it."""


def memory_of(state: State) -> Memory:
    """Of a state that an incident begins with."""
    gangs = state.gangs.values()
    return Memory(
        generations={name: job.generation for name, job in state.jobs.items()},
        restore_points=restore_points_of(state),
        incarnations={name: host.incarnation for name, host in state.hosts.items()},
        restarted={gang.key: gang.generation - (gang.phase != GangPhase.WAITING) for gang in gangs},
        term=state.meta.term,
    )


def judge(
    memory: Memory, state: State, record: Recorded, changed: list[RowKey], sight: Sight
) -> Outcome:
    """(what is remembered now, the first property that this entry broke)."""
    passed_ms = record.now_ms - sight.now_ms
    most_ms = state.meta.settings.max_step_ms
    if not 0 <= passed_ms <= most_ms and not isinstance(record.entry.event, ClusterConfigured):
        return memory, (TIME_FORWARD, f"from {sight.now_ms} ms to {record.now_ms} ms")
    if record.rejection or record.duplicate_of:
        return memory, _refused(state, record, changed, sight)
    memory, broken = _taken(memory, state, record)
    if broken is not None:
        return memory, broken
    for decision in record.decisions:
        points, wrong = memory.restore_points.after(decision)
        if wrong:
            return memory, (RESTORES_GROW, wrong)
        if points is not memory.restore_points:
            memory = replace(memory, restore_points=points)
        look = _LOOKS.get(type(decision))
        if look is None:
            continue
        memory, broken = look(memory, state, record, decision, sight)
        if broken is not None:
            return memory, broken
    return memory, None


def _taken(memory: Memory, state: State, record: Recorded) -> Outcome:
    """What an event alone tells that counts, whatever was decided upon it."""
    event = record.entry.event
    if isinstance(event, JobSubmitted):
        memory = _forget_job(memory, event.spec.name)
    elif isinstance(event, LeaderElected):
        if event.term <= memory.term:
            return memory, (TERMS_GROW, f"{event.term} after {memory.term}")
        memory = replace(memory, term=event.term)
    elif isinstance(event, ShardSaved):
        stale = _of_old_generation(state, event)
        return memory, (CURRENT_COMMITS, stale) if stale else None
    elif isinstance(event, ClockAdvanced) and record.entry.term != memory.term:
        return memory, (VERDICTS_IN_TERM, f"by a leader of {record.entry.term} in {memory.term}")
    return memory, None


def _refused(state: State, record: Recorded, changed: list[RowKey], sight: Sight) -> Broken | None:
    entry = record.entry
    what = f"entry {entry.index}, {type(entry.event).__name__}"
    if record.decisions:
        return NOTHING_CHANGED, f"{what}, decided {type(record.decisions[0]).__name__}"
    for table, key in changed:
        if table == "requests":
            continue
        before, after = sight.host_before, state.hosts.get(key)
        if table != "hosts" or before is None or after is None or before.host != key:
            return NOTHING_CHANGED, f"{what}, changed {key} in {table}"
        counted = replace(before, report_seq=after.report_seq, report_index=after.report_index)
        if counted != after:
            return NOTHING_CHANGED, f"{what}, changed {key} in {table}"
    return None


def _forget_job(memory: Memory, job: str) -> Memory:
    """A new job may have the name of one that ended and was forgotten."""
    return Memory(
        _without(memory.ended, job),
        _without(memory.generations, job),
        memory.restore_points.without(job),
        memory.incarnations,
        _without(memory.failed, job),
        _without(memory.restarted, job),
        memory.cleared,
        memory.term,
    )


def _without(kept: dict[str, Value], job: str) -> dict[str, Value]:
    prefix = f"{job}/"
    return {key: value for key, value in kept.items() if key != job and not key.startswith(prefix)}


def _joined(
    memory: Memory, state: State, record: Recorded, decision: HostJoined, sight: Sight
) -> Outcome:
    known = memory.incarnations.get(decision.host, 0)
    if decision.incarnation <= known:
        return memory, (INCARNATIONS_GROW, f"{decision.host}: {decision.incarnation} after {known}")
    incarnations = {**memory.incarnations, decision.host: decision.incarnation}
    return replace(memory, incarnations=incarnations), None


def _placed(
    memory: Memory, state: State, record: Recorded, decision: TasksPlaced, sight: Sight
) -> Outcome:
    known = memory.generations.get(decision.job, 0)
    if decision.generation <= known:
        return memory, (GENERATIONS_GROW, f"{decision.gang}: {decision.generation} after {known}")
    generations = {**memory.generations, decision.job: decision.generation}
    return replace(memory, generations=generations), None


def _committed(
    memory: Memory, state: State, record: Recorded, decision: CheckpointCommitted, sight: Sight
) -> Outcome:
    gang = state.gangs.get(decision.gang)
    task: str = getattr(record.entry.event, "task", "")
    generation = task.rpartition("#")[2]
    current = gang.generation if gang is not None else 0
    if decision.generation != current or generation != str(current):
        detail = f"{decision.gang}, at {current}: step {decision.step} by {task}"
        return memory, (CURRENT_COMMITS, detail)
    for key in state.checkpoints_by_gang.get(decision.gang, ()):
        saved = state.checkpoints[key]
        if not saved.committed or saved.set_aside:
            continue
        # The row keeps whose save it was when it began.
        this = saved.step == decision.step and saved.committed_at == record.entry.index
        if this and saved.generation != current:
            detail = f"{key}, begun by generation {saved.generation}, committed by {current}"
            return memory, (ONE_GENERATION, detail)
        if not this and saved.step >= decision.step:
            return memory, (COMMITS_GROW, f"{decision.gang}: step {decision.step} after {key}")
    return memory, None


_GIVEN_UP = (TaskStatus.ORPHANED, TaskStatus.UNKILLABLE, TaskStatus.LOST)


def _of_old_generation(state: State, event: ShardSaved) -> str:
    """What is wrong with a shard that was taken; empty where nothing is."""
    task = state.tasks.get(event.task)
    gang = state.gangs.get(task.gang) if task is not None else None
    if task is None or gang is None:
        return f"{event.task}, which nobody knows, at step {event.step}"
    if task.generation != gang.generation or task.status in _GIVEN_UP:
        where = f"while {gang.key} is at generation {gang.generation}"
        return f"{event.task}, {task.status}, saved step {event.step} {where}"
    return ""


def _ended(
    memory: Memory,
    state: State,
    record: Recorded,
    decision: JobCompleted | JobFailed | JobCancelled,
    sight: Sight,
) -> Outcome:
    name = type(decision).__name__
    if decision.job in memory.ended:
        return memory, (FINISHED_STAYS, f"{decision.job}: {memory.ended[decision.job]}, {name}")
    return replace(memory, ended={**memory.ended, decision.job: name}), None


def _opened(
    memory: Memory, state: State, record: Recorded, decision: IncidentOpened, sight: Sight
) -> Outcome:
    gang, generation = decision.gang, decision.generation
    if memory.failed.get(gang, -1) >= generation:
        return memory, (ONE_RESTART, f"{gang}: generation {generation} failed twice")
    if decision.cause == FailureCause.USER and any(
        isinstance(other, HostLost) for other in record.decisions
    ):
        return memory, (HOST_TO_BLAME, f"{gang}: {decision.detail}")
    memory = replace(memory, failed={**memory.failed, gang: generation})
    late = _timed_out(memory, state, record, decision)
    return memory, (IN_SIGHT, late) if late else _charged(state, gang)


def _timed_out(memory: Memory, state: State, record: Recorded, decision: IncidentOpened) -> str:
    """The task that is said to be late, if it could not be heard for some of that time."""
    task = state.tasks.get(decision.subject)
    if not isinstance(record.entry.event, ClockAdvanced) or task is None:
        return ""
    if any(isinstance(other, HostLost | HangDetected) for other in record.decisions):
        return ""
    launch_ms = state.meta.settings.launch_timeout_ms
    return _unseen(memory, state, record, task, launch_ms)


def _hung(
    memory: Memory, state: State, record: Recorded, decision: HangDetected, sight: Sight
) -> Outcome:
    gang = state.gangs.get(decision.gang)
    role = state.jobs[gang.job].spec.role(gang.role) if gang is not None else None
    if role is None:
        return memory, None
    for task in state.tasks.values():
        current = task.gang == decision.gang and task.generation == decision.generation
        if current and task.status == TaskStatus.STOPPING:
            unseen = _unseen(memory, state, record, task, role.hang_ms)
            if unseen:
                return memory, (IN_SIGHT, unseen)
    return memory, None


def _unseen(memory: Memory, state: State, record: Recorded, task: Task, allowed_ms: int) -> str:
    host = state.hosts[task.host]
    now = [other.host for other in record.decisions if isinstance(other, HostSuspected)]
    if host.status == HostStatus.SUSPECT and host.host not in now:
        return f"{task.key} on {task.host}, which is silent"
    cleared_ms = memory.cleared.get(task.host)
    if cleared_ms is not None and record.now_ms - cleared_ms < allowed_ms:
        ago_ms = record.now_ms - cleared_ms
        return f"{task.key} on {task.host}, which was heard again {ago_ms} ms before"
    return ""


def _cleared(
    memory: Memory, state: State, record: Recorded, decision: HostCleared, sight: Sight
) -> Outcome:
    return replace(memory, cleared={**memory.cleared, decision.host: record.now_ms}), None


def _revised(
    memory: Memory, state: State, record: Recorded, decision: CauseRevised, sight: Sight
) -> Outcome:
    return memory, _charged(state, decision.gang)


def _charged(state: State, name: str) -> Broken | None:
    """No account of a gang shows more than there were incidents of its cause."""
    gang = state.gangs.get(name)
    if gang is None:
        return None
    rows = [incident for incident in state.incidents.values() if incident.gang == name]
    for cause, charged in _accounts(gang):
        had = sum(1 for incident in rows if incident.cause == cause)
        if charged > had:
            return CHARGED_ONCE, f"{name}: {charged} restarts for {cause}, {had} incidents"
    return None


def _accounts(gang: Gang) -> Iterator[tuple[FailureCause, int]]:
    yield FailureCause.USER, gang.restarts_user
    yield FailureCause.INFRASTRUCTURE, gang.restarts_infrastructure
    yield FailureCause.PREEMPTION, gang.restarts_preemption
    yield FailureCause.UNKNOWN, gang.restarts_unknown


def _restarted(
    memory: Memory, state: State, record: Recorded, decision: RestartScheduled, sight: Sight
) -> Outcome:
    gang, generation = decision.gang, decision.generation
    if memory.restarted.get(gang, -1) >= generation:
        return memory, (ONE_RESTART, f"{gang}: generation {generation} was followed twice")
    return replace(memory, restarted={**memory.restarted, gang: generation}), None


def _lost(
    memory: Memory, state: State, record: Recorded, decision: HostLost, sight: Sight
) -> Outcome:
    lease_ms = state.meta.settings.lease_ms
    silent_ms = sight.silent_ms.get(decision.host, lease_ms)
    if silent_ms + sight.slack_ms < lease_ms:
        detail = f"{decision.host} was heard {silent_ms} ms before, its lease is {lease_ms} ms"
        return memory, (TRUE_SILENCE, detail)
    return memory, _at_once(state, record)


def _at_once(state: State, record: Recorded) -> Broken | None:
    """So many declared lost together as make it likelier that nobody could be heard."""
    meta = state.meta
    lost = sum(1 for decision in record.decisions if isinstance(decision, HostLost))
    fleet = lost + sum(1 for incarnation in state.live_incarnations if incarnation)
    many = lost * 1_000 > meta.settings.breaker_share_permille * fleet
    allowed = record.now_ms <= meta.evictions_allowed_until_ms
    if lost < max(meta.settings.breaker_min_hosts, 1) or not many or allowed:
        return None
    return MASS_SILENCE, f"{lost} of {fleet} hosts"


_LOOKS: dict[type, Callable[..., Outcome]] = {
    HostJoined: _joined,
    TasksPlaced: _placed,
    CheckpointCommitted: _committed,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    IncidentOpened: _opened,
    CauseRevised: _revised,
    RestartScheduled: _restarted,
    HostLost: _lost,
    HostCleared: _cleared,
    HangDetected: _hung,
}


def unmet(state: State) -> str:
    """Why a gang is not where it should be although all is calm; empty when none is."""
    for name, gang in sorted(state.gangs.items()):
        if gang.phase in (GangPhase.STARTING, GangPhase.STOPPING):
            awaited = f", awaiting {', '.join(gang.awaits_fence)}" if gang.awaits_fence else ""
            return f"{name} is {gang.phase}{awaited}"
        if gang.phase == GangPhase.WAITING and _fits(state, gang):
            return f"{name} is waiting, {gang.queue_reason}: {gang.queue_detail}"
    return ""


def _fits(state: State, gang: Gang) -> bool:
    """Whether the free part of the fleet has room for it, whoever else waits."""
    if gang.queue_reason == QueueReason.BACKOFF:
        return gang.not_before_ms + state.meta.settings.max_step_ms <= state.meta.now_ms
    role = state.jobs[gang.job].spec.role(gang.role)
    assert role is not None, f"gang {gang.key} of a role its job does not have"
    need, wanted = role.resources, min(role.smallest, gang.desired) if role.gang else 1
    room = 0
    for host in state.hosts.values():
        if host.status == "up" and not host.drain and not host.quarantine:
            room += _replicas(state, host, gang.key, need.devices, need.cpu_millis, need.memory_mib)
    return room >= wanted


def _replicas(
    state: State, host: Host, gang: str, devices: int, cpu_millis: int, memory_mib: int
) -> int:
    """How many replicas fit beside what runs there and what others hold."""
    tasks = [state.tasks[key] for key in host.tasks]
    holds = [
        hold
        for other in state.gangs.values()
        if other.key != gang
        for hold in other.holds
        if hold.host == host.host
    ]
    taken: tuple[Task | Hold, ...] = (*tasks, *holds)
    fits = [1_000_000]
    if devices:
        left = host.devices - sum(len(taker.devices) for taker in taken)
        fits.append(left // devices)
    if cpu_millis:
        fits.append((host.cpu_millis - sum(taker.cpu_millis for taker in taken)) // cpu_millis)
    if memory_mib:
        fits.append((host.memory_mib - sum(taker.memory_mib for taker in taken)) // memory_mib)
    return max(min(fits), 0)
