"""What the state machine derived. Never inputs: replay derives them again and compares.

Every decision names its causes: `"17"` is the event at index 17, `"17.0"` the first decision taken
there. Following them backwards answers "why".
"""

from __future__ import annotations

import msgspec

from coord.model import decision
from coord.model.canonical import canonical
from coord.model.care_decisions import (
    DomainHeard,
    DomainLost,
    DomainSilent,
    HostOnProbation,
    HostOutForRepair,
    HostReleased,
    HostTesting,
    MaintenanceEnded,
    MaintenanceHostBack,
    MaintenanceHostOut,
    MaintenanceStalled,
    MaintenanceStarted,
    MovesDue,
    QuarantineDropped,
    QuarantineProposed,
)
from coord.model.cost import NO_COST, IncidentCost
from coord.model.rollback_decisions import GangRolledBack
from coord.model.standby_decisions import StandbyEnded, StandbyPlaced, StandbyPromoted

Decision = decision.Decision
"""Base of all decisions; here so that nobody need know where it stands."""


# Hosts


class HostJoined(Decision, frozen=True):
    """The host may be used. Its agent reports under this incarnation from now on."""

    host: str
    slot: int
    incarnation: int
    adopted: tuple[str, ...] = ()
    """Tasks that survived the agent's restart and go on."""


class HostSuspected(Decision, frozen=True):
    """Silent for so long that no new work goes there."""

    host: str
    silent_ms: int


class HostCleared(Decision, frozen=True):
    """A suspected host was heard again."""

    host: str


class HostLost(Decision, frozen=True):
    """The lease ran out. Nothing of this incarnation counts any more."""

    host: str
    incarnation: int
    silent_ms: int


class HostFenced(Decision, frozen=True):
    """By contract the lost host's exclusive tasks have ended."""

    host: str


class HostDraining(Decision, frozen=True):
    """No new work; what runs there moves away. `deadline_ms` is log time, 0 for none."""

    host: str
    deadline_ms: int = 0


class HostDrained(Decision, frozen=True):
    """Nothing runs there any more."""

    host: str


class HostReturned(Decision, frozen=True):
    """A drained or quarantined host takes work again."""

    host: str


class HostQuarantined(Decision, frozen=True):
    """No new work until an operator returns it."""

    host: str
    reason: str


class HostRemoved(Decision, frozen=True):
    """Forgotten, but for its slot and incarnation."""

    host: str


class EvictionsFrozen(Decision, frozen=True):
    """So many hosts fell silent at once that the network is likelier than their death."""

    silent: int
    fleet: int


class EvictionsResumed(Decision, frozen=True):
    """Silence is judged again."""

    silent: int
    fleet: int


# Jobs and gangs


class JobQueued(Decision, frozen=True):
    """The gang cannot be placed now. `reason` is a word of `entities.QueueReason`."""

    job: str
    gang: str
    reason: str
    detail: str = ""


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one task goes."""

    task: str
    host: str
    devices: tuple[int, ...] = ()


class TasksPlaced(Decision, frozen=True):
    """Every task of this generation has a place; its host's agent is to launch it."""

    job: str
    gang: str
    generation: int
    placements: tuple[Placement, ...]
    restore: str = ""
    """Directory of the checkpoint to start from; empty for a fresh start."""
    restore_step: int = -1


class SpareActivated(Decision, frozen=True):
    """A place kept as a spare is used."""

    job: str
    gang: str
    generation: int
    host: str


class GenerationStarted(Decision, frozen=True):
    """Every process of this generation exists."""

    job: str
    gang: str
    generation: int


class TasksStopping(Decision, frozen=True):
    """All tasks of this generation are to end. `cause` is a word of `entities.FailureCause`."""

    job: str
    gang: str
    generation: int
    cause: str
    reason: str
    tasks: tuple[str, ...]


class HangDetected(Decision, frozen=True):
    """No task of the gang has finished a step for too long; `tasks` are the furthest behind."""

    job: str
    gang: str
    generation: int
    silent_ms: int
    tasks: tuple[str, ...]


class RestartScheduled(Decision, frozen=True):
    """The generation is over; the next is placed at `not_before_ms` of log time or later."""

    job: str
    gang: str
    generation: int
    cause: str
    attempt: int
    """How many restarts this cause has had, this one included."""
    limit: int
    not_before_ms: int


class TaskAbandoned(Decision, frozen=True):
    """A task could not be stopped; its devices stay taken and its gang goes on elsewhere."""

    task: str
    host: str


class GangSucceeded(Decision, frozen=True):
    """Every task of the gang exited with success."""

    job: str
    gang: str
    generation: int


class GangStopped(Decision, frozen=True):
    """The gang ended without success and does not restart."""

    job: str
    gang: str
    generation: int


class JobCompleted(Decision, frozen=True):
    """Every role that has an end succeeded."""

    job: str


class JobFailed(Decision, frozen=True):
    """`reason` is a word of `entities.FailureReason`."""

    job: str
    reason: str
    detail: str = ""


class JobCancelled(Decision, frozen=True):
    """Ended on request; nothing of it runs."""

    job: str


class JobResized(Decision, frozen=True):
    """The role wants this many replicas."""

    job: str
    role: str
    replicas: int


class GangPreempted(Decision, frozen=True):
    """The gang must give its place to another, `by`, and has `notice_ms` to save its work.

    `lost_ms` are the device-milliseconds since its newest checkpoint, or since its start.
    """

    job: str
    gang: str
    generation: int
    by: str
    queue: str
    """Of the one it gives way to."""
    notice_ms: int
    lost_ms: int


class RoomReserved(Decision, frozen=True):
    """The gang is the first that lacks room: none of what it could use goes to one behind it."""

    job: str
    gang: str


class CheckpointCommitted(Decision, frozen=True):
    """Every shard of this step is durable; restarts begin here."""

    job: str
    gang: str
    generation: int
    step: int
    path: str


class IncidentOpened(Decision, frozen=True):
    """Something ended a generation that should have gone on."""

    incident: int
    job: str
    gang: str
    generation: int
    cause: str
    subject: str
    """The task or host that the evidence is about."""
    detail: str = ""


class CauseRevised(Decision, frozen=True):
    """While its tasks stop, better evidence showed who was to blame: the restart counts there."""

    incident: int
    job: str
    gang: str
    cause: str
    subject: str
    detail: str = ""


class IncidentClosed(Decision, frozen=True):
    """The gang has made progress again, or ended. Durations in milliseconds of log time.

    `detection_ms` runs from the last sign of life to the evidence, `stop_ms` to the last task gone,
    `placement_ms` to the new places, `start_ms` to all processes, `resume_ms` to the first step.
    A phase that was not reached is -1.
    """

    incident: int
    job: str
    gang: str
    generation: int
    detection_ms: int
    stop_ms: int
    placement_ms: int
    start_ms: int
    resume_ms: int
    lost_steps: int
    resolved: bool
    cause: str = ""
    """Who pays, by all that is known by now."""
    cost: IncidentCost = NO_COST

    def __post_init__(self) -> None:
        canonical(self)


class SlowRankSuspected(Decision, frozen=True):
    """A task took longer for its steps than its gang, several times in a row. Never a verdict.

    `pace_us` is its time for one step, `usual_us` the median of its gang.
    """

    job: str
    gang: str
    generation: int
    task: str
    host: str
    pace_us: int
    usual_us: int
    times: int


class HostBlamed(Decision, frozen=True):
    """The host was where failures began, more often than chance explains.

    First in `first` of `incidents` that it had a part in; by chance that happens to one host in
    `one_in`, as many hosts as were looked at taken into account.
    """

    host: str
    first: int
    incidents: int
    jobs: int
    looked_at: int
    one_in: int
    numbers: tuple[int, ...] = ()
    """Those incidents, the newest last."""


class ScopeStopping(Decision, frozen=True):
    """A gang takes others of its job along: all restart as one incident, its own."""

    job: str
    gang: str
    generation: int
    scope: str
    gangs: tuple[str, ...]


class SpareKept(Decision, frozen=True):
    """A place beside a running gang is kept again."""

    job: str
    gang: str
    generation: int
    host: str


class GangGrowing(Decision, frozen=True):
    """A gang below its size has room for more: it moves into it from the checkpoint of `step`,
    which it has just committed."""

    job: str
    gang: str
    generation: int
    before: int
    after: int
    step: int


class WeightsAdvanced(Decision, frozen=True):
    """The weights that tasks of the job are to work with; `generation` made them."""

    job: str
    gang: str
    generation: int
    version: int
    step: int
    uri: str


# Relays


class RosterCut(Decision, frozen=True):
    """These hosts' beats count through the relay no more: each was lost, has registered again, or
    was heard straight or by another relay. Slots ascend."""

    relay: str
    slots: tuple[int, ...]


DECISION_TYPES: tuple[type[Decision], ...] = tuple(
    sorted(Decision.__subclasses__(), key=lambda decision_type: decision_type.__name__)
)

AnyDecision = (
    HostJoined
    | HostSuspected
    | HostCleared
    | HostLost
    | HostFenced
    | HostDraining
    | HostDrained
    | HostReturned
    | HostQuarantined
    | HostRemoved
    | EvictionsFrozen
    | EvictionsResumed
    | JobQueued
    | TasksPlaced
    | SpareActivated
    | GenerationStarted
    | TasksStopping
    | HangDetected
    | RestartScheduled
    | TaskAbandoned
    | GangSucceeded
    | GangStopped
    | JobCompleted
    | JobFailed
    | JobCancelled
    | JobResized
    | GangRolledBack
    | GangPreempted
    | RoomReserved
    | CheckpointCommitted
    | IncidentOpened
    | CauseRevised
    | IncidentClosed
    | QuarantineProposed
    | QuarantineDropped
    | HostTesting
    | HostOnProbation
    | HostOutForRepair
    | HostReleased
    | DomainSilent
    | DomainHeard
    | DomainLost
    | MovesDue
    | MaintenanceStarted
    | MaintenanceHostOut
    | MaintenanceHostBack
    | MaintenanceStalled
    | MaintenanceEnded
    | SlowRankSuspected
    | HostBlamed
    | ScopeStopping
    | SpareKept
    | GangGrowing
    | WeightsAdvanced
    | RosterCut
    | StandbyPlaced
    | StandbyPromoted
    | StandbyEnded
)
"""For decoders, as `AnyEvent`."""
