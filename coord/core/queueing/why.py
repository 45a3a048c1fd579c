"""What a waiting gang's queue has to do with it: quota, turn, room kept, victims, full size."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.placement import Rooms, explain_job, place, rooms_of
from coord.core.queueing.backfill import counted, keep_from_others
from coord.core.queueing.claims import each_of
from coord.core.queueing.queues import QUEUES_SINCE
from coord.core.queueing.shares import NO_LIMIT, Shares, free_in, narrowed
from coord.core.queueing.turns import turns_now
from coord.core.queueing.waiting import shrinks_at_ms, smallest_now, smallest_of
from coord.core.recovery.scope import role_in
from coord.core.state import State
from coord.model.entities import Gang, GangPhase, Job, QueueReason
from coord.model.spec import RoleSpec
from coord.model.why import JobWhy, Leaving, QueueWhy

BEFORE = 8
"""Of those whose turn is earlier, so many are named."""
NOT_YET = (QueueReason.BACKOFF, QueueReason.TOGETHER, QueueReason.AFTER)
"""Who waits for one of these has no turn."""


def why_job(state: State, job: Job) -> JobWhy:
    """`explain_job`, and of each gang that waits what its queue says. The state is read only."""
    found = explain_job(state, job)
    gangs = [
        replace(one, queue=why_queued(state, state.gangs[one.gang]))
        if one.phase == GangPhase.WAITING and one.sieves
        else one
        for one in found.gangs
    ]
    return replace(found, gangs=tuple(gangs))


def why_queued(state: State, gang: Gang) -> QueueWhy | None:
    """As things are now, while the reason in the gang's row is of when it began; None by rules that
    know no queues."""
    if state.meta.logic_version < QUEUES_SINCE:
        return None
    shares, rooms = Shares(state), rooms_of(state)
    role, smallest = role_in(state, gang), smallest_now(state, gang, state.meta.now_ms)
    spec = shares.spec(state.jobs[gang.job].spec.queue)
    grant = shares.grant(gang, smallest, free_in(rooms))
    granted = narrowed(role, rooms, grant)
    over = not grant.replicas or granted is None
    before = _before(state, gang)
    whole_for_ms = max(shrinks_at_ms(state, gang) - state.meta.now_ms, 0)
    return QueueWhy(
        spec.name,
        smallest * each_of(role.resources),
        shares.use.get(spec.name, 0),
        spec.quota,
        spec.borrowing_limit,
        -1 if grant.left >= NO_LIMIT else grant.left,
        shares.kept_back(spec.name),
        over,
        grant.closed,
        tuple(before[:BEFORE]),
        len(before) + 1,
        "" if over or granted is None else _first(state, rooms, gang, granted, smallest),
        counted(gang.reserved if gang.reserving else ()),
        tuple(_leaving(state, state.gangs[key]) for key in gang.victims),
        smallest if whole_for_ms and smallest > smallest_of(state, gang) else 0,
        whole_for_ms,
    )


def _before(state: State, gang: Gang) -> list[str]:
    found: list[str] = []
    for other in turns_now(state):
        if other.key == gang.key:
            break
        if other.queue_reason not in NOT_YET:
            found.append(other.key)
    return found


def _first(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> str:
    """For whom room is kept that the gang would start in."""
    for key in state.waiting:
        first = state.gangs[key]
        if not first.reserving or first.key == gang.key:
            continue
        left = keep_from_others(state, rooms, first, role_in(state, first), len(first.reserved))
        if left is None or place(state, left, gang, role, smallest) is not None:
            return ""
        return first.key if place(state, rooms.copy(), gang, role, smallest) is not None else ""
    return ""


def _leaving(state: State, victim: Gang) -> Leaving:
    tasks = [state.tasks[key] for key in victim.live]
    last_ms = max((task.stop_deadline_ms for task in tasks), default=0)
    return Leaving(victim.key, len(tasks), max(last_ms - state.meta.now_ms, 0))
