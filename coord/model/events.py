"""Facts, in the past tense, as somebody outside the state machine observed them.

Adding one touches four places: a message in `proto/coord/v1/events.proto`, a struct here, a handler
`@on(Event)` in its family in `core/`, and a golden transcript. The codec maps by name.
"""

from __future__ import annotations

import msgspec

from coord.model import event
from coord.model.canonical import canonical
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.place import NOWHERE, Located, Place, Rail, Switch
from coord.model.queue import QueueSpec
from coord.model.roster import RosterChanged, RosterHeard
from coord.model.settings import Settings
from coord.model.spec import JobSpec

Event = event.Event
"""Base of all events; here so that nobody need know where it stands."""


# The cluster


class ClusterConfigured(Event, frozen=True):
    """The first leader recorded what the cluster is called and how it judges."""

    cluster: str
    settings: Settings = Settings()
    logic_version: int = 1
    """The rules that hold from the first entry on."""

    def __post_init__(self) -> None:
        canonical(self)


class LeaderElected(Event, frozen=True):
    """A node won an election; the first entry of its term. Every lease starts anew."""

    node: int
    term: int


class ClockAdvanced(Event, frozen=True):
    """Time passed and something may be due. The only event upon which silence is judged."""


class LogicVersionRaised(Event, frozen=True):
    """From here on, rules of this version apply."""

    version: int


class NoteAdded(Event, frozen=True):
    """Somebody wrote something down, to be read with the incident. Changes nothing."""

    actor: str
    subject: str
    text: str


class EvictionsAllowed(Event, frozen=True):
    """An operator saw the mass silence and let the verdicts be taken."""

    actor: str
    reason: str


# Hosts


class TaskFound(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that an agent has on its host when it registers. `running` is false once it exited."""

    task: str
    pid: int
    running: bool = True


class HostRegistered(Event, frozen=True):
    """An agent announced its host, with what it offers and every task it still knows.

    `agent` names the agent's data directory (a random id kept on disk): the same one may register
    again at any time, another one only when the host is not live. `boot` changes with each boot of
    the machine. `ports` are TCP ports the host keeps for rendezvous.
    """

    host: str
    agent: str
    boot: str
    address: str
    devices: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    device_type: str = ""
    labels: dict[str, str] = {}
    ports: tuple[int, ...] = ()
    tasks: tuple[TaskFound, ...] = ()
    version: str = ""
    place: Place = NOWHERE
    rails: tuple[Rail, ...] = ()

    def __post_init__(self) -> None:
        canonical(self)


class HeartbeatsSeen(Event, frozen=True):
    """These hosts were heard since the source's last frame: slots ascending, with incarnations."""

    source: str
    slots: tuple[int, ...]
    incarnations: tuple[int, ...]


class PreemptionNoticed(Event, frozen=True):
    """The host's owner will take it away in `grace_ms`."""

    host: str
    incarnation: int
    grace_ms: int
    reason: str = ""


class DrainRequested(Event, frozen=True):
    """An operator wants the host empty: at once, or, with `within_ms`, by then.

    Until then each gang moves when it has committed its next checkpoint; what has not moved by then
    is stopped with its grace.
    """

    host: str
    actor: str
    reason: str = ""
    within_ms: int = 0


class UndrainRequested(Event, frozen=True):
    """An operator gives a drained or quarantined host back to the fleet."""

    host: str
    actor: str
    reason: str = ""


class HostRemovalRequested(Event, frozen=True):
    """An operator wants a drained or lost host forgotten."""

    host: str
    actor: str
    reason: str = ""


class TopologyImported(Event, frozen=True):
    """An operator said where hosts stand and how switches hang together, read from `source`.

    It takes the place of all that earlier imports said. With `merge` only of what they said of the
    hosts and switches named here; the rest stays.
    """

    hosts: tuple[Located, ...]
    switches: tuple[Switch, ...] = ()
    source: str = ""
    actor: str = ""
    merge: bool = False


class HostQuarantineRequested(Event, frozen=True):
    """An operator wants the host out of the fleet until it has been tested."""

    host: str
    actor: str
    reason: str = ""


class QuarantineAnswered(Event, frozen=True):
    """An operator answered a proposal of quarantine. `version` is that of the proposal they saw
    (`Quarantine.version`): what has changed since was not what they answered."""

    host: str
    version: int
    approved: bool
    actor: str
    reason: str = ""


class HostReleaseRequested(Event, frozen=True):
    """An operator ends a quarantine. `repaired`: whatever was held against the host is void."""

    host: str
    actor: str
    reason: str = ""
    repaired: bool = False


class MaintenanceRequested(Event, frozen=True):
    """An operator wants each host of a domain out in turn, at most `limit` at a time.

    `level` is one of `place.LEVELS` or `switch`; `domain` its path, or the end of it where that is
    enough to tell. `within_ms` is what each host is given to drain, as in DrainRequested. `safe`:
    no host goes out as long as a running gang would then find no place.
    """

    level: str
    domain: str
    limit: int
    actor: str
    reason: str = ""
    within_ms: int = 0
    safe: bool = False


class MaintenanceCancelled(Event, frozen=True):
    """An operator wants a maintenance to take no further host."""

    maintenance: int
    actor: str
    reason: str = ""


# Jobs


class JobSubmitted(Event, frozen=True):
    """Somebody asked for a job."""

    spec: JobSpec
    actor: str = ""


class JobCancelRequested(Event, frozen=True):
    """Somebody wants the job to end now."""

    job: str
    actor: str
    reason: str = ""


class JobResizeRequested(Event, frozen=True):
    """Somebody wants another number of replicas."""

    job: str
    role: str
    replicas: int
    actor: str
    reason: str = ""


class RollbackRequested(Event, frozen=True):
    """Somebody wants a job to go on from an older committed checkpoint.

    Of that `step`, or the one that is `back` before the newest: exactly one of both is given. With
    a `role`, its gangs; without, all of the job's that have a checkpoint.
    """

    job: str
    step: int = -1
    back: int = 0
    role: str = ""
    actor: str = ""
    reason: str = ""


# Queues


class QueueConfigured(Event, frozen=True):
    """An operator said what a queue is; it replaces what was said of it before."""

    spec: QueueSpec
    actor: str = ""
    reason: str = ""


class QueueRemoved(Event, frozen=True):
    """An operator took a queue away that no job needs any more."""

    queue: str
    actor: str = ""
    reason: str = ""


# Tasks, as their agents report them. `host` and `incarnation` say who reports.


class TaskStarted(Event, frozen=True):
    """The process exists."""

    host: str
    incarnation: int
    task: str
    pid: int


class LaunchFailed(Event, frozen=True):
    """There is no process and there will be none. `user_error`: the command itself cannot run."""

    host: str
    incarnation: int
    task: str
    error: str
    user_error: bool = False


class TaskExited(Event, frozen=True):
    """The main process ended. `signal` is 0 unless a signal ended it; `exit_code` is then 0.

    `observed` is false when the agent found the process gone and could not learn how it ended.
    `expected` is true when the agent itself had sent the signal, on a plan.
    """

    host: str
    incarnation: int
    task: str
    exit_code: int = 0
    signal: int = 0
    observed: bool = True
    expected: bool = False
    oom: bool = False
    error: str = ""
    stderr_tail: str = ""
    failed_at_ms: int = 0
    """When its error happened, by its host's clock, as its error file says; 0: not known."""


class TaskReaped(Event, frozen=True):
    """Every process of the task is gone; its devices are free."""

    host: str
    incarnation: int
    task: str


class TaskUnkillable(Event, frozen=True):
    """SIGKILL was sent and a process stayed. Its devices are not free."""

    host: str
    incarnation: int
    task: str
    pid: int


class ProgressReported(Event, frozen=True):
    """The task has finished so many steps since the job began: `step` counts from 1.

    `busy_us` is what it worked on the steps since its report before, without waiting for others;
    0: not measured.
    """

    host: str
    incarnation: int
    task: str
    step: int
    busy_us: int = 0


class CheckpointBegun(Event, frozen=True):
    """A task started to save `step` into the directory `path`."""

    host: str
    incarnation: int
    task: str
    step: int
    path: str


class ShardSaved(Event, frozen=True):
    """A task's part of the checkpoint is durable. `digest` is SHA-256 in hex."""

    host: str
    incarnation: int
    task: str
    step: int
    path: str
    shard: str
    digest: str
    size_bytes: int = 0


class WeightsPublished(Event, frozen=True):
    """A task has put the weights of `step` where others may load them (`uri`), as this version of
    its job's."""

    host: str
    incarnation: int
    task: str
    version: int
    step: int
    uri: str


class WeightsLoaded(Event, frozen=True):
    """A task works with this version of its job's weights from now on."""

    host: str
    incarnation: int
    task: str
    version: int


# Evidence: what somebody saw that may explain a failure, or foretell one.


class DeviceFaultSeen(Event, frozen=True):
    """The host's kernel log told of a fault. `kind` and `code` are those of `faults.fault_of`;
    `device` is as the kernel names it, `numbers` as tasks are given it; empty: the agent cannot
    tell. `at_ms`: when, by the host's clock; 0: not known."""

    host: str
    incarnation: int
    kind: str
    code: int = 0
    device: str = ""
    text: str = ""
    at_ms: int = 0
    numbers: tuple[int, ...] = ()


class CollectiveTimedOut(Event, frozen=True):
    """A task waited in vain for others in a collective operation.

    `missing` are ranks (indexes of its role) known not to have joined, ascending; empty: not known.
    Without a `host`, somebody else than its agent says so: `actor`, who read what the ranks wrote.
    """

    task: str
    op: str = ""
    seq: int = 0
    group: str = ""
    elapsed_ms: int = 0
    missing: tuple[int, ...] = ()
    host: str = ""
    incarnation: int = 0
    actor: str = ""


class HealthChecked(Event, frozen=True):
    """A health check of the host ran, or could not. `detail` is what it printed, as JSON. `test`:
    of a check on request, the number that the plan asked for it with."""

    host: str
    incarnation: int
    check: str
    outcome: HealthOutcome
    occasion: CheckOccasion
    exit_code: int = 0
    detail: str = ""
    test: int = 0


EVENT_TYPES: tuple[type[Event], ...] = tuple(
    sorted(Event.__subclasses__(), key=lambda event_type: event_type.__name__)
)

AnyEvent = (
    ClusterConfigured
    | LeaderElected
    | ClockAdvanced
    | LogicVersionRaised
    | NoteAdded
    | EvictionsAllowed
    | HostRegistered
    | HeartbeatsSeen
    | PreemptionNoticed
    | DrainRequested
    | UndrainRequested
    | HostRemovalRequested
    | TopologyImported
    | JobSubmitted
    | JobCancelRequested
    | JobResizeRequested
    | RollbackRequested
    | QueueConfigured
    | QueueRemoved
    | TaskStarted
    | LaunchFailed
    | TaskExited
    | TaskReaped
    | TaskUnkillable
    | ProgressReported
    | CheckpointBegun
    | ShardSaved
    | HostQuarantineRequested
    | QuarantineAnswered
    | HostReleaseRequested
    | MaintenanceRequested
    | MaintenanceCancelled
    | DeviceFaultSeen
    | CollectiveTimedOut
    | HealthChecked
    | WeightsPublished
    | WeightsLoaded
    | RosterChanged
    | RosterHeard
)
"""For decoders: `msgspec.json.decode(line, type=AnyEvent)` picks the struct by its tag."""
