"""What the state consists of. All frozen: a change is a new struct in the old one's place."""

from __future__ import annotations

import enum

import msgspec

from coord.model.canonical import canonical
from coord.model.cost import NO_COST, IncidentCost
from coord.model.place import NOWHERE, Located, Place, Rail
from coord.model.queue import QueueSpec
from coord.model.spec import JobSpec


class HostStatus(enum.StrEnum):
    UP = "up"
    SUSPECT = "suspect"
    LOST = "lost"
    REMOVED = "removed"


class DrainState(enum.StrEnum):
    NONE = ""
    DRAINING = "draining"
    DRAINED = "drained"


class JobStatus(enum.StrEnum):
    QUEUED = "queued"
    """Nothing of it has a place yet."""
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED_JOB = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class GangPhase(enum.StrEnum):
    WAITING = "waiting"
    """For a place, or for a back-off to pass."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    """Ended for good without success."""


ENDED_GANG = (GangPhase.SUCCEEDED, GangPhase.STOPPED)


class TaskStatus(enum.StrEnum):
    PLACED = "placed"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    """Its main process ended; its devices are not free before it is reaped."""
    ORPHANED = "orphaned"
    """Found on a host that came back after the task was given up; being stopped."""
    UNKILLABLE = "unkillable"
    LOST = "lost"
    """Its host is lost; whether it runs is not known."""


class FailureCause(enum.StrEnum):
    """Who pays for a restart."""

    NONE = ""
    USER = "user"
    INFRASTRUCTURE = "infrastructure"
    PREEMPTION = "preemption"
    UNKNOWN = "unknown"
    DRAIN = "drain"
    RESIZE = "resize"
    ROLLBACK = "rollback"
    CANCEL = "cancel"
    JOB_ENDED = "job_ended"
    """Another role of the job ended it."""


class FailureReason(enum.StrEnum):
    """Why a job failed."""

    BUDGET = "budget"
    NO_PROGRESS = "no_progress"
    DO_NOT_RESTART = "do_not_restart"
    """A task exited with code 93."""


class QueueReason(enum.StrEnum):
    NONE = ""
    NO_HOSTS = "no_hosts"
    HOSTS_UNAVAILABLE = "hosts_unavailable"
    """Hosts exist, but are suspect, lost, draining or quarantined."""
    DEVICES = "devices"
    CPUS = "cpus"
    MEMORY = "memory"
    FENCING = "fencing"
    """An exclusive task's old host is not fenced yet."""
    BACKOFF = "backoff"
    DEVICE_TYPE = "device_type"
    """No host has devices of the types that will do."""
    RAILS = "rails"
    """No host is on so many rails."""
    APART = "apart"
    """Where there is room, somebody is who keeps it away, or whom it keeps away from."""
    NEAR = "near"
    """Not where the role is that it must stand near."""
    TOPOLOGY = "topology"
    """There is room, but not within one domain, or not spread as asked."""
    QUOTA = "quota"
    """Its queue uses all that it may."""
    PREEMPTING = "preempting"
    """Others are stopping to make room for it."""
    RESERVED = "reserved"
    """There is room, but a gang before it in the queue is waiting for that."""
    TOGETHER = "together"
    """Others of its job that restart with it have not stopped yet."""
    FULL_SIZE = "full_size"
    """It could have a place soon, but waits for one for all of it."""
    AFTER = "after"
    """A role of its job that it starts after has not started."""


class Host(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine. When it was last heard stands in `State.last_seen_ms[slot]`, not here."""

    host: str
    slot: int
    incarnation: int
    status: HostStatus
    agent: str
    boot: str
    address: str
    devices: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    device_type: str = ""
    labels: dict[str, str] = {}
    ports: tuple[int, ...] = ()
    version: str = ""
    drain: DrainState = DrainState.NONE
    drain_deadline_ms: int = 0
    """Log time at which a preempted host goes away; 0 when nobody takes it."""
    drain_requested: bool = False
    """By an operator: it lasts until an operator ends it."""
    quarantine: str = ""
    """Why it takes no work; empty when it may."""
    fenced: bool = False
    """Lost, and by contract its exclusive tasks have ended."""
    lost_at_ms: int = 0
    status_cause: str = ""
    """The decision or event that gave it its status."""
    report_seq: int = 0
    """The last report decided under this incarnation."""
    report_index: int = 0
    """Log index at which it was decided."""
    extensions: int = 0
    """Elections since it was last heard."""
    tasks: tuple[str, ...] = ()
    """Keys of tasks that take something of this host, in order of placement."""
    plan_version: int = 0
    next_port: int = 0
    place: Place = NOWHERE
    rails: tuple[Rail, ...] = ()
    """As an import has them, over what was announced (`core/topology.py`)."""
    announced: Located | None = None
    """Where it said that it stands when it registered; None: nothing."""
    move_by_ms: int = 0
    """Log time by when what runs there is to have moved; each gang does at its next checkpoint. 0:
    nothing is to move, or all has been told to."""
    move_reason: str = ""
    move_cause: str = ""
    probation: int = 0
    """On probation, how many tasks it may have at once; 0: as many as it has room for."""
    test: int = 0
    """Log index at which its agent was asked to test it; 0: not asked."""
    withheld: str = ""
    """Why it takes no new work though it is not in quarantine: it is known to be broken, and a
    person is asked; or somebody took it back with a task that cannot be killed."""

    def __post_init__(self) -> None:
        # As `canonical` does, for the one field that needs it: rows of hosts change often.
        if self.place is not NOWHERE and self.place == NOWHERE:
            msgspec.structs.force_setattr(self, "place", NOWHERE)


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place kept for a gang: where it ran (`spare` false) or beside it (`spare` true)."""

    host: str
    spare: bool
    devices: tuple[int, ...] = ()
    cpu_millis: int = 0
    memory_mib: int = 0
    device_millis: int = 0
    """Of its one device, when it takes a part of it; 0: all of each."""


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of one task, from its placement until its host has reaped it."""

    key: str
    job: str
    role: str
    index: int
    generation: int
    gang: str
    host: str
    status: TaskStatus
    placed_ms: int
    devices: tuple[int, ...] = ()
    cpu_millis: int = 0
    memory_mib: int = 0
    device_millis: int = 0
    """Of its one device, when it takes a part of it; 0: all of each."""
    pid: int = 0
    step: int = -1
    progress_ms: int = 0
    stop_deadline_ms: int = 0
    stop_grace_ms: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    succeeded: bool = False
    paced_steps: int = 0
    """Steps since the gang's pace was last judged, and the time they took."""
    paced_us: int = 0
    weights: int = 0
    """Version of the job's weights that it told to work with; 0: none."""
    standby: bool = False
    """It waits beside its gang to take a rank, and is none yet: it keeps its key when it does."""


class Burst(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of the failures that ended a generation, the one taken for the first, and how many others
    there were (`core/causes/attribution.py`)."""

    weight: int
    """The lower, the likelier it is the root."""
    subject: str
    host: str = ""
    """Where it happened; empty where that cannot be said."""
    rank: int = -1
    at_ms: int = 0
    """When, by its host's clock; 0: not known."""
    complaints: int = 0
    """Tasks that ended because they waited for another one in vain."""
    silent: int = 0
    """Tasks that were ended by us and had said nothing."""
    silent_task: str = ""
    """The first of those."""
    missing: tuple[int, ...] = ()
    """Ranks known not to have joined a collective operation."""


NO_BURST = Burst(99, "")


class Pacing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How fast a gang progresses (`core/causes/pace.py`)."""

    generation: int = 0
    advanced_ms: int = 0
    """Log time at which a task first finished its furthest step."""
    intervals_ms: tuple[int, ...] = ()
    """Between such times, the newest last."""
    judged_generation: int = 0
    judged_step: int = -1
    slow: tuple[int, ...] = ()
    """Ranks that were slow when last looked at, ascending."""
    slow_times: tuple[int, ...] = ()
    """How many times in a row each of them was."""


NO_PACING = Pacing()


class Gang(msgspec.Struct, frozen=True, omit_defaults=True):
    """What starts, stops and restarts as one. `index` is -1 for a whole role."""

    key: str
    job: str
    role: str
    index: int
    phase: GangPhase
    desired: int
    """Tasks wanted at the next start."""
    size: int = 0
    """Tasks of the current generation."""
    generation: int = 0
    live: tuple[str, ...] = ()
    """Keys of this generation's tasks that are neither reaped, lost nor abandoned."""
    succeeded: int = 0
    """Tasks of this generation that exited with success."""
    started: int = 0
    stop_cause: FailureCause = FailureCause.NONE
    stop_final: str = ""
    """While stopping: `succeed`, `cancel`, `fail`, `remove`, or empty for a restart."""
    fail_reason: str = ""
    fail_detail: str = ""
    cause: str = ""
    """The decision or event that gave it its phase."""
    queue_reason: QueueReason = QueueReason.NONE
    queue_detail: str = ""
    backoff_ms: int = 0
    """While stopping: how long to wait before the next start."""
    not_before_ms: int = 0
    holds: tuple[Hold, ...] = ()
    holds_until_ms: int = 0
    hosts: tuple[str, ...] = ()
    """Host of each index in this generation, or in the last one while waiting."""
    address: str = ""
    """Of the host of index 0, as it was when the generation was placed."""
    port: int = 0
    """Where index 0 listens for the others."""
    awaits_fence: tuple[str, ...] = ()
    """Tasks of an exclusive gang that may still run: on a lost host, or unkillable."""
    restarts_user: int = 0
    restarts_infrastructure: int = 0
    restarts_preemption: int = 0
    restarts_unknown: int = 0
    restarts: int = 0
    """All generations after the first."""
    barren: int = 0
    """Failed generations in a row that did not pass `best_step`."""
    best_step: int = -1
    step: int = -1
    """The furthest step any task of this generation reported."""
    progress_ms: int = 0
    began_ms: int = 0
    """Log time of this generation's first progress; 0: none yet."""
    restore: str = ""
    restore_step: int = -1
    rolled_back: int = 0
    """The newest generation that somebody took back: what it still saves is set aside at once."""
    incident: int = 0
    """The open incident, 0 when there is none."""
    submitted: int = 0
    """Log index at which its job was submitted: its place in the queue."""
    burst: Burst = NO_BURST
    """Of the generation that its open incident ended."""
    pacing: Pacing = NO_PACING
    claim: int = 0
    """Replicas that its queue is charged with: those of its generation until it ends, those it is
    to return to while its places are kept, those that others are being stopped for."""
    victims: tuple[str, ...] = ()
    """Gangs that are stopping to make room for it."""
    yields_to: str = ""
    """While stopping: the gang that gets its place."""
    reserving: bool = False
    """It is the first that lacks room: what it could use of `reserved` goes to none behind it."""
    reserved: tuple[str, ...] = ()
    """While `reserving`: the host chosen for each of its replicas."""
    together: int = 0
    """Incident that it stopped for with others of its job: none starts before all have stopped."""
    spares: int = 0
    """Places to be kept beside it while it runs."""
    grows_from_ms: int = 0
    """Log time from which on it may grow again."""
    weights: int = 0
    """Version of the job's weights that this generation was told to begin with; 0: none."""
    weights_uri: str = ""
    standbys: tuple[str, ...] = ()
    """Keys of tasks that wait beside it, in order of their launch (`core/recovery/standbys.py`)."""
    standby_ends: int = 0
    """How many of them have ended by themselves in this generation."""
    standby_from_ms: int = 0
    """Log time until when no other one is launched; 0: now."""

    @property
    def processes(self) -> tuple[str, ...]:
        """Keys of all that it runs, and of what waits beside it."""
        return (*self.live, *self.standbys) if self.standbys else self.live

    def __post_init__(self) -> None:
        # As `canonical` does, for the two fields that need it: rows of gangs change often.
        if self.burst is not NO_BURST and self.burst == NO_BURST:
            msgspec.structs.force_setattr(self, "burst", NO_BURST)
        if self.pacing is not NO_PACING and self.pacing == NO_PACING:
            msgspec.structs.force_setattr(self, "pacing", NO_PACING)


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job and how far it is. `replicas` holds what each role currently wants, in role order."""

    name: str
    spec: JobSpec
    status: JobStatus
    submitted: int
    submitted_ms: int
    replicas: tuple[int, ...]
    generation: int = 0
    """The highest given to any gang of the job."""
    gangs: tuple[str, ...] = ()
    actor: str = ""
    ending: str = ""
    """The status it will end with, once nothing of it runs."""
    reason: str = ""
    detail: str = ""
    ended_ms: int = 0
    ended: int = 0
    """Log index at which it ended; 0 while it has not."""


class Queue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue as it is configured."""

    name: str
    spec: QueueSpec
    configured: int
    """Log index at which it was configured last."""
    actor: str = ""
    reason: str = ""
    overdrawn: int = 0
    """What it used, in thousandths of devices, when it was configured to less than that."""


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A save in progress or done. `shards` has one digest per index, empty where missing."""

    gang: str
    generation: int
    step: int
    path: str
    shards: tuple[str, ...]
    committed: bool = False
    committed_at: int = 0
    """Log index."""
    set_aside: int = 0
    """Log index since which it is offered no more, because somebody went back to an older one; 0:
    it is offered."""


class Incident(msgspec.Struct, frozen=True, omit_defaults=True):
    """From the first evidence to the first progress after it. Times in log milliseconds, -1: not
    yet."""

    incident: int
    job: str
    gang: str
    generation: int
    """The generation it ended."""
    cause: FailureCause
    subject: str
    detail: str
    opened: int
    """Log index of the evidence."""
    last_sign_ms: int
    opened_ms: int
    stopped_ms: int = -1
    placed_ms: int = -1
    started_ms: int = -1
    closed_ms: int = -1
    failed_step: int = -1
    restored_step: int = -1
    lost_steps: int = 0
    resolved: bool = False
    evidence_ms: int = -1
    """When there was something to see first: before a host is lost, it is suspected."""
    host: str = ""
    """Where it began, as far as is known; empty where that cannot be said."""
    closed: int = 0
    """Log index at which it was closed."""
    began_ms: int = -1
    """When the generation that it ended made its first progress; -1: never."""
    begun_step: int = 0
    """What that generation was restored from."""
    device_millis: int = 0
    """Thousandths of devices of the generation that it ended."""
    held_millis: int = 0
    """Of those, kept for the gang when its last task was gone."""
    with_millis: int = 0
    """Of gangs that stopped with it."""
    follows: int = 0
    """The incident that was still open when this one began; 0: none."""
    idle_ms: int = 0
    """How long those that were kept for it waited."""
    cost: IncidentCost = NO_COST

    def __post_init__(self) -> None:
        canonical(self)


TYPICAL = "typical"
"""The key of the only row of its table."""
