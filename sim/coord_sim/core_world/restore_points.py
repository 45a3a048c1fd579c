"""From which step each gang began last, as the decisions of a log tell.

Restore points never go back. A task that a resize took away is gone with its checkpoints, though:
should the role grow again, the next task of the name is a new one, without a past. Only what was
asked for is such an end. A gang stopped for any other reason, or wanted again before it has
stopped, keeps its restore point. And whoever is taken back by a person begins where that one says.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coord.core.state import State
from coord.model.decisions import Decision, GangStopped, JobResized, TasksPlaced
from coord.model.rollback_decisions import GangRolledBack

SENTENCE = "restore points never go back"


class RestorePoints(Struct, frozen=True):
    """What was decided so far. Its dicts are never changed in place."""

    steps: dict[str, int] = {}
    """Gang -> the step that its newest generation began from, -1 for the beginning."""
    replicas: dict[str, int] = {}
    """`job/role` -> how many tasks the last resize left it."""

    def after(self, decision: Decision) -> Followed:
        """With one more decision."""
        if isinstance(decision, TasksPlaced):
            before = self.steps.get(decision.gang, -1)
            steps = {**self.steps, decision.gang: decision.restore_step}
            wrong = ""
            if decision.restore_step < before:
                wrong = f"{decision.gang}: step {decision.restore_step} after {before}"
            return Followed(replace(self, steps=steps), wrong)
        if isinstance(decision, GangRolledBack):
            return Followed(replace(self, steps={**self.steps, decision.gang: decision.step}))
        if isinstance(decision, JobResized):
            role = f"{decision.job}/{decision.role}"
            resized = {**self.replicas, role: decision.replicas}
            return Followed(replace(self, replicas=resized))
        if isinstance(decision, GangStopped) and self._unwanted(decision.gang):
            steps = {gang: step for gang, step in self.steps.items() if gang != decision.gang}
            return Followed(replace(self, steps=steps))
        return Followed(self)

    def without(self, job: str) -> RestorePoints:
        """For a new job of that name, after the old one was forgotten."""
        return RestorePoints(_others(self.steps, job), _others(self.replicas, job))

    def _unwanted(self, gang: str) -> bool:
        role, _, index = gang.rpartition("/")
        return role in self.replicas and int(index) >= self.replicas[role]


class Followed(NamedTuple):
    points: RestorePoints
    wrong: str = ""
    """How a placement went back, empty if none did."""


def restore_points_of(state: State) -> RestorePoints:
    """Of a log that begins with this state."""
    return RestorePoints(
        {gang.key: gang.restore_step for gang in state.gangs.values()},
        {
            f"{job.name}/{role.name}": replicas
            for job in state.jobs.values()
            for role, replicas in zip(job.spec.roles, job.replicas, strict=True)
        },
    )


def _others(kept: dict[str, int], job: str) -> dict[str, int]:
    return {key: value for key, value in kept.items() if not key.startswith(f"{job}/")}
