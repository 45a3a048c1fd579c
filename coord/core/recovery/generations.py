"""The moment from which on a generation runs."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.incidents import close_incident, incident_started
from coord.core.queueing import order
from coord.core.step import Step
from coord.model.decisions import GenerationStarted
from coord.model.entities import Gang, GangPhase


def all_started(step: Step, gang: Gang) -> Gang:
    """Every process of the generation exists; returns the gang as one that runs."""
    decided = step.decide(
        GenerationStarted((gang.cause, step.cause), gang.job, gang.key, gang.generation)
    )
    gang = replace(gang, phase=GangPhase.RUNNING, cause=decided)
    if gang.progress_ms:
        # Early ranks may have waited for this one: the time for the next step begins now.
        gang = replace(gang, progress_ms=max(step.now_ms, 1))
        step.state.timers.arm("gang", gang.key, step.now_ms)
    incident_started(step, gang)
    order.started(step, gang)
    if gang.best_step < 0 and gang.step < 0:
        # It has never reported a step: to run again is all the progress there is to see.
        gang = close_incident(step, gang, resolved=True)
    return gang
