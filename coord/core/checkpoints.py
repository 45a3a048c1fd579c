"""Checkpoints in two phases: begun, every shard saved, committed.

One checkpoint is of one generation: shards of different generations never mix. Only tasks of the
current generation that have not been given up may add to it. A step at or below a committed one is
refused, so restore points never go back by themselves (design.md, Checkpoints; races.md 21 to 26):
only a person takes them back (`recovery/rollback.py`), which sets newer ones aside. They end with
their gang: a task that a resize took away has none when it is wanted again.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.care import moves
from coord.core.recovery import elastic
from coord.core.step import Step, on
from coord.core.tasks import current_task
from coord.model.decisions import CheckpointCommitted
from coord.model.entities import Checkpoint, Gang, Task
from coord.model.events import CheckpointBegun, ShardSaved
from coord.model.rejections import Rejection

KEPT = 3
"""Committed checkpoints remembered for each gang, the newest ones."""
ASIDE_KEPT = 8
"""The same of those that are set aside, beside the others."""


@on(CheckpointBegun)
def _begun(step: Step, event: CheckpointBegun) -> Rejection | None:
    found = _saving(step, event)
    if isinstance(found, Rejection):
        return found
    _, gang = found
    key = checkpoint_key(gang, event.step)
    known = step.state.checkpoints.get(key)
    if known is not None:
        # Every rank says that it begins; the first one's word is enough.
        return None if known.path == event.path else Rejection.INVALID
    step.state.put_checkpoint(key, _fresh(gang, event.step, event.path))
    return None


@on(ShardSaved)
def _saved(step: Step, event: ShardSaved) -> Rejection | None:
    if not event.digest:
        return Rejection.INVALID
    found = _saving(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    state = step.state
    key = checkpoint_key(gang, event.step)
    checkpoint = state.checkpoints.get(key) or _fresh(gang, event.step, event.path)
    if checkpoint.path != event.path:
        return Rejection.INVALID
    at = task.index if gang.index < 0 else 0
    if checkpoint.shards[at]:
        same = checkpoint.shards[at] == event.digest
        return Rejection.NOTHING_TO_DO if same else Rejection.INVALID
    shards = (*checkpoint.shards[:at], event.digest, *checkpoint.shards[at + 1 :])
    checkpoint = replace(checkpoint, shards=shards)
    state.put_checkpoint(key, checkpoint)
    if all(shards):
        _commit(step, gang, key, checkpoint)
    return None


def checkpoint_key(gang: Gang, step_number: int) -> str:
    """`job/role#generation@step`"""
    return f"{gang.key}#{gang.generation}@{step_number}"


def drop_unfinished(step: Step, gang: Gang) -> None:
    """Saves that no generation can finish any more. Called when a new one is placed."""
    state = step.state
    for key in state.checkpoints_by_gang.get(gang.key, ()):
        if not state.checkpoints[key].committed:
            state.drop_checkpoint(key)


def _saving(step: Step, event: CheckpointBegun | ShardSaved) -> tuple[Task, Gang] | Rejection:
    if event.step < 0 or not event.path:
        return Rejection.INVALID
    found = current_task(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    newest = step.state.newest_checkpoint(gang.key)
    if newest is not None and event.step <= newest.step:
        again = newest.generation == gang.generation and event.step == newest.step
        return Rejection.NOTHING_TO_DO if again else Rejection.STEP_WENT_BACK
    return task, gang


def _fresh(gang: Gang, step_number: int, path: str) -> Checkpoint:
    return Checkpoint(gang.key, gang.generation, step_number, path, ("",) * gang.size)


def _commit(step: Step, gang: Gang, key: str, checkpoint: Checkpoint) -> None:
    state = step.state
    index = step.entry.index
    # What a generation saves that was taken back is as good as what it was taken back from.
    aside = index if gang.rolled_back == gang.generation else 0
    state.put_checkpoint(
        key, replace(checkpoint, committed=True, committed_at=index, set_aside=aside)
    )
    decided = step.decide(
        CheckpointCommitted(
            (step.cause,), gang.job, gang.key, gang.generation, checkpoint.step, checkpoint.path
        )
    )
    kept, put_aside = [], []
    for other in state.checkpoints_by_gang[gang.key]:
        saved = state.checkpoints[other]
        if saved.set_aside:
            put_aside.append((saved.set_aside, saved.step, other))
        elif saved.committed:
            kept.append((saved.step, other))
        elif saved.step <= checkpoint.step:
            state.drop_checkpoint(other)
    for _, old in sorted(kept)[:-KEPT]:
        state.drop_checkpoint(old)
    for _, _, old in sorted(put_aside)[:-ASIDE_KEPT]:
        state.drop_checkpoint(old)
    moves.at_checkpoint(step, gang.key, checkpoint.step, decided)
    elastic.at_checkpoint(step, gang.key, checkpoint.step, decided)
