"""A client whose cluster is a state machine in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from coord.api.queues import queue_views
from coord.api.topology import topology_view
from coord.api.views import host_view, job_view, positions, warnings_of
from coord.cli.session import Session
from coord.client.errors import NotFound, Rejected, Unavailable
from coord.client.views import (
    ClusterView,
    Decided,
    EventPage,
    HostView,
    IncidentView,
    JobView,
    LogPage,
    MaintenanceView,
    MemberView,
    QueueView,
    TopologyView,
)
from coord.core.machine import apply
from coord.core.queueing.why import why_job
from coord.core.state import State, new_state
from coord.model.cost import IncidentTotal
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import (
    AnyEvent,
    CollectiveTimedOut,
    DrainRequested,
    HostQuarantineRequested,
    HostReleaseRequested,
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
)
from coord.model.queue import QueueSpec
from coord.model.spec import JobSpec
from coord.model.why import JobWhy

View = TypeVar("View")


class FakeClient:
    """What commands use of `coord.client.Client`. `asked` lists what else was asked of it."""

    def __init__(self, entries: list[Entry], raises: Exception | None = None) -> None:
        self.state: State = new_state()
        self.records: list[Recorded] = [apply(self.state, entry) for entry in entries]
        self.raises = raises
        self.asked: list[tuple[Any, ...]] = []
        self.pages: list[LogPage | Exception] = []
        self.session: Session | None = None
        self.trouble: Unavailable | None = None
        self.connected: tuple[int, ...] = (1,)

    def connect(self, session: Session) -> Self:
        self.session = session
        return self

    async def __aenter__(self) -> Self:
        if self.raises:
            raise self.raises
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    async def submit(self, event: AnyEvent) -> Decided:
        meta = self.state.meta
        index = meta.applied_index + 1
        origin = Origin("client:fake", seq=index)
        record = apply(self.state, Entry(index, meta.term, meta.wall_ms + 10, origin, event))
        self.records.append(record)
        if record.rejection:
            raise Rejected(type(event).__name__, record.rejection, index)
        return Decided(index, record.result)

    async def submit_job(self, spec: JobSpec) -> JobView:
        await self.submit(JobSubmitted(spec, "ann"))
        return await self.job(spec.name)

    async def cancel_job(self, name: str, *, reason: str = "") -> JobView:
        await self.submit(JobCancelRequested(name, "ann", reason))
        return await self.job(name)

    async def resize_job(self, name: str, role: str, replicas: int, *, reason: str = "") -> JobView:
        await self.submit(JobResizeRequested(name, role, replicas, "ann", reason))
        return await self.job(name)

    async def roll_back_job(
        self, name: str, *, step: int = -1, back: int = 0, role: str = "", reason: str = ""
    ) -> JobView:
        await self.submit(RollbackRequested(name, step, back, role, "ann", reason))
        return await self.job(name)

    async def record_collective_timeout(self, event: CollectiveTimedOut) -> Decided:
        return await self.submit(replace(event, host="", incarnation=0, actor="ann"))

    async def drain(self, host: str, *, reason: str = "", within_ms: int = 0) -> HostView:
        await self.submit(DrainRequested(host, "ann", reason, within_ms))
        return await self.host(host)

    async def quarantine(self, host: str, *, reason: str = "") -> HostView:
        await self.submit(HostQuarantineRequested(host, "ann", reason))
        return await self.host(host)

    async def answer_quarantine(
        self, host: str, version: int, *, approved: bool, reason: str = ""
    ) -> HostView:
        await self.submit(QuarantineAnswered(host, version, approved, "ann", reason))
        return await self.host(host)

    async def release(self, host: str, *, reason: str = "", repaired: bool = False) -> HostView:
        await self.submit(HostReleaseRequested(host, "ann", reason, repaired))
        return await self.host(host)

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
        event = MaintenanceRequested(level, domain, limit, "ann", reason, within_ms, safe)
        return await self.maintenance((await self.submit(event)).result)

    async def cancel_maintenance(self, number: int, *, reason: str = "") -> MaintenanceView:
        await self.submit(MaintenanceCancelled(number, "ann", reason))
        return await self.maintenance(number)

    async def maintenances(self) -> list[MaintenanceView]:
        return [await self.maintenance(int(key)) for key in self.state.maintenances]

    async def maintenance(self, number: int) -> MaintenanceView:
        row = self.state.maintenances.get(str(number))
        if row is None:
            raise NotFound(f"there is no maintenance {number}")
        return _shown(asdict(row), MaintenanceView)

    async def note(self, subject: str, text: str) -> Decided:
        return await self.submit(NoteAdded("ann", subject, text))

    async def import_topology(
        self, hosts: Any, switches: Any = (), *, source: str = "", merge: bool = False
    ) -> Decided:
        event = TopologyImported(tuple(hosts), tuple(switches), source, "ann", merge)
        return await self.submit(event)

    async def topology(self) -> TopologyView:
        return _shown(topology_view(self.state), TopologyView)

    async def jobs(self) -> list[JobView]:
        return [await self.job(name) for name in self.state.jobs]

    async def why(self, name: str) -> JobWhy:
        job = self.state.jobs.get(name)
        if job is None:
            raise NotFound(f"there is no job {name!r}; see `coordctl job list`")
        return why_job(self.state, job)

    async def job(self, name: str) -> JobView:
        job = self.state.jobs.get(name)
        if job is None:
            raise NotFound(f"there is no job {name!r}; see `coordctl job list`")
        told = job_view(self.state, job) | {"warnings": warnings_of(self.state, job)}
        told["position"] = positions(self.state).get(name, 0)
        view = _shown(told, JobView)
        return replace(view, applied_index=self.state.meta.applied_index)

    async def queues(self) -> list[QueueView]:
        return [_shown(view, QueueView) for view in queue_views(self.state)]

    async def queue(self, name: str) -> QueueView:
        for view in await self.queues():
            if view.name == name:
                return view
        raise NotFound(f"no queue {name!r}; see `coordctl queue list`")

    async def set_queue(self, spec: QueueSpec, *, reason: str = "") -> QueueView:
        await self.submit(QueueConfigured(spec, "ann", reason))
        return await self.queue(spec.name)

    async def remove_queue(self, name: str, *, reason: str = "") -> Decided:
        return await self.submit(QueueRemoved(name, "ann", reason))

    async def hosts(self) -> list[HostView]:
        return [await self.host(name) for name in sorted(self.state.hosts)]

    async def host(self, name: str) -> HostView:
        host = self.state.hosts.get(name)
        if host is None:
            raise NotFound(f"there is no host {name!r}; see `coordctl host list`")
        return _shown(host_view(self.state, host), HostView)

    async def incidents(self) -> list[IncidentView]:
        return [IncidentView(**asdict(found)) for found in self.state.incidents.values()]

    async def incident_totals(self) -> list[IncidentTotal]:
        return [self.state.incident_totals[key] for key in sorted(self.state.incident_totals)]

    async def cluster(self, *, stale: bool = False) -> ClusterView:
        meta = self.state.meta
        members = tuple(MemberView(n, f"10.0.0.{n}:7001", f"10.0.0.{n}:7101") for n in (1, 2, 3))
        return ClusterView(
            cluster=meta.cluster,
            node=2,
            leader=meta.leader,
            leader_api="10.0.0.1:7101",
            term=meta.term,
            now_ms=meta.now_ms,
            members=members,
            connected=self.connected,
            first_index=1,
            size_bytes=123_456,
            sessions=4,
            applied_index=meta.applied_index,
        )

    async def events(self, start: int = 1, limit: int = 1_000) -> EventPage:
        found = tuple(self.records[max(start - 1, 0) :][:limit])
        return EventPage(found, start + len(found), 1, self.state.meta.applied_index)

    async def watch(
        self,
        start: int | None = None,
        patience_s: float = 60.0,
        on_trouble: Callable[[Unavailable], object] | None = None,
    ) -> AsyncIterator[Recorded]:
        self.asked.append(("watch", patience_s))
        if self.trouble and on_trouble is not None:
            on_trouble(self.trouble)
        for record in self.records[(start or 1) - 1 :]:
            yield record

    async def read_log(self, name: str, **asked: Any) -> LogPage:
        self.asked.append((name, asked))
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    async def export_incident(self, file: BinaryIO, **asked: Any) -> int:
        self.asked.append(("export", asked))
        return file.write(b"exported")

    async def transfer(self, node: int = 0) -> None:
        self.asked.append(("transfer", node))

    def end_job(self, name: str, **changes: Any) -> None:
        """Change the row of a job behind the machine's back."""
        self.state.put_job(replace(self.state.jobs[name], **changes))


def _shown(view: dict[str, Any], kind: type[View]) -> View:
    """As the API writes it and the client reads it."""
    return msgspec.json.decode(msgspec.json.encode(view), type=kind)
