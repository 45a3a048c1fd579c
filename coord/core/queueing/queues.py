"""Queues: configured, changed and removed by operators. Who starts when is in `scheduling.py`."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.queueing.claims import DEVICE
from coord.core.state import State
from coord.core.step import Step, on
from coord.model.entities import FINISHED_JOB, GangPhase, Queue
from coord.model.events import QueueConfigured, QueueRemoved
from coord.model.queue import QueueSpec, queue_problems
from coord.model.rejections import Rejection

QUEUES_SINCE = 2
"""The logic version from which on there are queues."""


@on(QueueConfigured)
def _configured(step: Step, event: QueueConfigured) -> Rejection | None:
    state = step.state
    spec = event.spec
    if state.meta.logic_version < QUEUES_SINCE:
        return Rejection.UNKNOWN_EVENT
    if queue_problems(spec):
        return Rejection.INVALID
    known = state.queues.get(spec.name)
    if known is not None and known.spec == spec:
        return Rejection.NOTHING_TO_DO
    used = state.claims.queues.get(spec.name, 0)
    overdrawn = used if used > limit_of(spec) >= 0 else 0
    queue = Queue(spec.name, spec, step.entry.index, event.actor, event.reason, overdrawn)
    state.queues.put(spec.name, queue)
    step.scheduling = True
    return None


@on(QueueRemoved)
def _removed(step: Step, event: QueueRemoved) -> Rejection | None:
    state = step.state
    if event.queue not in state.queues:
        return Rejection.UNKNOWN_QUEUE
    if any(_needs(state, name, event.queue) for name in state.jobs):
        return Rejection.QUEUE_BUSY
    state.queues.drop(event.queue)
    step.scheduling = True
    return None


def charge_running(state: State) -> None:
    """Charge queues with all that runs already, when the rules that know them begin to hold."""
    for gang in list(state.gangs.values()):
        if gang.phase in (GangPhase.STARTING, GangPhase.RUNNING, GangPhase.STOPPING):
            state.put_gang(replace(gang, claim=gang.size))


def limit_of(spec: QueueSpec) -> int:
    """The most that the queue may use, in thousandths of devices; -1: whatever is free."""
    return -1 if spec.borrowing_limit < 0 else (spec.quota + spec.borrowing_limit) * DEVICE


def _needs(state: State, job: str, queue: str) -> bool:
    return state.jobs[job].spec.queue == queue and state.jobs[job].status not in FINISHED_JOB
