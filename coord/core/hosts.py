"""Hosts: registration, heartbeats, suspicion, loss, fencing, drain.

| status  | upon                                   | becomes | decision        |
| ------- | -------------------------------------- | ------- | --------------- |
| (none)  | HostRegistered                         | up      | HostJoined      |
| up      | silent for `suspect_ms`                | suspect | HostSuspected   |
| suspect | a beat of its incarnation counts       | up      | HostCleared     |
| suspect | silent for `lease_ms`, breaker allows  | lost    | HostLost        |
| lost    | `fence_ms` later                       | lost    | HostFenced      |
| any     | HostRegistered, as a new incarnation   | up      | HostJoined      |
| lost, or empty and drained | HostRemovalRequested | removed | HostRemoved    |

Drain and quarantine stand beside the status and outlive a new registration.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import fleet, gangs, rosters, topology
from coord.core.care import drains, maintenance, quarantine, quarantine_course
from coord.core.hearing import clear, hear_of_tasks, is_watched_by_roster, judge_silence, wake
from coord.core.queueing.holes import keep_places_again
from coord.core.state import LIVE_HOST, State
from coord.core.step import Step, on
from coord.core.stopping import orphan_task
from coord.model.decisions import (
    HostFenced,
    HostJoined,
    HostLost,
    HostRemoved,
)
from coord.model.entities import DrainState, FailureCause, Host, HostStatus, Task, TaskStatus
from coord.model.events import (
    DrainRequested,
    HeartbeatsSeen,
    HostRegistered,
    HostRemovalRequested,
    PreemptionNoticed,
    TaskFound,
    UndrainRequested,
)
from coord.model.rejections import Rejection
from coord.model.settings import LONGEST_MS

DEVICES_LIMIT = 4_096
"""Of one host. Free ones are listed by number, so there must not be absurdly many."""

EXTENSIONS_LIMIT = 5
"""Elections in a row after which a silent host's lease is not stretched any more."""


@on(HostRegistered)
def _registered(step: Step, event: HostRegistered) -> Rejection | None:
    state = step.state
    known = state.hosts.get(event.host)
    if not event.host or not event.agent or "/" in event.host:
        return Rejection.INVALID
    if min(event.devices, event.cpu_millis, event.memory_mib) < 0:
        return Rejection.INVALID
    if event.devices > DEVICES_LIMIT or not all(0 < port < 65_536 for port in event.ports):
        return Rejection.INVALID
    if not topology.is_placed_right(event.place, event.rails):
        return Rejection.INVALID
    if known and known.status in LIVE_HOST and known.agent != event.agent:
        return Rejection.HOST_ID_IN_USE
    slot = known.slot if known else len(state.slots)
    if known is None:
        state.slots.append(event.host)
        state.live_incarnations.append(0)
        state.last_seen_ms.append(0)
    host = _host_of(event, known, slot, step.entry.index, step.cause)
    found = {task.task: task for task in event.tasks}
    same_boot = known is not None and known.boot == event.boot
    kept, vanished = _sort_out(state, known, found if same_boot else {}, event.devices)
    host = replace(host, tasks=tuple(kept))
    host = topology.placed(state, host, host.announced)
    last_seen_ms = state.last_seen_ms[slot]
    state.last_seen_ms[slot] = step.now_ms
    state.put_host(host)
    if known and _offers_less(host, known):
        fleet.drop_holds(step, host.host)
    adopted = tuple(
        key for key in kept if state.tasks[key].status in (TaskStatus.PLACED, TaskStatus.RUNNING)
    )
    step.result = host.incarnation
    cause = step.decide(HostJoined((step.cause,), host.host, slot, host.incarnation, adopted))
    rosters.cut(step, (slot,), cause)
    for key in kept:
        _resume(step, state.tasks[key], found.get(key))
    gangs.tasks_vanished(step, vanished, last_seen_ms, cause)
    fleet.look_if_drained(step, host.host)
    quarantine.withhold(step, host.host)
    quarantine_course.registered(step, host.host)
    keep_places_again(step, host.host)
    hear_of_tasks(step, host)
    if known is not None and known.boot != host.boot:
        maintenance.booted(step, host.host)
    wake(state, host)
    step.scheduling = True
    return None


def _host_of(event: HostRegistered, known: Host | None, slot: int, index: int, cause: str) -> Host:
    rebooted = known is not None and known.boot != event.boot
    # An operator's drain lasts until the operator ends it; a preemption is over with the next boot.
    drained = known is not None and (known.drain_requested or not rebooted)
    return Host(
        host=event.host,
        slot=slot,
        incarnation=known.incarnation + 1 if known else 1,
        status=HostStatus.UP,
        agent=event.agent,
        boot=event.boot,
        address=event.address,
        devices=event.devices,
        cpu_millis=event.cpu_millis,
        memory_mib=event.memory_mib,
        device_type=event.device_type,
        labels=event.labels,
        ports=event.ports,
        version=event.version,
        drain=known.drain if known and drained else DrainState.NONE,
        drain_deadline_ms=known.drain_deadline_ms if known and not rebooted else 0,
        drain_requested=known.drain_requested if known else False,
        quarantine=known.quarantine if known else "",
        move_by_ms=known.move_by_ms if known and drained else 0,
        move_reason=known.move_reason if known and drained else "",
        move_cause=known.move_cause if known and drained else "",
        probation=known.probation if known else 0,
        test=known.test if known else 0,
        withheld=known.withheld if known else "",
        status_cause=cause,
        plan_version=index,
        next_port=known.next_port if known else 0,
        announced=topology.announced(event.host, event.place, event.rails),
    )


def _offers_less(host: Host, before: Host) -> bool:
    """A place kept there may not exist any more."""
    return (
        host.devices < before.devices
        or host.cpu_millis < before.cpu_millis
        or host.memory_mib < before.memory_mib
    )


def _sort_out(
    state: State, known: Host | None, found: dict[str, TaskFound], devices: int
) -> tuple[list[str], list[Task]]:
    """(keys the host still has, tasks that are gone), of what the state believed to be there."""
    kept: list[str] = []
    vanished: list[Task] = []
    for key in known.tasks if known else ():
        task = state.tasks[key]
        yet_to_start = task.status == TaskStatus.PLACED and max(task.devices, default=-1) < devices
        if key in found or yet_to_start:
            kept.append(key)
        else:
            vanished.append(task)
    return kept, vanished


def _resume(step: Step, task: Task, found: TaskFound | None) -> None:
    """A task goes on under the new incarnation, or is an orphan if it was given up meanwhile."""
    if task.status == TaskStatus.LOST:
        orphan_task(step, task)
    elif task.status == TaskStatus.PLACED and found is not None and found.pid:
        gangs.task_started(step, task, found.pid)


@on(HeartbeatsSeen)
def _heard(step: Step, event: HeartbeatsSeen) -> Rejection | None:
    """`Recorded.result` is how many of the beats counted."""
    state = step.state
    live = state.live_incarnations
    seen = state.last_seen_ms
    relay_of = state.relay_of
    now_ms = step.now_ms
    if len(event.slots) != len(event.incarnations):
        return Rejection.INVALID
    count = len(live)
    counted = 0
    straight = []
    """Of hosts that stand in a roster: they are with their relay no more."""
    for slot, incarnation in zip(event.slots, event.incarnations, strict=True):
        if 0 <= slot < count and live[slot] == incarnation and incarnation:
            seen[slot] = max(seen[slot], now_ms)
            counted += 1
            if slot in relay_of:
                straight.append(slot)
            if slot in state.attentive:
                clear(step, state.hosts[state.slots[slot]])
    rosters.cut(step, straight)
    step.result = counted
    return None


def renew_leases(step: Step) -> None:
    """After an election: the full term for whoever was heard under the leader before; a moment for
    whoever was not, and nothing more after a few elections, so that no dead host lives for ever."""
    state = step.state
    settings = state.meta.settings
    spread_ms = max(settings.heartbeat_ms, 1)
    for name in state.slots:
        host = state.hosts[name]
        if host.status not in LIVE_HOST or host.extensions > EXTENSIONS_LIMIT:
            continue
        if host.extensions == 0:
            renewed_ms = step.now_ms + host.slot * 61 % spread_ms
        else:
            renewed_ms = step.now_ms - settings.lease_ms + 2 * settings.heartbeat_ms
        state.last_seen_ms[host.slot] = max(state.last_seen_ms[host.slot], renewed_ms)
        state.put_host(replace(host, extensions=host.extensions + 1))
        wake(state, host)


def look_at(step: Step, name: str) -> None:
    """The host's alarm went off: how long has it been silent?"""
    state = step.state
    host = state.hosts[name]
    if host.status == HostStatus.LOST and not host.fenced:
        _look_at_fence(step, host)
    elif host.status in LIVE_HOST and not is_watched_by_roster(state, host):
        judge_silence(step, host)


def _look_at_fence(step: Step, host: Host) -> None:
    due_ms = host.lost_at_ms + step.state.meta.settings.fence_ms
    if step.now_ms < due_ms:
        step.state.timers.arm("host", host.host, due_ms)
        return
    cause = step.decide(HostFenced((step.cause, host.status_cause), host.host))
    step.state.put_host(replace(host, fenced=True))
    for key in host.tasks:
        gangs.task_fenced(step, step.state.tasks[key], cause)


def lose(step: Step, name: str) -> None:
    """The verdict. Everything the host had is given up, before any gang reacts."""
    host = _declare_lost(step, name)
    rosters.cut(step, (host.slot,), host.status_cause)
    fleet.drop_holds(step, name)
    why = FailureCause.PREEMPTION if host.drain_deadline_ms else FailureCause.INFRASTRUCTURE
    gangs.tasks_lost(step, (host,), why, name, "host lost", host.status_cause)


def lose_together(step: Step, names: tuple[str, ...], subject: str, cause: str) -> None:
    """The verdict on all silent hosts of a domain: each gang on them breaks once."""
    lost = tuple(_declare_lost(step, name, cause) for name in names)
    rosters.cut(step, [host.slot for host in lost], cause)
    fleet.drop_holds(step, *names)
    detail = f"lost with {len(names)} hosts of {subject}"
    gangs.tasks_lost(step, lost, FailureCause.INFRASTRUCTURE, subject, detail, cause)


def _declare_lost(step: Step, name: str, *causes: str) -> Host:
    state = step.state
    host = state.hosts[name]
    silent_ms = step.now_ms - state.last_seen_ms[host.slot]
    cause = step.decide(
        HostLost((step.cause, host.status_cause, *causes), name, host.incarnation, silent_ms)
    )
    host = replace(
        host,
        status=HostStatus.LOST,
        lost_at_ms=step.now_ms,
        status_cause=cause,
        plan_version=step.entry.index,
    )
    state.put_host(host)
    state.timers.arm("host", name, step.now_ms + state.meta.settings.fence_ms)
    step.scheduling = True
    return host


@on(PreemptionNoticed)
def _preempted(step: Step, event: PreemptionNoticed) -> Rejection | None:
    host = step.state.hosts.get(event.host)
    if not 0 <= event.grace_ms <= LONGEST_MS:
        return Rejection.INVALID
    if host is None:
        return Rejection.UNKNOWN_HOST
    if event.incarnation != host.incarnation:
        return Rejection.STALE_INCARNATION
    if host.status not in LIVE_HOST:
        return Rejection.HOST_NOT_LIVE
    # Never 0, which stands for "none".
    deadline_ms = max(step.now_ms + event.grace_ms, 1)
    if host.drain_deadline_ms and deadline_ms >= host.drain_deadline_ms:
        return Rejection.NOTHING_TO_DO
    why = FailureCause.PREEMPTION
    drains.empty(step, host, deadline_ms, why, event.reason, step.cause)
    return None


@on(DrainRequested)
def _drain_requested(step: Step, event: DrainRequested) -> Rejection | None:
    host = step.state.hosts.get(event.host)
    if not 0 <= event.within_ms <= LONGEST_MS:
        return Rejection.INVALID
    if host is None or host.status == HostStatus.REMOVED:
        return Rejection.UNKNOWN_HOST
    by_ms = step.now_ms + event.within_ms if event.within_ms else 0
    if host.drain_requested and not (host.move_by_ms and by_ms < host.move_by_ms):
        return Rejection.NOTHING_TO_DO
    drains.drain(step, host.host, by_ms, event.reason, step.cause)
    return None


@on(UndrainRequested)
def _undrain_requested(step: Step, event: UndrainRequested) -> Rejection | None:
    host = step.state.hosts.get(event.host)
    if host is None or host.status == HostStatus.REMOVED:
        return Rejection.UNKNOWN_HOST
    if not host.drain and not host.quarantine:
        return Rejection.NOTHING_TO_DO
    drains.undrain(step, host, step.cause)
    maintenance.undrained(step, host.host)
    return None


@on(HostRemovalRequested)
def _removal_requested(step: Step, event: HostRemovalRequested) -> Rejection | None:
    state = step.state
    host = state.hosts.get(event.host)
    if host is None or host.status == HostStatus.REMOVED:
        return Rejection.UNKNOWN_HOST
    if host.status != HostStatus.LOST and (host.tasks or not host.drain):
        return Rejection.HOST_BUSY
    cause = step.decide(HostRemoved((step.cause,), host.host))
    rosters.cut(step, (host.slot,), cause)
    # Whoever removes a lost host vouches for its end, as a fence does.
    for key in host.tasks:
        task = state.tasks[key]
        gangs.task_fenced(step, task, cause)
        state.tasks.drop(key)
    state.put_host(
        replace(
            host,
            status=HostStatus.REMOVED,
            tasks=(),
            drain=DrainState.NONE,
            drain_deadline_ms=0,
            drain_requested=False,
            quarantine="",
            move_by_ms=0,
            move_reason="",
            move_cause="",
            probation=0,
            test=0,
            withheld="",
            status_cause=cause,
            plan_version=step.entry.index,
        )
    )
    fleet.drop_holds(step, host.host)
    quarantine_course.removed(step, host.host)
    maintenance.removed(step, host.host)
    step.scheduling = True
    return None
