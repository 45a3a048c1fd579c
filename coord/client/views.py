"""What the client's reads return. All frozen; unknown fields of a newer server are ignored."""

from __future__ import annotations

import msgspec

from coord.model.care import Maintenance, Quarantine
from coord.model.cost import IncidentTotal
from coord.model.entities import (
    Checkpoint,
    DrainState,
    Gang,
    Host,
    HostStatus,
    Incident,
    JobStatus,
    Queue,
    Task,
)
from coord.model.entry import Recorded
from coord.model.evidence import HostEvidence
from coord.model.place import NOWHERE, Located, Place, Rail, Switch
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Problem, Resources
from coord.model.weights import Weights


class Decided(msgspec.Struct, frozen=True):
    """A write took effect at log index `index`.

    `result` is what the event asked for where that is a number. An index of 0 means that it was
    decided before and the log no longer says where.
    """

    index: int
    result: int = 0


class QueueView(Queue, frozen=True):
    """A queue with what it uses now, in thousandths of devices.

    `running` is how many of its jobs run, `waiting` which of them wait, first whose turn is next.
    The one without a name is where jobs wait that name none.
    """

    used: int = 0
    borrowed: int = 0
    by_owner: dict[str, int] = {}
    running: int = 0
    waiting: tuple[str, ...] = ()
    applied_index: int = 0


class QueueList(msgspec.Struct, frozen=True):
    queues: tuple[QueueView, ...]
    applied_index: int = 0


class CheckpointView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A committed checkpoint that is remembered. `committed_at` and `set_aside` are log indexes."""

    step: int
    generation: int
    path: str
    committed_at: int
    set_aside: int = 0
    """Since when no restart begins there; 0: one may."""


class GangView(Gang, frozen=True):
    """A gang with the tasks that take something of a host."""

    tasks: tuple[Task, ...] = ()
    checkpoints: tuple[CheckpointView, ...] = ()


class JobView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job (`coord.model.entities.Job`) with its gangs, their tasks and the restore point."""

    name: str
    spec: JobSpec
    status: JobStatus
    submitted: int
    submitted_ms: int
    replicas: tuple[int, ...]
    generation: int = 0
    gangs: tuple[GangView, ...] = ()
    actor: str = ""
    reason: str = ""
    detail: str = ""
    ended_ms: int = 0
    ended: int = 0
    checkpoint: Checkpoint | None = None
    """The newest committed one."""
    weights: Weights | None = None
    """The newest that it published."""
    position: int = 0
    """Which turn it has among those that wait in its queue; 0: it does not wait."""
    warnings: tuple[Problem, ...] = ()
    """While nothing of it has run: why it could not start on the fleet as it is, were it empty. Not
    told in lists."""
    applied_index: int = 0
    """The log index that the answer reflects."""

    @property
    def finished(self) -> bool:
        return self.ended > 0


class HostView(Host, frozen=True):
    """A host with how long ago it was heard and what is free on it."""

    last_seen_ms_ago: int = 0
    free: Resources = Resources()
    move_in_ms: int = 0
    """By when what runs there is to have moved, from now; 0: nothing waits to be moved."""
    quarantined: Quarantine | None = None
    """How far it is on its way out of the fleet and back; None: nothing is known against it."""
    quarantined_ms_ago: int = 0
    """For how long it has been in that state."""
    next_step: str = ""
    """What it waits for, in words."""
    silent_domain: str = ""
    """The failure domain with which it fell silent, such as `rack z1/p1/r7`."""
    evidence: HostEvidence | None = None
    """Health checks, faults of devices, and whether it was blamed; None: nothing is known."""
    applied_index: int = 0


class MaintenanceView(Maintenance, frozen=True):
    """A rolling maintenance and how far it is."""

    applied_index: int = 0


class MaintenanceList(msgspec.Struct, frozen=True):
    maintenances: tuple[MaintenanceView, ...]
    applied_index: int = 0


class IncidentView(Incident, frozen=True):
    """An incident with its durations as far as they are known."""

    applied_index: int = 0


class EventPage(msgspec.Struct, frozen=True):
    """Entries with consecutive indexes. Ask for `next` to go on."""

    events: tuple[Recorded, ...]
    next: int
    first_index: int
    """Of the oldest entry kept."""
    applied_index: int = 0


class MemberView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server of the cluster. Addresses are `host:port`."""

    node: int
    peer_address: str = ""
    api_address: str = ""


class RaftView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the journal of the server asked is. Raft's indexes, not the log's."""

    commit_index: int = 0
    applied_index: int = 0
    first_index: int = 0
    last_index: int = 0
    fsync_ms_last: float = 0.0


class RelayView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A relay. `hosts` live by the beats that it vouches for, through whichever server."""

    relay: str
    hosts: int = 0
    connected: bool = False
    """To the server that answered, not through another relay."""
    conversations: int = 0
    """Behind it there."""


class ClusterView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster as the server `node` sees it."""

    cluster: str
    node: int
    name: str = ""
    version: str = ""
    role: str = ""
    """`leader`, `follower` or `candidate`."""
    term: int = 0
    leader: int = 0
    """0: none is known."""
    leader_api: str = ""
    members: tuple[MemberView, ...] = ()
    connected: tuple[int, ...] = ()
    """Members it has a connection with."""
    read_only: str = ""
    """Why nothing can be written through it; empty when all is well."""
    digest: str = ""
    now_ms: int = 0
    """Log time."""
    logic_version: int = 0
    frozen: bool = False
    """So many hosts are silent that none is declared lost; see `Client.allow_evictions`."""
    settings: Settings = Settings()
    raft: RaftView = RaftView()
    first_index: int = 0
    """Of the oldest entry kept."""
    size_bytes: int = 0
    sessions: int = 0
    """Agents and clients connected to it, those behind relays included."""
    relays: tuple[RelayView, ...] = ()
    applied_index: int = 0


class PlacedHost(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a host stands, by imports over what it announced, and how it is."""

    host: str
    status: HostStatus
    drain: DrainState = DrainState.NONE
    quarantine: str = ""
    place: Place = NOWHERE
    rails: tuple[Rail, ...] = ()
    announced: Located | None = None
    device_type: str = ""
    devices: int = 0
    devices_used: int = 0


class TopologyView(msgspec.Struct, frozen=True):
    """Hosts that are not removed, switches, and all that was imported: of hosts that have not
    registered too. Each by name."""

    hosts: tuple[PlacedHost, ...]
    switches: tuple[Switch, ...]
    imported: tuple[Located, ...]
    applied_index: int = 0


class JobList(msgspec.Struct, frozen=True):
    jobs: tuple[JobView, ...]
    applied_index: int = 0


class HostList(msgspec.Struct, frozen=True):
    hosts: tuple[HostView, ...]
    applied_index: int = 0


class IncidentList(msgspec.Struct, frozen=True):
    incidents: tuple[IncidentView, ...]
    totals: tuple[IncidentTotal, ...] = ()
    applied_index: int = 0


class LogPage(msgspec.Struct, frozen=True):
    """A piece of a task's output.

    `offset` is of the first byte of `data`, counted since the task's start; it is later than asked
    for when the earlier output was rotated away. `ended`: the task has exited and this reaches the
    end.
    """

    data: bytes
    offset: int
    exists: bool = True
    ended: bool = False

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)
