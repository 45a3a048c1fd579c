"""The asynchronous client: writes over the channel, reads over HTTP. README.md has the table."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from coord.client.channel import Dialer, WebSocketDialer
from coord.client.errors import ClientClosed, DoneButUnread, NotDone, Rejected, Unavailable
from coord.client.http import Http
from coord.client.servers import ServerRing
from coord.client.topology import parts
from coord.client.views import (
    ClusterView,
    Decided,
    EventPage,
    HostList,
    HostView,
    IncidentList,
    IncidentView,
    JobList,
    JobView,
    LogPage,
    MaintenanceList,
    MaintenanceView,
    QueueList,
    QueueView,
    TopologyView,
)
from coord.client.watch import watch_events
from coord.client.writer import Writer
from coord.model.channel import Hello
from coord.model.cost import IncidentTotal
from coord.model.entry import Recorded
from coord.model.events import (
    AnyEvent,
    CollectiveTimedOut,
    DrainRequested,
    EvictionsAllowed,
    HostQuarantineRequested,
    HostReleaseRequested,
    HostRemovalRequested,
    JobCancelRequested,
    JobResizeRequested,
    JobSubmitted,
    MaintenanceCancelled,
    MaintenanceRequested,
    NoteAdded,
    QuarantineAnswered,
    QueueConfigured,
    QueueRemoved,
    RollbackRequested,
    TopologyImported,
    UndrainRequested,
)
from coord.model.place import Located, Switch
from coord.model.queue import QueueSpec
from coord.model.rejections import Rejection
from coord.model.spec import JobSpec
from coord.model.why import JobWhy

CHANGE_TIMEOUT_S = 15.0
"""Servers take up to 10 s over a change of members, and say then what became of it."""

View = TypeVar("View")
IncidentFormat = Literal["binary", "jsonl"]


class Client:
    """A conversation with a cluster, as `actor` (a person's name, recorded with what they ask).

    `async with Client(["http://127.0.0.1:7101", ...], actor="alice") as client:`; any server of the
    cluster will do, and names the others; several given survive the loss of one before that. For
    the loop it was opened on; many tasks may use it at once. `timeout_s` bounds each call. Methods
    that change something return once it is decided and have effect exactly once. Reads show
    everything acknowledged before them, unless `stale=True` (here: all reads). Errors:
    `coord.client.errors`. Raises ValueError for a malformed address.
    """

    def __init__(
        self,
        servers: Iterable[str],
        *,
        actor: str = "",
        cluster: str = "",
        timeout_s: float = 10.0,
        stale: bool = False,
        dialer: Dialer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        servers = tuple(servers)
        self.actor = actor
        self.timeout_s = timeout_s
        self._stale = stale
        self._rng = rng or random.Random()
        self._write_ring = ServerRing(servers)
        self._read_ring = ServerRing(servers)
        self._dialer = dialer or WebSocketDialer()
        self._hello = Hello(f"client:{self._rng.getrandbits(64):016x}", cluster)
        self._open_writer: Writer | None = None
        self._open_http: Http | None = None

    async def __aenter__(self) -> Self:
        self._open_writer = Writer(self._write_ring, self._dialer, self._hello, self._rng)
        self._open_http = Http(self._read_ring, self.actor, self._rng, self.learn_servers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the loop clean. Calls under way end with OutcomeUnknown or ClientClosed."""
        writer, self._open_writer = self._open_writer, None
        http, self._open_http = self._open_http, None
        if writer is not None:
            await writer.close()
        if http is not None:
            await http.close()
        await self._dialer.close()

    # Writes

    async def submit(self, event: AnyEvent, *, timeout_s: float | None = None) -> Decided:
        """Have any event decided. Many at once share messages and commits."""
        writer = self._open_writer
        if writer is None:
            raise ClientClosed
        return await writer.write(event, self.timeout_s if timeout_s is None else timeout_s)

    async def submit_job(self, spec: JobSpec) -> JobView:
        """Ask for a job. Raises Rejected: `duplicate_job`, `invalid`."""
        decided = await self.submit(JobSubmitted(spec, self.actor))
        return await self._read_back(decided, _job_path(spec.name), JobView)

    async def cancel_job(self, name: str, *, reason: str = "") -> JobView:
        """End a job now. Raises Rejected: `unknown_job`, `job_finished`."""
        decided = await self.submit(JobCancelRequested(name, self.actor, reason))
        return await self._read_back(decided, _job_path(name), JobView)

    async def resize_job(self, name: str, role: str, replicas: int, *, reason: str = "") -> JobView:
        """Want another number of replicas. Raises Rejected: `out_of_range`, `unknown_role`, ..."""
        event = JobResizeRequested(name, role, replicas, self.actor, reason)
        return await self._read_back(await self.submit(event), _job_path(name), JobView)

    async def roll_back_job(
        self, name: str, *, step: int = -1, back: int = 0, role: str = "", reason: str = ""
    ) -> JobView:
        """Go on from the checkpoint of that step, or from the one `back` before the newest. Raises
        Rejected: `unknown_checkpoint`, `nothing_to_do` where it is there already, ..."""
        event = RollbackRequested(name, step, back, role, self.actor, reason)
        return await self._read_back(await self.submit(event), _job_path(name), JobView)

    async def record_collective_timeout(self, event: CollectiveTimedOut) -> Decided:
        """Record what was read from ranks that waited in vain, in the caller's name. It ends the
        generation. Raises Rejected: `unknown_task`, `stale_generation`, `invalid`."""
        said = replace(event, host="", incarnation=0, actor=self.actor)
        return await self.submit(said)

    async def set_queue(self, spec: QueueSpec, *, reason: str = "") -> QueueView:
        """Say what a queue is, new or known. Raises Rejected: `invalid`, `nothing_to_do`."""
        decided = await self.submit(QueueConfigured(spec, self.actor, reason))
        return await self._read_back(decided, _queue_path(spec.name), QueueView)

    async def remove_queue(self, name: str, *, reason: str = "") -> Decided:
        """Raises Rejected: `unknown_queue`, `queue_busy` while jobs of it have not ended."""
        return await self.submit(QueueRemoved(name, self.actor, reason))

    async def drain(self, host: str, *, reason: str = "", within_ms: int = 0) -> HostView:
        """Empty a host: at once, or, within a time, each gang when it has saved.

        Raises Rejected: `unknown_host`, `nothing_to_do`.
        """
        decided = await self.submit(DrainRequested(host, self.actor, reason, within_ms))
        return await self._read_back(decided, _host_path(host), HostView)

    async def undrain(self, host: str, *, reason: str = "") -> HostView:
        """Give a drained or quarantined host back to the fleet."""
        decided = await self.submit(UndrainRequested(host, self.actor, reason))
        return await self._read_back(decided, _host_path(host), HostView)

    async def quarantine(self, host: str, *, reason: str = "") -> HostView:
        """Take a host out of the fleet until it has been tested. Raises Rejected."""
        decided = await self.submit(HostQuarantineRequested(host, self.actor, reason))
        return await self._read_back(decided, _host_path(host), HostView)

    async def answer_quarantine(
        self, host: str, version: int, *, approved: bool, reason: str = ""
    ) -> HostView:
        """Answer a proposal as it stood at `version`. Raises Rejected: `stale_proposal`, ..."""
        event = QuarantineAnswered(host, version, approved, self.actor, reason)
        return await self._read_back(await self.submit(event), _host_path(host), HostView)

    async def release(self, host: str, *, reason: str = "", repaired: bool = False) -> HostView:
        """End a quarantine; `repaired`: nothing is held against the host any more."""
        event = HostReleaseRequested(host, self.actor, reason, repaired)
        return await self._read_back(await self.submit(event), _host_path(host), HostView)

    async def start_maintenance(
        self,
        level: str,
        domain: str,
        *,
        limit: int = 1,
        within_ms: int = 0,
        safe: bool = False,
        reason: str = "",
    ) -> MaintenanceView:
        """Take the hosts of a domain out in turn (`coord.model.events.MaintenanceRequested`).

        Raises Rejected: `unknown_domain`, `maintenance_active`, `invalid`.
        """
        event = MaintenanceRequested(level, domain, limit, self.actor, reason, within_ms, safe)
        decided = await self.submit(event)
        path = f"/v1/maintenances/{decided.result}"
        return await self._read_back(decided, path, MaintenanceView)

    async def cancel_maintenance(self, number: int, *, reason: str = "") -> MaintenanceView:
        """Take no further host. Raises Rejected: `unknown_maintenance`."""
        decided = await self.submit(MaintenanceCancelled(number, self.actor, reason))
        return await self._read_back(decided, f"/v1/maintenances/{number}", MaintenanceView)

    async def remove_host(self, host: str, *, reason: str = "") -> Decided:
        """Forget a drained or lost host. Raises Rejected: `host_busy`, `unknown_host`."""
        return await self.submit(HostRemovalRequested(host, self.actor, reason))

    async def note(self, subject: str, text: str) -> Decided:
        """Write something into the log, to be read with the events around it."""
        return await self.submit(NoteAdded(self.actor, subject, text))

    async def allow_evictions(self, *, reason: str = "") -> Decided:
        """Let silent hosts be declared lost although so many are silent at once."""
        return await self.submit(EvictionsAllowed(self.actor, reason))

    async def import_topology(
        self,
        hosts: Iterable[Located],
        switches: Iterable[Switch] = (),
        *,
        source: str = "",
        merge: bool = False,
    ) -> Decided:
        """Say where hosts stand, instead of all that was said before; with `merge`, beside it.

        A large one goes in parts, one after the other. `result` counts the registered hosts that
        stand elsewhere now. Raises Rejected: `unknown_switch`, `cycle`, `duplicate_name`,
        `nothing_to_do`, `invalid`.
        """
        whole = TopologyImported(tuple(hosts), tuple(switches), source, self.actor, merge)
        done = Decided(0)
        pieces = parts(whole)
        for piece in pieces:
            try:
                decided = await self.submit(piece)
                done = Decided(decided.index, done.result + decided.result)
            except Rejected as rejected:
                last = piece is pieces[-1] and not done.index
                if rejected.rejection != Rejection.NOTHING_TO_DO or last:
                    raise
        return done

    # Reads

    async def topology(self, *, stale: bool = False) -> TopologyView:
        """Where hosts stand, and how they are."""
        return await self._get("/v1/topology", TopologyView, stale)

    async def jobs(self, *, stale: bool = False) -> list[JobView]:
        """All jobs, oldest first."""
        listed = await self._get("/v1/jobs", JobList, stale)
        return [replace(view, applied_index=listed.applied_index) for view in listed.jobs]

    async def job(self, name: str, *, stale: bool = False) -> JobView:
        """Raises NotFound."""
        return await self._get(_job_path(name), JobView, stale)

    async def why(self, name: str, *, stale: bool = False) -> JobWhy:
        """Why a job waits, or where it went: what was asked of hosts, and what excluded each.
        Raises NotFound."""
        return await self._get(f"{_job_path(name)}/why", JobWhy, stale)

    async def queues(self, *, stale: bool = False) -> list[QueueView]:
        """All queues by name; last, without a name, the one that needs no configuration."""
        listed = await self._get("/v1/queues", QueueList, stale)
        return [replace(view, applied_index=listed.applied_index) for view in listed.queues]

    async def queue(self, name: str, *, stale: bool = False) -> QueueView:
        """Raises NotFound."""
        return await self._get(_queue_path(name), QueueView, stale)

    async def hosts(self, *, stale: bool = False) -> list[HostView]:
        """All hosts, by id."""
        listed = await self._get("/v1/hosts", HostList, stale)
        return [replace(view, applied_index=listed.applied_index) for view in listed.hosts]

    async def host(self, host: str, *, stale: bool = False) -> HostView:
        """Raises NotFound."""
        return await self._get(_host_path(host), HostView, stale)

    async def maintenances(self, *, stale: bool = False) -> list[MaintenanceView]:
        """Rolling maintenances, oldest first; ended ones for a while."""
        listed = await self._get("/v1/maintenances", MaintenanceList, stale)
        return [replace(view, applied_index=listed.applied_index) for view in listed.maintenances]

    async def maintenance(self, number: int, *, stale: bool = False) -> MaintenanceView:
        """Raises NotFound."""
        return await self._get(f"/v1/maintenances/{number}", MaintenanceView, stale)

    async def incidents(self, *, stale: bool = False) -> list[IncidentView]:
        """What went wrong and what it cost, oldest first."""
        listed = await self._get("/v1/incidents", IncidentList, stale)
        return [replace(view, applied_index=listed.applied_index) for view in listed.incidents]

    async def incident_totals(self, *, stale: bool = False) -> list[IncidentTotal]:
        """What all incidents cost that were ever closed, by cause; forgotten ones too. Empty while
        the cluster goes by logic version 1."""
        return list((await self._get("/v1/incidents", IncidentList, stale)).totals)

    async def cluster(self, *, stale: bool = False) -> ClusterView:
        """The servers, who leads, how far the log is."""
        return await self._get("/v1/cluster", ClusterView, stale)

    async def events(
        self, start: int = 1, limit: int = 1_000, *, wait_ms: int = 0, stale: bool = False
    ) -> EventPage:
        """At most `limit` entries from index `start` on. While there is none, a server holds the
        request open for up to `wait_ms`. Raises EventsGone."""
        params: dict[str, str | int] = {"from": start, "limit": limit, "wait_ms": wait_ms}
        return await self._get("/v1/events", EventPage, stale, params, wait_ms)

    def watch(
        self,
        start: int | None = None,
        *,
        stale: bool = False,
        patience_s: float = 60.0,
        on_trouble: Callable[[Unavailable], object] | None = None,
    ) -> AsyncGenerator[Recorded, None]:
        """Entries from index `start` on, each once and in order; None: those that come from now on.

        Goes on by index with another server when one fails; raises Unavailable once none has
        answered for `patience_s`, EventsGone when entries were deleted before they were read.
        `on_trouble` hears of every `timeout_s` that went by without an answer.
        """
        return watch_events(
            self._http(),
            start,
            stale=stale or self._stale,
            timeout_s=self.timeout_s,
            patience_s=patience_s,
            rng=self._rng,
            on_trouble=on_trouble,
        )

    async def read_log(
        self,
        name: str,
        *,
        role: str = "",
        index: int = 0,
        generation: int = 0,
        stream: str = "stdout",
        offset: int = 0,
        limit: int = 65_536,
        wait_ms: int = 0,
    ) -> LogPage:
        """A piece of what a task printed, from byte `offset` on.

        Empty `role`: the first; `generation` 0: the newest. Waits up to `wait_ms` while there is
        nothing new. Raises NotFound; Unavailable when the task's host is away.
        """
        params: dict[str, str | int] = {
            "role": role,
            "index": index,
            "generation": generation,
            "stream": stream,
            "offset": offset,
            "limit": limit,
            "wait_ms": wait_ms,
        }
        return await self._get(f"{_job_path(name)}/logs", LogPage, False, params, wait_ms)

    async def export_incident(
        self,
        file: BinaryIO,
        *,
        start: int = 0,
        stop: int = 0,
        format: IncidentFormat = "binary",
    ) -> int:
        """Write an incident file of the entries `start` (0: the oldest kept) to `stop`, included
        (0: the newest), to `file`; returns its size in bytes. On Unavailable `file` may hold a
        part, which replays as far as it goes."""
        params: dict[str, str | int] = {"format": format}
        if start:
            params["from"] = start
        if stop:
            params["to"] = stop
        return await self._http().download("/v1/incident.log", params, file.write, self.timeout_s)

    # The cluster itself

    async def add_member(self, node: int, peer_address: str, api_address: str) -> None:
        """Make a started, empty server part of the cluster. Addresses are host:port."""
        body = {"node": node, "peer_address": peer_address, "api_address": api_address}
        await self._change("POST", "/v1/cluster/members", body)

    async def remove_member(self, node: int) -> None:
        """Go on without this server."""
        await self._change("DELETE", f"/v1/cluster/members/{node}", {})

    async def transfer(self, node: int = 0) -> None:
        """Let another server lead; 0: the most advanced one."""
        await self._change("POST", "/v1/cluster/transfer", {"node": node})

    async def snapshot(self) -> None:
        """Have the server that answers write a snapshot and shorten its journal."""
        await self._change("POST", "/v1/cluster/snapshot", {})

    def learn_servers(self, api_addresses: list[str]) -> None:
        """Ask these members from now on, besides the servers given. Every answer to a read names
        them by itself; for programs that hear of them in another way."""
        self._read_ring.learn(api_addresses)
        self._write_ring.learn(api_addresses)

    # Inside

    def _http(self) -> Http:
        if self._open_http is None:
            raise ClientClosed
        return self._open_http

    async def _get(
        self,
        path: str,
        kind: type[View],
        stale: bool,
        params: Mapping[str, str | int] | None = None,
        wait_ms: int = 0,
    ) -> View:
        asked = {**(params or {}), **({"stale": 1} if stale or self._stale else {})}
        return await self._http().get(path, kind, asked, self.timeout_s, wait_ms)

    async def _read_back(self, decided: Decided, path: str, kind: type[View]) -> View:
        try:
            return await self._get(path, kind, False)
        except NotDone as error:
            raise DoneButUnread(
                f"decided at index {decided.index}, but reading the result back failed: {error}",
                decided.index,
            ) from error

    async def _change(self, method: str, path: str, body: dict[str, Any]) -> bytes:
        key = f"{self._hello.actor}-{self._rng.getrandbits(64):016x}"
        timeout_s = max(self.timeout_s, CHANGE_TIMEOUT_S)
        return await self._http().change(method, path, body, key, timeout_s)


def _job_path(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _queue_path(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


def _host_path(host: str) -> str:
    return f"/v1/hosts/{quote(host, safe='')}"
