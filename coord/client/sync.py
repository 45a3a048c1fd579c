"""The blocking face of the client, for programs and threads without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from coord.client.client import Client, IncidentFormat
from coord.client.errors import ClientClosed, Unavailable
from coord.client.views import (
    ClusterView,
    Decided,
    EventPage,
    HostView,
    IncidentView,
    JobView,
    LogPage,
    MaintenanceView,
    QueueView,
    TopologyView,
)
from coord.model.cost import IncidentTotal
from coord.model.entry import Recorded
from coord.model.events import AnyEvent, CollectiveTimedOut
from coord.model.place import Located, Switch
from coord.model.queue import QueueSpec
from coord.model.spec import JobSpec
from coord.model.why import JobWhy

Answer = TypeVar("Answer")


class SyncClient:
    """The same methods as `coord.client.Client`, each blocking until it is done.

    `with SyncClient(["http://127.0.0.1:7101"], actor="alice") as client:`. It has an event loop on
    a thread of its own; several threads may use it at once, and share its connections.
    """

    def __init__(
        self,
        servers: Iterable[str],
        *,
        actor: str = "",
        cluster: str = "",
        timeout_s: float = 10.0,
        stale: bool = False,
    ) -> None:
        self._client = Client(
            servers, actor=actor, cluster=cluster, timeout_s=timeout_s, stale=stale
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ClientClosed("this SyncClient was opened before; make a new one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="coord client", daemon=True
        )
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every call under way and the thread. Idempotent; not from two threads at once."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._client.close(), loop).result()
        finally:
            # Calls of other threads that are still under way get CancelledError from the loop.
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def _run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        if self._loop is None:
            call.close()
            raise ClientClosed("the client is closed; open it with `with SyncClient(...)`")
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ClientClosed("the client was closed by another thread") from error
        except BaseException:
            # KeyboardInterrupt arrives here, not on the loop's thread.
            future.cancel()
            raise

    # Writes

    def submit(self, event: AnyEvent, *, timeout_s: float | None = None) -> Decided:
        """See Client.submit."""
        return self._run(self._client.submit(event, timeout_s=timeout_s))

    def submit_job(self, spec: JobSpec) -> JobView:
        """See Client.submit_job."""
        return self._run(self._client.submit_job(spec))

    def cancel_job(self, name: str, *, reason: str = "") -> JobView:
        """See Client.cancel_job."""
        return self._run(self._client.cancel_job(name, reason=reason))

    def resize_job(self, name: str, role: str, replicas: int, *, reason: str = "") -> JobView:
        """See Client.resize_job."""
        return self._run(self._client.resize_job(name, role, replicas, reason=reason))

    def roll_back_job(
        self, name: str, *, step: int = -1, back: int = 0, role: str = "", reason: str = ""
    ) -> JobView:
        """See Client.roll_back_job."""
        return self._run(
            self._client.roll_back_job(name, step=step, back=back, role=role, reason=reason)
        )

    def record_collective_timeout(self, event: CollectiveTimedOut) -> Decided:
        """See Client.record_collective_timeout."""
        return self._run(self._client.record_collective_timeout(event))

    def set_queue(self, spec: QueueSpec, *, reason: str = "") -> QueueView:
        """See Client.set_queue."""
        return self._run(self._client.set_queue(spec, reason=reason))

    def remove_queue(self, name: str, *, reason: str = "") -> Decided:
        """See Client.remove_queue."""
        return self._run(self._client.remove_queue(name, reason=reason))

    def drain(self, host: str, *, reason: str = "", within_ms: int = 0) -> HostView:
        """See Client.drain."""
        return self._run(self._client.drain(host, reason=reason, within_ms=within_ms))

    def quarantine(self, host: str, *, reason: str = "") -> HostView:
        """See Client.quarantine."""
        return self._run(self._client.quarantine(host, reason=reason))

    def answer_quarantine(
        self, host: str, version: int, *, approved: bool, reason: str = ""
    ) -> HostView:
        """See Client.answer_quarantine."""
        call = self._client.answer_quarantine(host, version, approved=approved, reason=reason)
        return self._run(call)

    def release(self, host: str, *, reason: str = "", repaired: bool = False) -> HostView:
        """See Client.release."""
        return self._run(self._client.release(host, reason=reason, repaired=repaired))

    def start_maintenance(
        self,
        level: str,
        domain: str,
        *,
        limit: int = 1,
        within_ms: int = 0,
        safe: bool = False,
        reason: str = "",
    ) -> MaintenanceView:
        """See Client.start_maintenance."""
        return self._run(
            self._client.start_maintenance(
                level, domain, limit=limit, within_ms=within_ms, safe=safe, reason=reason
            )
        )

    def cancel_maintenance(self, number: int, *, reason: str = "") -> MaintenanceView:
        """See Client.cancel_maintenance."""
        return self._run(self._client.cancel_maintenance(number, reason=reason))

    def maintenances(self, *, stale: bool = False) -> list[MaintenanceView]:
        """See Client.maintenances."""
        return self._run(self._client.maintenances(stale=stale))

    def maintenance(self, number: int, *, stale: bool = False) -> MaintenanceView:
        """See Client.maintenance."""
        return self._run(self._client.maintenance(number, stale=stale))

    def undrain(self, host: str, *, reason: str = "") -> HostView:
        """See Client.undrain."""
        return self._run(self._client.undrain(host, reason=reason))

    def remove_host(self, host: str, *, reason: str = "") -> Decided:
        """See Client.remove_host."""
        return self._run(self._client.remove_host(host, reason=reason))

    def note(self, subject: str, text: str) -> Decided:
        """See Client.note."""
        return self._run(self._client.note(subject, text))

    def allow_evictions(self, *, reason: str = "") -> Decided:
        """See Client.allow_evictions."""
        return self._run(self._client.allow_evictions(reason=reason))

    def import_topology(
        self,
        hosts: Iterable[Located],
        switches: Iterable[Switch] = (),
        *,
        source: str = "",
        merge: bool = False,
    ) -> Decided:
        """See Client.import_topology."""
        call = self._client.import_topology(hosts, switches, source=source, merge=merge)
        return self._run(call)

    # Reads

    def topology(self, *, stale: bool = False) -> TopologyView:
        """See Client.topology."""
        return self._run(self._client.topology(stale=stale))

    def jobs(self, *, stale: bool = False) -> list[JobView]:
        """See Client.jobs."""
        return self._run(self._client.jobs(stale=stale))

    def job(self, name: str, *, stale: bool = False) -> JobView:
        """See Client.job."""
        return self._run(self._client.job(name, stale=stale))

    def why(self, name: str, *, stale: bool = False) -> JobWhy:
        """See Client.why."""
        return self._run(self._client.why(name, stale=stale))

    def queues(self, *, stale: bool = False) -> list[QueueView]:
        """See Client.queues."""
        return self._run(self._client.queues(stale=stale))

    def queue(self, name: str, *, stale: bool = False) -> QueueView:
        """See Client.queue."""
        return self._run(self._client.queue(name, stale=stale))

    def hosts(self, *, stale: bool = False) -> list[HostView]:
        """See Client.hosts."""
        return self._run(self._client.hosts(stale=stale))

    def host(self, host: str, *, stale: bool = False) -> HostView:
        """See Client.host."""
        return self._run(self._client.host(host, stale=stale))

    def incidents(self, *, stale: bool = False) -> list[IncidentView]:
        """See Client.incidents."""
        return self._run(self._client.incidents(stale=stale))

    def incident_totals(self, *, stale: bool = False) -> list[IncidentTotal]:
        """See Client.incident_totals."""
        return self._run(self._client.incident_totals(stale=stale))

    def cluster(self, *, stale: bool = False) -> ClusterView:
        """See Client.cluster."""
        return self._run(self._client.cluster(stale=stale))

    def events(
        self, start: int = 1, limit: int = 1_000, *, wait_ms: int = 0, stale: bool = False
    ) -> EventPage:
        """See Client.events."""
        return self._run(self._client.events(start, limit, wait_ms=wait_ms, stale=stale))

    def watch(
        self,
        start: int | None = None,
        *,
        stale: bool = False,
        patience_s: float = 60.0,
        on_trouble: Callable[[Unavailable], object] | None = None,
    ) -> Iterator[Recorded]:
        """See Client.watch. Blocks between entries; ends with ClientClosed on `close`.

        `on_trouble` is called on the loop's thread.
        """
        source = self._client.watch(
            start, stale=stale, patience_s=patience_s, on_trouble=on_trouble
        )
        try:
            while True:
                yield self._run(_next(source))
        finally:
            if self._loop is not None:
                self._run(_finish(source))

    def read_log(
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
        """See Client.read_log."""
        return self._run(
            self._client.read_log(
                name,
                role=role,
                index=index,
                generation=generation,
                stream=stream,
                offset=offset,
                limit=limit,
                wait_ms=wait_ms,
            )
        )

    def export_incident(
        self,
        file: BinaryIO,
        *,
        start: int = 0,
        stop: int = 0,
        format: IncidentFormat = "binary",
    ) -> int:
        """See Client.export_incident. `file` is written on the client's thread."""
        return self._run(self._client.export_incident(file, start=start, stop=stop, format=format))

    # The cluster itself

    def learn_servers(self, api_addresses: list[str]) -> None:
        """See `Client.learn_servers`."""
        self._client.learn_servers(api_addresses)

    def add_member(self, node: int, peer_address: str, api_address: str) -> None:
        """See Client.add_member."""
        self._run(self._client.add_member(node, peer_address, api_address))

    def remove_member(self, node: int) -> None:
        """See Client.remove_member."""
        self._run(self._client.remove_member(node))

    def transfer(self, node: int = 0) -> None:
        """See Client.transfer."""
        self._run(self._client.transfer(node))

    def snapshot(self) -> None:
        """See Client.snapshot."""
        self._run(self._client.snapshot())


async def _next(source: AsyncGenerator[Answer, None]) -> Answer:
    return await anext(source)


async def _finish(source: AsyncGenerator[Answer, None]) -> None:
    await source.aclose()


async def _cancel_all() -> None:
    """End what other threads still wait for, then let the transports close."""
    this = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not this]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
