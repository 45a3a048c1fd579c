"""Weights of a model in training, as they go from who trains them to who works with them.

Of each job the newest published version is known, and of each task the one that it works with.
Versions only grow, whatever the step is that they were made of: a trainer that restarts from an
older checkpoint goes on counting, and until it publishes again the version of its last generation
stays the newest. Whatever comes from a generation that has been replaced is refused, so nothing
that a fenced trainer left behind reaches the others. (races.md 1, 2, 21, 23.)
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.step import Step, on
from coord.core.tasks import current_task
from coord.model.decisions import WeightsAdvanced
from coord.model.entities import Gang, Task, TaskStatus
from coord.model.events import WeightsLoaded, WeightsPublished
from coord.model.rejections import Rejection
from coord.model.weights import Weights

VERSION_LIMIT = 1 << 53
"""The same for every JSON library, and with room for more after it."""

WORKING = (TaskStatus.RUNNING, TaskStatus.STOPPING)
"""Who may still speak of weights: a task that is stopping may have saved its newest."""


@on(WeightsPublished)
def _published(step: Step, event: WeightsPublished) -> Rejection | None:
    if not 1 <= event.version <= VERSION_LIMIT or event.step < 0 or not event.uri:
        return Rejection.INVALID
    found = _of_newest(step, event)
    if isinstance(found, Rejection):
        return found
    task, gang = found
    if task.status not in WORKING:
        return Rejection.TASK_STOPPING
    state = step.state
    known = state.weights.get(task.job)
    if known is not None and event.version <= known.version:
        said = (event.version, event.step, event.uri, gang.key, gang.generation)
        same = said == (known.version, known.step, known.uri, known.gang, known.generation)
        return Rejection.NOTHING_TO_DO if same else Rejection.VERSION_WENT_BACK
    state.weights.put(
        task.job,
        Weights(
            task.job,
            event.version,
            event.step,
            event.uri,
            task.key,
            gang.key,
            gang.generation,
            step.entry.index,
            step.now_ms,
        ),
    )
    step.decide(
        WeightsAdvanced(
            (step.cause,),
            task.job,
            gang.key,
            gang.generation,
            event.version,
            event.step,
            event.uri,
        )
    )
    return None


@on(WeightsLoaded)
def _loaded(step: Step, event: WeightsLoaded) -> Rejection | None:
    if event.version < 1:
        return Rejection.INVALID
    found = _of_newest(step, event)
    if isinstance(found, Rejection):
        return found
    task, _ = found
    known = step.state.weights.get(task.job)
    if known is None or event.version > known.version:
        return Rejection.UNKNOWN_WEIGHTS
    if task.status not in WORKING:
        return Rejection.TASK_STOPPING
    if event.version == task.weights:
        return Rejection.NOTHING_TO_DO
    if event.version < task.weights:
        return Rejection.VERSION_WENT_BACK
    step.state.tasks.put(task.key, replace(task, weights=event.version))
    return None


def _of_newest(
    step: Step, event: WeightsPublished | WeightsLoaded
) -> tuple[Task, Gang] | Rejection:
    """As `current_task`; of a task that is gone it is said whether another one has replaced it."""
    found = current_task(step, event)
    if found != Rejection.UNKNOWN_TASK:
        return found
    name, _, generation = event.task.rpartition("#")
    role, _, index = name.rpartition("/")
    gangs = step.state.gangs
    gang = gangs.get(name) or (gangs.get(role) if index.isdigit() else None)
    replaced = gang is not None and generation.isdigit() and int(generation) < gang.generation
    return Rejection.STALE_GENERATION if replaced else found
