"""What an agent is written against: register, beat, receive plans, report.

The protocol is in `coord/client/README.md`, "Writing an agent".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType

import msgspec

from coord.client.backoff import Backoff
from coord.client.beats import Beats
from coord.client.channel import (
    Channel,
    ChannelClosed,
    ChannelRefused,
    Dialer,
    EventUnsendable,
    WebSocketDialer,
    stop_if_cancelled,
)
from coord.client.errors import ClientClosed, InvalidRequest, ServerRefused
from coord.client.inbox import PlanInbox, Superseded
from coord.client.pending import UNDECIDED
from coord.client.registration import Registration
from coord.client.reports import ReportQueue
from coord.client.servers import RelayedRing
from coord.client.views import Decided
from coord.model.channel import (
    BeatSeen,
    Hello,
    LogChunk,
    LogRead,
    Result,
    Results,
    Submit,
    ToClient,
    Welcome,
)
from coord.model.events import AnyEvent, HostRegistered, TaskFound
from coord.model.place import NOWHERE, Place, Rail
from coord.model.plans import HostPlan
from coord.model.rejections import Rejection
from coord.model.settings import Settings
from coord.sites import reach

DIAL_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_MS = 5_000
"""What servers are given to answer a Submit."""
STALL_S = 8.0
"""A connection that owes an answer for longer is given up."""
RETRY_S = 0.05
RETRY_LIMIT_S = 1.0
REFUSALS = 8
"""After so many pauses in a row without a decision, another server is tried: this one's disk may
be full."""
BACKOFF_FIRST_S = 0.2
BACKOFF_LIMIT_S = 1.5
"""Until the cluster's lease is known; from then on a quarter of that."""
RELAY_AGAIN_S = 240.0
"""Straight at a server, an agent tries its relays again after half of this to all of it."""


class _RelayFound(Exception):
    """The conversation goes on through a relay."""


ReadLog = Callable[[LogRead], Awaitable[LogChunk]]


class Agent:
    """One host's conversation with the coordinator, over whichever server answers.

    Use it as `async with Agent(...) as agent`, `await agent.register(...)`, then read
    `agent.plans()` in one task and call `agent.report(event)` wherever something happens. Beats,
    reconnection and resending happen by themselves, for as long as the servers stay away.

    `host` names the machine, `agent_id` its data directory (random, kept on disk), `boot` this boot
    of it. `next_seq` returns 1, 2, 3, ... and never repeats, over restarts of the agent too: the
    number must be on disk before it is returned. `on_log_read` answers a LogRead; OSError out of it
    is answered as "no such output". Everything runs on the loop it was opened on.

    `relays` are tried before the servers; an agent that had to go to a server straight comes back
    to a relay after a while, once one answers.
    """

    def __init__(
        self,
        servers: Iterable[str],
        *,
        host: str,
        agent_id: str,
        boot: str,
        address: str,
        next_seq: Callable[[], int],
        devices: int = 0,
        cpu_millis: int = 0,
        memory_mib: int = 0,
        device_type: str = "",
        labels: dict[str, str] | None = None,
        ports: Sequence[int] = (),
        version: str = "",
        place: Place = NOWHERE,
        rails: Sequence[Rail] = (),
        cluster: str = "",
        on_log_read: ReadLog | None = None,
        relays: Iterable[str] = (),
        relay_again_s: float = RELAY_AGAIN_S,
        dialer: Dialer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.host = host
        self.on_log_read = on_log_read
        self.settings = Settings()
        """The cluster's, as of the newest Welcome."""
        self._ring = RelayedRing(servers, relays)
        self._relay_again_s = relay_again_s
        self._relay_channel: Channel | None = None
        """Open and not in use yet: the next conversation."""
        self._offer = HostRegistered(
            host, agent_id, boot, address, devices, cpu_millis, memory_mib, device_type,
            dict(labels or {}), tuple(ports), (), version, place,
            tuple(rails),
        )  # fmt: skip
        self._next_seq = next_seq
        self._hello = Hello(f"host:{host}", cluster, version=version)
        self._dialer = dialer or WebSocketDialer(watched=self._ring.relays)
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._rng, BACKOFF_FIRST_S, BACKOFF_LIMIT_S)
        self._retry = Backoff(self._rng, RETRY_S, RETRY_LIMIT_S)
        self._reports = ReportQueue(host)
        self._inbox = PlanInbox()
        self._beats = Beats(self._rng)
        self._registration: Registration | None = None
        self._incarnation = 0
        self._applied_index = 0
        self._answered_s = 0.0
        self._pause_until_s = 0.0
        self._connected_to = ""
        self._undecided = ""
        """Why the server in use, which may be cut off from the others, is to be left."""
        self._first_beaten = 0
        """Incarnation of the first beat on this connection; 0 before it."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # For the caller

    @property
    def incarnation(self) -> int:
        """The one to put into reports; 0 while not registered."""
        return self._incarnation

    @property
    def lease_deadline(self) -> float | None:
        """Loop time by which exclusive tasks must be gone: when the newest acknowledged beat was
        sent, plus `lease_ms`. None before the first registration; after a Superseded it stays."""
        heard_s = self._beats.acknowledged_s
        return None if heard_s is None else heard_s + self.settings.lease_ms / 1000

    @property
    def connected_to(self) -> str:
        """URL of the server in use; empty while there is none."""
        return self._connected_to

    @property
    def undecided(self) -> int:
        """Reports that no decision has come back for."""
        return len(self._reports)

    async def __aenter__(self) -> Agent:
        if self._task is not None:
            raise ClientClosed("this Agent was opened before; make a new one")
        self._ring.skip(self._rng.randrange(len(self._ring.urls)))
        self._task = asyncio.create_task(self._run(), name=f"agent {self.host}")
        self._task.add_done_callback(self._on_end)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the loop clean. Raises what ended the conversation, if a defect did."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def register(self, tasks: Iterable[TaskFound] = ()) -> int:
        """Announce the host with every task still known; returns the incarnation once decided.

        Tries until then, however long; cancel it to give up. Beats start with it. Reports not
        decided under an earlier incarnation are answered with Rejected. Raises Rejected
        (`host_id_in_use`: another live agent has this id) and ServerRefused (another cluster).
        """
        if self._task is None or self._task.done():
            raise ClientClosed("the agent is not open; use `async with Agent(...)`")
        if self._registration is not None:
            raise RuntimeError("a registration of this agent is under way already")
        self._end_incarnation("stale_incarnation")
        self._inbox.begin(0)
        event = msgspec.structs.replace(self._offer, tasks=tuple(tasks))
        self._registration = Registration(event, self._next_seq)
        self._wake.set()
        try:
            return await self._registration.incarnation
        finally:
            self._registration = None

    async def plans(self) -> AsyncIterator[HostPlan | Superseded]:
        """Plans of the current incarnation, each newer than the one before; of several unread ones
        only the newest. `Superseded` says: stop every task, register again. For one reader.

        Ends when the agent is closed; raises what ended the conversation, if a defect did."""
        while (item := await self._inbox.next()) is not None:
            yield item

    def report(self, event: AnyEvent) -> asyncio.Future[Decided]:
        """Send a report, after all those before it and until it is decided.

        The future yields Decided, or raises Rejected (also when the incarnation ended first),
        InvalidRequest (too large) or NotDone `queue_full`. It need not be awaited. A
        `ProgressReported` not sent yet gives way to a newer one of its task and shares its
        decision.
        """
        future = self._reports.add(event)
        self._wake.set()
        return future

    async def flush(self, timeout_s: float) -> bool:
        """Wait until every report so far is decided; False when time ran out first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._reports.wait_empty()
        return not self._reports

    # The conversation

    async def _run(self) -> None:
        try:
            while True:
                await self._connect_once()
                stop_if_cancelled()
                if self._relay_channel is None:
                    self._ring.advance()
                    await asyncio.sleep(self._backoff.next_s())
        finally:
            if self._relay_channel is not None:
                await self._relay_channel.close()
            await self._dialer.close()

    async def _connect_once(self) -> None:
        channel, self._relay_channel = self._relay_channel, None
        try:
            channel = channel or await self._dial(self._ring.current)
        except ChannelClosed:
            return
        except ChannelRefused as refused:
            self._on_refused(refused)
            return
        self._connected_to = channel.server
        try:
            await self._converse(channel)
        except* (ChannelClosed, _RelayFound):
            pass
        except* ChannelRefused as group:
            for error in group.exceptions:
                if isinstance(error, ChannelRefused):
                    self._on_refused(error)
        finally:
            self._connected_to = ""
            await channel.close()

    async def _dial(self, url: str) -> Channel:
        return await self._dialer.dial(url, self._hello, DIAL_TIMEOUT_S)

    async def _return_to_relay(self) -> None:
        """Leave a server for the first relay that answers. The server is left only then."""
        while True:
            await asyncio.sleep(self._relay_again_s * self._rng.uniform(0.5, 1.0))
            for relay in self._ring.relays:
                with suppress(ChannelClosed, ChannelRefused):
                    self._relay_channel = await self._dial(relay)
                    self._ring.choose(relay)
                    raise _RelayFound

    async def _converse(self, channel: Channel) -> None:
        self._on_welcome(channel.welcome)
        self._reports.connection_lost()
        self._beats.connection_lost()
        if self._registration is not None:
            self._registration.send_again()
        self._pause_until_s = 0.0
        self._undecided = ""
        self._first_beaten = 0
        self._answered_s = asyncio.get_running_loop().time()
        self._wake.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(channel))
            if self._ring.straight:
                group.create_task(self._return_to_relay())
            while True:
                message = await channel.receive()
                if isinstance(message, LogRead):
                    group.create_task(self._answer_log_read(channel, message))
                else:
                    self._on_message(message)

    async def _send(self, channel: Channel) -> None:
        """Sends what is due, then sleeps until something is."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now_s = loop.time()
            self._give_up_if_silent(channel, now_s)
            if self._incarnation and self._beats.due(now_s):
                self._first_beaten = self._first_beaten or self._incarnation
                await channel.send(self._beats.beat(now_s, self._inbox.newest_version))
            if now_s >= self._pause_until_s:
                await self._send_submissions(channel, now_s)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_due_s(now_s)):
                    await self._wake.wait()

    async def _send_submissions(self, channel: Channel, now_s: float) -> None:
        registration = self._registration
        if registration is not None:
            submissions = registration.take(now_s, self._applied_index)
        else:
            submissions = self._reports.take(self._applied_index, self._inbox.newest_version)
        if not submissions:
            return
        if not self._owed(sent=len(submissions)):
            self._answered_s = now_s
        try:
            await channel.send(Submit(submissions, ANSWER_TIMEOUT_MS))
        except EventUnsendable as error:
            if registration is not None:
                registration.fail(InvalidRequest(f"registration of {self.host}: {error}"))
            else:
                bad = submissions[error.position].origin.seq
                self._reports.drop_unsendable(bad, f"report of {self.host}: {error}")
            self._wake.set()

    def _owed(self, sent: int = 0) -> bool:
        """Whether answers were due already before the last `sent` submissions."""
        if self._registration is not None:
            return self._registration.under_way > sent
        return self._reports.under_way > sent

    def _next_due_s(self, now_s: float) -> float:
        due_s = now_s + 1.0
        if self._incarnation:
            due_s = min(due_s, self._beats.next_s)
        if self._pause_until_s > now_s:
            due_s = min(due_s, self._pause_until_s)
        return due_s

    def _give_up_if_silent(self, channel: Channel, now_s: float) -> None:
        """A server cut off from the others accepts beats and acknowledges none: try the next one.

        After one that did not work each is given twice as long, which is still well within a lease:
        the next server may be one that counts.
        """
        lease_s = self.settings.lease_ms / 1000
        patience_s = max(lease_s / 3, 2.5 * self.settings.heartbeat_ms / 1000)
        patience_s *= 2 ** min(self._backoff.failures, 1)
        waiting_s = self._beats.waiting_since_s
        if self._incarnation and waiting_s is not None and now_s - waiting_s > patience_s:
            raise ChannelClosed(f"{channel.server} acknowledged no beat for {patience_s:g} s")
        if self._undecided:
            raise ChannelClosed(f"{channel.server} had nothing decided: {self._undecided}")
        if self._retry.failures >= REFUSALS:
            self._retry.reset()
            raise ChannelClosed(f"{channel.server} had nothing decided in {REFUSALS} attempts")
        if self._owed() and now_s - self._answered_s > max(STALL_S, patience_s):
            raise ChannelClosed(f"{channel.server} owes an answer for {STALL_S:g} s")

    # What the server says

    def _on_message(self, message: ToClient) -> None:
        if isinstance(message, Results):
            self._applied_index = max(self._applied_index, message.applied_index)
            self._answered_s = asyncio.get_running_loop().time()
            for result in message.results:
                self._on_result(result)
            self._wake.set()
        elif isinstance(message, BeatSeen):
            self._applied_index = max(self._applied_index, message.applied_index)
            if self._incarnation:
                self._beats.seen(message.sequence)
                self._backoff.reset()
        elif isinstance(message, HostPlan):
            self._on_plan(message)
        elif isinstance(message, Welcome):
            self._on_welcome(message)

    def _on_welcome(self, welcome: Welcome) -> None:
        self.settings = welcome.settings
        self._beats.period_s = welcome.settings.heartbeat_ms / 1000
        # After an outage a new leader gives every host one lease to be heard again.
        self._backoff.limit_s = max(welcome.settings.lease_ms / 4_000, 2 * BACKOFF_FIRST_S)
        self._applied_index = max(self._applied_index, welcome.applied_index)

    def _on_result(self, result: Result) -> None:
        if result.outcome == "committed" and result.rejection != Rejection.NOT_CONFIGURED:
            self._backoff.reset()
            self._retry.reset()
        else:
            self._pause(result.retry_after_ms)
            if result.reason in UNDECIDED and len(self._ring.urls) > 1:
                self._undecided = result.reason
        if result.incarnation:
            over = self._reports.on_result(result)
            if over:
                self._supersede(over)
        elif self._registration is not None and self._registration.on_result(result):
            self._on_registered(self._registration, result)

    def _pause(self, at_least_ms: int) -> None:
        """A server could not take something now: send nothing for a while, ever longer."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._pause_until_s:
            self._pause_until_s = now_s + max(self._retry.next_s(), at_least_ms / 1000)

    def _on_registered(self, registration: Registration, result: Result) -> None:
        reach("client.registration.decided")
        now_s = asyncio.get_running_loop().time()
        self._incarnation = result.result
        self._reports.begin(result.result)
        self._beats.begin(result.slot, result.result, registration.first_sent_s, now_s)
        self._inbox.begin(result.result)
        self._registration = None

    def _on_plan(self, plan: HostPlan) -> None:
        if plan.host != self.host:
            return
        self._inbox.offer(plan)
        if self._incarnation and plan.incarnation > self._incarnation:
            self._supersede("stale_incarnation")

    def _on_refused(self, refused: ChannelRefused) -> None:
        if refused.code == "stale_incarnation":
            # It may be about a beat sent before a registration on the same connection. Then the
            # next connection, which knows only the newer incarnation, will tell.
            if self._first_beaten == self._incarnation:
                self._supersede(refused.code)
        elif refused.code in {"wrong_cluster", "protocol"} and self._registration is not None:
            self._registration.fail(ServerRefused(str(refused), refused.code))

    def _supersede(self, reason: str) -> None:
        if self._incarnation:
            self._inbox.supersede(Superseded(self._incarnation, reason))
            self._end_incarnation(reason)

    def _end_incarnation(self, reason: str) -> None:
        self._incarnation = 0
        self._reports.fail_all(reason)

    async def _answer_log_read(self, channel: Channel, read: LogRead) -> None:
        chunk = LogChunk(read.request, exists=False)
        if self.on_log_read is not None:
            with suppress(OSError):
                chunk = await self.on_log_read(read)
        await channel.send(chunk)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self._inbox.end(error)
        self._incarnation = 0
        closed = ClientClosed(f"the agent of {self.host} was closed")
        if self._registration is not None:
            self._registration.fail(error or closed)
        self._reports.fail_all("stale_incarnation")
