"""Copies of a state to go on from, and the comparison of two that took different ways.

Two states count as equal when nothing that is still to come can tell them apart: log indexes,
moments that have passed and the names of causes are left out, and moments that are yet to come are
counted from the log time of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from coord.core.state import LIVE_HOST, TABLES, State, Table
from coord.core.timers import Timers
from coord.model.entities import (
    ENDED_GANG,
    Checkpoint,
    Gang,
    GangPhase,
    Host,
    HostStatus,
    Incident,
    Job,
    Task,
    TaskStatus,
)
from coord.model.requests import RequestLog

RowKey = tuple[str, str]
"""Table and key."""

_ENDING = (TaskStatus.STOPPING, TaskStatus.EXITED, TaskStatus.ORPHANED)


def fork(state: State) -> State:
    """A copy that goes its own way from here, timers included. Rows are shared: they are frozen."""
    copy = State.__new__(State)
    copy.meta = replace(state.meta)
    for name in TABLES:
        setattr(copy, name, Table(getattr(state, name)))
    copy.last_seen_ms = state.last_seen_ms.copy()
    copy.slots = state.slots.copy()
    copy.live_incarnations = state.live_incarnations.copy()
    copy.attentive = state.attentive.copy()
    copy.relay_of = state.relay_of.copy()
    copy.waiting = state.waiting.copy()
    copy.claims = state.claims.copy()
    copy.recovering = state.recovering.copy()
    copy.finished = state.finished.copy()
    copy.checkpoints_by_gang = state.checkpoints_by_gang.copy()
    copy.rooms = None if state.rooms is None else state.rooms.copy()
    copy.moved = dict(state.moved)
    copy.replanned = {}
    copy.timers = _fork_timers(state.timers)
    return copy


def _fork_timers(timers: Timers) -> Timers:
    copy = Timers()
    copy._heap = timers._heap.copy()
    copy._due = timers._due.copy()
    return copy


def changed_rows(state: State) -> list[RowKey]:
    """Rows written since the last call."""
    found: list[RowKey] = []
    for name in TABLES:
        table: Table[Any] = getattr(state, name)
        if table.changed:
            found += [(name, key) for key in table.changed]
            table.changed = {}
    return found


def same_row(ours: State, theirs: State, row: RowKey) -> bool:
    """Whether the row is the same in both, as far as the future goes."""
    name, key = row
    one, other = getattr(ours, name).get(key), getattr(theirs, name).get(key)
    if one is other and (ours.meta.now_ms == theirs.meta.now_ms or _stands_still(name, one)):
        return True
    if one is None or other is None:
        return False
    of = _ESSENCES.get(name, _as_it_is)
    return bool(of(ours, one, ours.meta.now_ms) == of(theirs, other, theirs.meta.now_ms))


def essence(state: State, row: RowKey) -> msgspec.Struct:
    """What of a row that is there decides what follows, for states of the same log time."""
    name, key = row
    return _ESSENCES.get(name, _as_it_is)(state, getattr(state, name)[key], 0)


def same_meta(ours: State, theirs: State) -> bool:
    """The same of what stands in no table: the breaker, who is heard, who waits."""
    return meta_essence(ours) == meta_essence(theirs)


def differing(ours: State, theirs: State, rows: Iterable[RowKey]) -> list[RowKey]:
    """Of these rows, those that are not the same."""
    return [row for row in rows if not same_row(ours, theirs, row)]


def _stands_still(name: str, row: Any) -> bool:
    """Nothing in the row is counted from now."""
    return name in ("jobs", "checkpoints", "incidents", "requests") or row is None


def meta_essence(state: State) -> tuple[Any, ...]:
    """What of it decides what follows."""
    meta = state.meta
    now_ms = meta.now_ms
    silent = tuple(
        now_ms - seen_ms if incarnation else 0
        for seen_ms, incarnation in zip(state.last_seen_ms, state.live_incarnations, strict=True)
    )
    allowed_ms = max(meta.evictions_allowed_until_ms - now_ms, -1)
    since_ms = now_ms - meta.settings.breaker_window_ms
    losses = tuple(at_ms - now_ms for at_ms in meta.recent_losses_ms if at_ms > since_ms)
    return (
        meta.cluster,
        meta.settings,
        meta.logic_version,
        meta.frozen,
        allowed_ms,
        losses,
        silent,
        state.slots,
        tuple(sorted(state.waiting)),
    )


def _host(state: State, host: Host, now_ms: int) -> Host:
    lost_at_ms = 0
    if host.status == HostStatus.LOST and not host.fenced:
        lost_at_ms = host.lost_at_ms - now_ms
    deadline_ms = max(host.drain_deadline_ms - now_ms, 1) if host.drain_deadline_ms else 0
    return replace(
        host,
        status_cause="",
        report_seq=0,
        report_index=0,
        plan_version=0,
        lost_at_ms=lost_at_ms,
        drain_deadline_ms=deadline_ms,
        extensions=host.extensions if host.status in LIVE_HOST else 0,
    )


def _task(state: State, task: Task, now_ms: int) -> Task:
    ending = task.status in _ENDING
    return replace(
        task,
        placed_ms=task.placed_ms - now_ms if task.status == TaskStatus.PLACED else 0,
        progress_ms=0,
        stop_deadline_ms=task.stop_deadline_ms - now_ms if ending else 0,
        stop_grace_ms=0,
    )


def _gang(state: State, gang: Gang, now_ms: int) -> Gang:
    waits = gang.phase == GangPhase.WAITING
    hang_ms = 0
    if gang.progress_ms and gang.phase not in ENDED_GANG:
        role = state.jobs[gang.job].spec.role(gang.role)
        hang_ms = gang.progress_ms - now_ms if role is not None and role.hang_ms else 1
    return replace(
        gang,
        cause="",
        queue_detail="",
        submitted=0,
        not_before_ms=max(gang.not_before_ms - now_ms, 0) if waits else 0,
        holds_until_ms=max(gang.holds_until_ms - now_ms, 0) if waits else 0,
        progress_ms=hang_ms,
    )


def _job(state: State, job: Job, now_ms: int) -> Job:
    return replace(job, submitted=0, submitted_ms=0, ended_ms=0, ended=0)


def _checkpoint(state: State, checkpoint: Checkpoint, now_ms: int) -> Checkpoint:
    return replace(checkpoint, committed_at=0)


def _incident(state: State, incident: Incident, now_ms: int) -> Incident:
    """What is measured of it decides nothing: only who pays, and whether it is over."""
    return Incident(
        incident=incident.incident,
        job=incident.job,
        gang=incident.gang,
        generation=incident.generation,
        cause=incident.cause,
        subject="",
        detail="",
        opened=0,
        last_sign_ms=0,
        opened_ms=0,
        closed_ms=0 if incident.closed_ms >= 0 else -1,
    )


def _request_log(state: State, log: RequestLog, now_ms: int) -> RequestLog:
    recent = tuple(replace(request, index=0) for request in log.recent)
    return replace(log, last_used=0, recent=recent)


def _as_it_is(state: State, row: msgspec.Struct, now_ms: int) -> msgspec.Struct:
    """Of tables whose rows nobody has looked into: two orders that leave different rows are taken
    for different, which costs time and hides nothing."""
    return row


_ESSENCES: dict[str, Callable[[State, Any, int], msgspec.Struct]] = {
    "hosts": _host,
    "jobs": _job,
    "gangs": _gang,
    "tasks": _task,
    "checkpoints": _checkpoint,
    "incidents": _incident,
    "requests": _request_log,
}
