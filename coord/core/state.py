"""Everything the state machine knows, as tables of frozen structs, and what is derived from them.

A row is replaced and never edited, so a reader's snapshot (`State.view`) is a shallow copy. Each
table remembers which keys changed, so that the shell can write just those (`take_changes`).
"""

from __future__ import annotations

import hashlib
from typing import Any, Generic, TypeVar

import msgspec

from coord.core.queueing.claims import Claims
from coord.core.recovery.recovering import Recovering
from coord.core.timers import Timers
from coord.model.care import Maintenance, Quarantine, Silence
from coord.model.cost import IncidentTotal
from coord.model.entities import (
    ENDED_GANG,
    FINISHED_JOB,
    Checkpoint,
    Gang,
    GangPhase,
    Host,
    HostStatus,
    Incident,
    Job,
    Queue,
    Task,
)
from coord.model.evidence import Attribution, HostEvidence
from coord.model.place import Located, Switch
from coord.model.requests import RequestLog
from coord.model.roster import Roster
from coord.model.settings import Settings
from coord.model.typical import Typical
from coord.model.weights import Weights

Row = TypeVar("Row")

LIVE_HOST = (HostStatus.UP, HostStatus.SUSPECT)

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class Table(dict[str, Row], Generic[Row]):
    """A dict that remembers which keys changed. Write only through `put` and `drop`."""

    def __init__(self, rows: dict[str, Row] | None = None) -> None:
        super().__init__(rows or {})
        self.changed: dict[str, None] = {}

    def put(self, key: str, row: Row) -> None:
        self[key] = row
        self.changed[key] = None

    def drop(self, key: str) -> None:
        if self.pop(key, None) is not None:
            self.changed[key] = None


class Meta(msgspec.Struct):
    """Where the machine stands. `now_ms` is log time: 0 at the first entry, forward only.

    `digest` chains every entry with what was made of it, 16 bytes in hex.
    """

    applied_index: int = 0
    term: int = 0
    leader: int = 0
    now_ms: int = 0
    wall_ms: int = 0
    logic_version: int = 1
    cluster: str = ""
    settings: Settings = Settings()
    digest: str = "0" * 32
    incidents: int = 0
    """How many were ever opened: the newest one's number."""
    frozen: bool = False
    """Too many hosts are silent at once: none is declared lost."""
    evictions_allowed_until_ms: int = 0
    recent_losses_ms: tuple[int, ...] = ()
    """When hosts were declared lost, within the breaker's window."""


TABLES: dict[str, type[Any]] = {
    "hosts": Host,
    "jobs": Job,
    "gangs": Gang,
    "tasks": Task,
    "checkpoints": Checkpoint,
    "incidents": Incident,
    "requests": RequestLog,
    "evidence": HostEvidence,
    "attributions": Attribution,
    "topology": Located,
    "switches": Switch,
    "queues": Queue,
    "quarantines": Quarantine,
    "silences": Silence,
    "maintenances": Maintenance,
    "typical": Typical,
    "weights": Weights,
    "incident_totals": IncidentTotal,
    "rosters": Roster,
}
_ALWAYS_STATED = ("hosts", "jobs", "gangs", "tasks", "checkpoints", "incidents", "requests")
"""A table that came later is left out while it is empty, so that old states keep their digest."""

_DECODERS = {name: msgspec.msgpack.Decoder(row_type) for name, row_type in TABLES.items()}
_META_DECODER = msgspec.msgpack.Decoder(Meta)
_BEATS_DECODER = msgspec.msgpack.Decoder(list[int])
_STATE_DECODER = msgspec.msgpack.Decoder(dict[str, dict[str, bytes]])


class State:
    """The tables, and beside them indexes that follow from the tables (`_derive`)."""

    seatings: dict[str, Any] = {}
    """How large gangs lie on their hosts (`plans.Seating`), kept while they are placed so. Replaced
    and never edited, so that copies may share it."""

    hosts: Table[Host]
    jobs: Table[Job]
    gangs: Table[Gang]
    tasks: Table[Task]
    checkpoints: Table[Checkpoint]
    incidents: Table[Incident]
    requests: Table[RequestLog]
    evidence: Table[HostEvidence]
    """By host."""
    attributions: Table[Attribution]
    """By number of the incident; the newest ones."""
    topology: Table[Located]
    """By host: what was imported of it, whether it has registered or not."""
    switches: Table[Switch]
    queues: Table[Queue]
    quarantines: Table[Quarantine]
    """By host: on its way out of the fleet and back, or remembered to have been."""
    silences: Table[Silence]
    """By `level:domain`."""
    maintenances: Table[Maintenance]
    """By number."""
    typical: Table[Typical]
    """Under TYPICAL: which shapes of jobs were seen."""
    weights: Table[Weights]
    """By job: the newest that it published."""
    incident_totals: Table[IncidentTotal]
    """By cause: what all incidents cost that were ever closed."""
    rosters: Table[Roster]
    """By relay."""

    def __init__(self) -> None:
        self.meta = Meta()
        for name in TABLES:
            setattr(self, name, Table())
        self.last_seen_ms: list[int] = []
        """By slot: log time at which the host was last heard."""
        # Derived from here on.
        self.slots: list[str] = []
        self.live_incarnations: list[int] = []
        """By slot: the incarnation whose heartbeats count, 0 when the host is not live."""
        self.attentive: dict[int, None] = {}
        """Slots whose next heartbeat changes the host's row."""
        self.relay_of: dict[int, str] = {}
        """Slot -> the relay in whose roster it stands."""
        self.waiting: dict[str, None] = {}
        """Gangs that want a place."""
        self.claims = Claims()
        """What queues and owners are charged with."""
        self.recovering = Recovering()
        """Which gangs stop together, and which keep spares."""
        self.finished: dict[str, None] = {}
        """Ended jobs, in the order of their end."""
        self.checkpoints_by_gang: dict[str, tuple[str, ...]] = {}
        self.rooms: Any = None
        """What tasks leave free on hosts (`placement.Rooms`), but for those of `moved`."""
        self.moved: dict[str, None] = {}
        """Hosts whose rows changed since their rooms were counted."""
        self.replanned: dict[str, None] = {}
        """Hosts whose plans are of another version since whoever delivers plans emptied this."""
        self.timers = Timers()

    def table(self, name: str) -> Table[Any]:
        found: Table[Any] = getattr(self, name)
        return found

    def view(self) -> State:
        """A copy that later entries do not touch. For reading only: it has no timers."""
        copy = State.__new__(State)
        copy.meta = msgspec.structs.replace(self.meta)
        for name in TABLES:
            setattr(copy, name, Table(self.table(name)))
        copy.last_seen_ms = list(self.last_seen_ms)
        copy.slots = list(self.slots)
        copy.live_incarnations = list(self.live_incarnations)
        copy.attentive = {}
        copy.relay_of = dict(self.relay_of)
        copy.waiting = dict(self.waiting)
        copy.claims = self.claims.copy()
        copy.recovering = self.recovering.copy()
        copy.finished = dict(self.finished)
        copy.checkpoints_by_gang = dict(self.checkpoints_by_gang)
        copy.rooms, copy.moved, copy.replanned = None, {}, {}
        copy.timers = Timers()
        return copy

    def put_host(self, host: Host) -> None:
        """Store the row and keep what is derived from it right."""
        before = self.hosts.get(host.host)
        if (
            before is None
            or before.plan_version != host.plan_version
            or before.incarnation != host.incarnation
        ):
            self.replanned[host.host] = None
        self.hosts.put(host.host, host)
        self.moved[host.host] = None
        live = host.status in LIVE_HOST
        self.live_incarnations[host.slot] = host.incarnation if live else 0
        if live and (host.status == HostStatus.SUSPECT or host.extensions):
            self.attentive[host.slot] = None
        else:
            self.attentive.pop(host.slot, None)

    def put_gang(self, gang: Gang) -> None:
        """Store the row and keep the queue right."""
        before = self.gangs.get(gang.key)
        self.claims.note(gang, before, self.jobs)
        self.recovering.note(gang, before)
        self.gangs.put(gang.key, gang)
        if gang.phase == GangPhase.WAITING:
            self.waiting[gang.key] = None
        else:
            self.waiting.pop(gang.key, None)

    def put_job(self, job: Job) -> None:
        self.jobs.put(job.name, job)
        if job.status in FINISHED_JOB:
            self.finished.setdefault(job.name, None)

    def put_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        if key not in self.checkpoints:
            kept = self.checkpoints_by_gang.get(checkpoint.gang, ())
            self.checkpoints_by_gang[checkpoint.gang] = (*kept, key)
        self.checkpoints.put(key, checkpoint)

    def drop_checkpoint(self, key: str) -> None:
        gang = self.checkpoints[key].gang
        left = tuple(kept for kept in self.checkpoints_by_gang.get(gang, ()) if kept != key)
        self.checkpoints_by_gang[gang] = left
        self.checkpoints.drop(key)

    def newest_checkpoint(self, gang: str) -> Checkpoint | None:
        """The committed one with the highest step that is not set aside: where a restart begins."""
        newest = None
        for key in self.checkpoints_by_gang.get(gang, ()):
            checkpoint = self.checkpoints[key]
            if checkpoint.set_aside:
                continue
            if checkpoint.committed and (newest is None or checkpoint.step > newest.step):
                newest = checkpoint
        return newest


def new_state() -> State:
    """Before the first entry."""
    return State()


def take_changes(state: State) -> dict[str, dict[str, bytes | None]]:
    """Rows changed since the last call, encoded, None for a dropped one: table -> key -> row."""
    changes: dict[str, dict[str, bytes | None]] = {}
    for name in TABLES:
        table = state.table(name)
        if table.changed:
            changes[name] = {
                key: _ENCODER.encode(table[key]) if key in table else None for key in table.changed
            }
            table.changed = {}
    changes["meta"] = {"meta": _ENCODER.encode(state.meta)}
    changes["beats"] = {"beats": _ENCODER.encode(state.last_seen_ms)}
    return changes


def state_rows(state: State) -> dict[str, dict[str, bytes]]:
    """Every row, encoded, keys ascending. What `state_from_rows` takes."""
    rows = {
        name: {key: _ENCODER.encode(state.table(name)[key]) for key in sorted(state.table(name))}
        for name in TABLES
        if name in _ALWAYS_STATED or state.table(name)
    }
    rows["meta"] = {"meta": _ENCODER.encode(state.meta)}
    rows["beats"] = {"beats": _ENCODER.encode(state.last_seen_ms)}
    return rows


def state_from_rows(rows: dict[str, dict[str, bytes]]) -> State:
    """The state that these rows hold; without rows, the state before the first entry.

    Raises msgspec.DecodeError or msgspec.ValidationError when a row is not one.
    """
    state = State()
    for name, decoder in _DECODERS.items():
        stored = rows.get(name, {})
        setattr(state, name, Table({key: decoder.decode(stored[key]) for key in sorted(stored)}))
    if "meta" in rows:
        state.meta = _META_DECODER.decode(rows["meta"]["meta"])
    if "beats" in rows:
        state.last_seen_ms = _BEATS_DECODER.decode(rows["beats"]["beats"])
    _derive(state)
    return state


def encode_state(state: State) -> bytes:
    """The whole state, the same bytes for equal states."""
    return _ENCODER.encode(state_rows(state))


def decode_state(encoded: bytes) -> State:
    """The inverse of `encode_state`; empty bytes give the state before the first entry."""
    return state_from_rows(_STATE_DECODER.decode(encoded) if encoded else {})


def state_digest(state: State) -> str:
    """Of every row; 16 bytes in hex."""
    return hashlib.blake2b(encode_state(state), digest_size=16).hexdigest()


def _derive(state: State) -> None:
    by_slot = sorted(state.hosts.values(), key=lambda host: host.slot)
    state.slots = [host.host for host in by_slot]
    state.live_incarnations = [0] * len(by_slot)
    for host in by_slot:
        state.put_host(host)
    for gang in list(state.gangs.values()):
        state.put_gang(gang)
    ended = [job for job in state.jobs.values() if job.status in FINISHED_JOB]
    for job in sorted(ended, key=lambda job: (job.ended, job.name)):
        state.finished[job.name] = None
    # The request of longest ago comes first, as if each use had moved its client to the end.
    by_use = sorted(state.requests.values(), key=lambda log: (log.last_used, log.client))
    state.requests = Table({log.client: log for log in by_use})
    for key, checkpoint in state.checkpoints.items():
        kept = state.checkpoints_by_gang.get(checkpoint.gang, ())
        state.checkpoints_by_gang[checkpoint.gang] = (*kept, key)
    for roster in state.rosters.values():
        state.relay_of.update(dict.fromkeys(roster.slots, roster.relay))
    state.replanned = {}
    state.hosts.changed = {}
    state.gangs.changed = {}
    _arm_all(state)


def _arm_all(state: State) -> None:
    # Every timer may wake too early, never too late: what is due is then read from the row.
    for name, host in state.hosts.items():
        if host.status != HostStatus.REMOVED:
            state.timers.arm("host", name, state.meta.now_ms)
        if host.move_by_ms:
            state.timers.arm("moves", name, state.meta.now_ms)
    for gang in state.gangs.values():
        if gang.phase not in ENDED_GANG:
            state.timers.arm("gang", gang.key, state.meta.now_ms)
    for key in state.tasks:
        state.timers.arm("task", key, state.meta.now_ms)
    for name in state.quarantines:
        state.timers.arm("quarantine", name, state.meta.now_ms)
    for key in state.silences:
        state.timers.arm("silence", key, state.meta.now_ms)
    for relay in state.rosters:
        state.timers.arm("roster", relay, state.meta.now_ms)
    for key, maintenance in state.maintenances.items():
        if not maintenance.ending:
            state.timers.arm("maintenance", key, state.meta.now_ms)
