"""The state machine: `apply(state, entry) -> record`.

The rules. Log time moves by what the leader's clock moved since the entry before, at least 0 and at
most `max_step_ms`, so neither a skewed nor a paused leader can make an hour pass at once. A request
that was decided before gets its first outcome again. Every other event goes to the one handler of
its type, which changes rows and appends decisions, or rejects. Silence and deadlines are judged
upon `ClockAdvanced` alone, and only in the term whose `LeaderElected` was applied: a heartbeat in
the same batch always comes first. When places or wishes changed, the queue is looked at once, at
the end. The running digest then takes in the entry and all that was made of it.

The tables of transitions: hosts in `hosts.py`, gangs in `gangs.py`, tasks in `tasks.py`.
"""

from __future__ import annotations

import hashlib

import msgspec

from coord.core import checkpoints, cluster, hosts, jobs, rosters, tasks, topology
from coord.core.care import maintenance, quarantine_course
from coord.core.causes import evidence
from coord.core.queueing import queues
from coord.core.queueing.scheduling import schedule
from coord.core.recovery import rollback, weights
from coord.core.requests import earlier_outcome, remember
from coord.core.state import State
from coord.core.step import HANDLERS, Step
from coord.model.decisions import AnyDecision
from coord.model.entry import Batch, Entry, Recorded
from coord.model.events import EVENT_TYPES, ClockAdvanced, ClusterConfigured, LeaderElected
from coord.model.rejections import Rejection
from coord.model.requests import Request

FAMILIES = (
    checkpoints,
    cluster,
    evidence,
    hosts,
    jobs,
    maintenance,
    quarantine_course,
    queues,
    rollback,
    rosters,
    tasks,
    topology,
    weights,
)
_without_handler = [event.__name__ for event in EVENT_TYPES if event not in HANDLERS]
if _without_handler:
    raise TypeError(f"events without a handler in core/: {', '.join(_without_handler)}")

_BEFORE_SETTINGS = (ClockAdvanced, ClusterConfigured, LeaderElected)

_DIGESTED = msgspec.msgpack.Encoder(order="deterministic")


class LogGap(Exception):
    """An entry does not follow on the one applied last. The log is not the one of this state."""


def apply(state: State, entry: Entry) -> Recorded:
    """Apply the next entry. Total over entries that decode; raises LogGap for one out of place."""
    meta = state.meta
    if entry.index != meta.applied_index + 1:
        raise LogGap(f"entry {entry.index} after {meta.applied_index}")
    if meta.wall_ms:
        elapsed_ms = entry.wall_ms - meta.wall_ms
        meta.now_ms += min(max(elapsed_ms, 0), meta.settings.max_step_ms)
    meta.wall_ms = entry.wall_ms
    meta.applied_index = entry.index
    step = Step(state, entry)
    rejection, duplicate_of = _decide(step, entry)
    return _record(step, rejection, duplicate_of)


def apply_batch(state: State, batch: Batch) -> tuple[Recorded, ...]:
    """Apply a batch's events in order; their indexes follow on `meta.applied_index`."""
    records = []
    for submission in batch.submissions:
        index = state.meta.applied_index + 1
        entry = Entry(index, batch.term, batch.wall_ms, submission.origin, submission.event)
        records.append(apply(state, entry))
    return tuple(records)


def next_due_ms(state: State) -> int | None:
    """Log time at which a `ClockAdvanced` may decide something; None when nothing is pending."""
    return state.timers.next_due_ms()


def log_time_ms(state: State, wall_ms: int) -> int:
    """What log time an entry stamped `wall_ms` would get now."""
    meta = state.meta
    elapsed_ms = wall_ms - meta.wall_ms if meta.wall_ms else 0
    return meta.now_ms + min(max(elapsed_ms, 0), meta.settings.max_step_ms)


def _decide(step: Step, entry: Entry) -> tuple[str, int]:
    """(rejection, duplicate_of), either of them empty."""
    state = step.state
    origin = entry.origin
    if not state.meta.cluster and not isinstance(entry.event, _BEFORE_SETTINGS):
        # Not remembered: the sender repeats it, and then it counts.
        return Rejection.NOT_CONFIGURED, 0
    earlier = earlier_outcome(state, origin)
    if isinstance(earlier, Request):
        step.result = earlier.result
        return earlier.rejection, earlier.index
    if earlier is not None:
        return earlier, 0
    rejection = _handle(step, entry)
    if step.scheduling:
        schedule(step)
    remember(state, origin, Request(origin.seq, entry.index, rejection, step.result))
    return rejection, 0


def _handle(step: Step, entry: Entry) -> str:
    event = entry.event
    actor = entry.origin.actor
    if actor.startswith("host:") and getattr(event, "host", None) != actor[5:]:
        return Rejection.INVALID
    rejection = HANDLERS[type(event)](step, event)
    return rejection if rejection is not None else ""


def _record(step: Step, rejection: str, duplicate_of: int) -> Recorded:
    meta = step.state.meta
    decisions: tuple[AnyDecision, ...] = tuple(step.decisions)  # type: ignore[arg-type]
    made = (step.entry, meta.now_ms, decisions, str(rejection), duplicate_of, step.result)
    chained = hashlib.blake2b(bytes.fromhex(meta.digest), digest_size=16)
    chained.update(_DIGESTED.encode(made))
    meta.digest = chained.hexdigest()
    return Recorded(
        step.entry, meta.now_ms, meta.digest, decisions, str(rejection), duplicate_of, step.result
    )
