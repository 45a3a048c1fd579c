"""What restarts together, and weights, told from the decisions alone."""

from __future__ import annotations

from coord.core.state import State
from coord.model import decisions, events
from coord.model.entry import Recorded

from .violation import CoreViolation


class Together:
    """None of those that stop together starts before all have stopped, and one pays for all.
    Weights only go forward, and come from the generation that counts."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.groups: list[tuple[tuple[str, ...], dict[str, None]]] = []
        """Gangs that stopped together, and which of them have not stopped yet."""
        self.versions: dict[str, int] = {}
        """By job."""

    def look_at(self, record: Recorded) -> None:
        event = record.entry.event
        if isinstance(event, events.JobSubmitted) and record.accepted:
            self.versions.pop(event.spec.name, None)
        taken: dict[str, None] = {}
        for decision in record.decisions:
            if isinstance(decision, decisions.ScopeStopping):
                members = (decision.gang, *decision.gangs)
                self.groups.append((members, dict.fromkeys(members)))
                taken.update(dict.fromkeys(decision.gangs))
            elif isinstance(decision, decisions.IncidentOpened) and decision.gang in taken:
                raise CoreViolation("who is taken along does not pay", f"{decision}")
            elif isinstance(
                decision,
                decisions.RestartScheduled | decisions.GangStopped | decisions.GangSucceeded,
            ):
                self._has_stopped(decision.gang)
            elif isinstance(decision, decisions.TasksPlaced):
                self._look_at_start(decision)
            elif isinstance(decision, decisions.WeightsAdvanced):
                self._look_at_weights(decision)

    def _has_stopped(self, gang: str) -> None:
        for _, stopping in self.groups:
            stopping.pop(gang, None)

    def _look_at_start(self, decision: decisions.TasksPlaced) -> None:
        for members, stopping in self.groups:
            if decision.gang in members and stopping:
                raise CoreViolation(
                    "none of those that stop together starts before all have stopped",
                    f"{decision.gang} before {', '.join(stopping)}",
                )
        self.groups = [group for group in self.groups if group[1]]

    def _look_at_weights(self, decision: decisions.WeightsAdvanced) -> None:
        before = self.versions.get(decision.job, 0)
        if decision.version <= before:
            raise CoreViolation("versions of weights only grow", f"{decision} after {before}")
        self.versions[decision.job] = decision.version
        gang = self.state.gangs[decision.gang]
        if gang.generation != decision.generation or not gang.live:
            raise CoreViolation("a replaced generation publishes nothing", f"{decision}")
