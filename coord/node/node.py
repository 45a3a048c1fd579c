"""One server's shell around the core: it wires the parts of this folder to the replicated log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import structlog

from coord.codec import encode_batch
from coord.core.state import State
from coord.model.channel import Beat, RelayUp, Result, Submit, Welcome
from coord.model.decisions import RosterCut
from coord.model.entry import Batch, Recorded, Submission
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    LeaderElected,
)
from coord.model.roster import RosterChanged, RosterHeard
from coord.node.config import NodeConfig
from coord.node.digests import Digests
from coord.node.eventlog import EventLog
from coord.node.heartbeats import Heartbeats
from coord.node.keeper import Keeper
from coord.node.machine import NodeMachine
from coord.node.metrics import Metrics
from coord.node.peers import (
    BEATS_TOPIC,
    SUBMIT_TOPIC,
    DigestSeen,
    PeerMessage,
    Peers,
    ReadAsked,
    ReadReady,
    SubmitRefused,
)
from coord.node.ports import Clock
from coord.node.proposer import Proposer
from coord.node.reads import Reads
from coord.node.relays import RelayLink, Relays
from coord.node.requests import Request, RequestTable, undecided
from coord.node.router import RETRY_AFTER_MS, Router
from coord.node.sessions import Session, Sessions
from coord.raft.ports import PeerBus, ProposeOutcome, RaftStatus, ReplicatedLog, Role
from coord.sites import reach
from coord.store.ports import EventStore, StorageFull

TIMEOUT_LIMIT_S = 60.0

OF_RELAYS = (RosterChanged, RosterHeard)
LEADERS_OWN = (ClusterConfigured, LeaderElected, ClockAdvanced, HeartbeatsSeen, *OF_RELAYS)
"""Events that only a node may record, of its own or for a relay."""

log = structlog.get_logger()


class NodeStopped(Exception):
    """The node is stopping; what was asked did not happen, unless an answer said otherwise."""


class Node:
    """The log's state machine, its proposer, and whatever agents and clients talk to.

    `start` and `stop` once each, on the loop. `failure` is done when the node had to stop acting:
    a part of it died, the log halted, or its state cannot be trusted.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        bus: PeerBus | None,
        store: EventStore,
        clock: Clock,
        config: NodeConfig,
    ) -> None:
        self.config = config
        self.log = log
        self.clock = clock
        self.metrics = Metrics()
        self.events = EventLog(store, config.limits)
        self.machine = NodeMachine(store, self.events, self.metrics, self._applied, self._installed)
        self.sessions = Sessions(config.limits)
        self.relays = Relays(self.sessions, config.limits, self.metrics, self.receive)
        self.requests = RequestTable()
        self._store = store
        self._peers = Peers(config.node, bus)
        self.proposer = Proposer(
            config=config,
            replicated=log,
            clock=clock,
            metrics=self.metrics,
            state=lambda: self.machine.state,
            event_s=lambda: self.machine.event_s,
            handed_back=self._handed_back,
        )
        self.router = Router(config, self.requests, self.proposer, self._peers)
        self.reads = Reads(config, self.proposer, self._peers, self.machine.applied_raft_index)
        self.heartbeats = Heartbeats(config.node, clock.wall_ms(), config.limits.frames)
        self.digests = Digests(
            node=config.node,
            peers=self._peers,
            members=lambda: self._status.members,
            last_index=lambda: self.events.last_index,
            digest_at=self.events.digest_at,
            halt=self.halt,
        )
        self.keeper = Keeper(
            config=config,
            replicated=log,
            machine=self.machine,
            events=self.events,
            clock=clock,
            halt=self.halt,
        )
        self._status = _before_start(config.node)
        self._main: asyncio.Task[None] | None = None
        self._stopping = False
        self._stopped = False
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    # Life

    async def start(self) -> None:
        """Recover, and take part in the cluster. Returns once what is on disk is applied."""
        self._peers.on_events(SUBMIT_TOPIC, self.router.forwarded)
        self._peers.on_events(BEATS_TOPIC, self._frames_arrived)
        self._peers.on_message(self._peer_said)
        self.log.on_change(self._status_changed)
        self.log.on_halt(self.halt)
        self._main = asyncio.create_task(self._run(), name=f"node-{self.config.node}")
        self._main.add_done_callback(self._main_ended)
        await self.log.start(self.machine)
        self._status_changed(self.log.status())

    async def end_conversations(self) -> None:
        """Take nothing more, and answer everybody who waits. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        self.proposer.lead(0)
        self.requests.close("stopping")
        self.sessions.refuse_all("stopping", "this server is stopping; connect to another")
        self.reads.close()
        self.events.close()

    async def stop(self) -> None:
        """End every conversation and every wait, flush, and leave the loop clean. Idempotent."""
        await self.end_conversations()
        if self._stopped:
            return
        self._stopped = True
        if self._main is not None:
            self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)
        if self.failure.done():
            await self.log.stop()
            return  # What cannot be trusted is not stored.
        self.machine.stage_state()
        await self.log.stop()
        try:
            self._store.flush()
        except StorageFull as error:
            log.warning("stopped_without_flush", error=str(error))
        self.failure.cancel()

    def halt(self, error: BaseException) -> None:
        """Stop acting, now and for good. Whoever runs the node ends the process."""
        if self.failure.done():
            return
        log.critical("node_halted", node=self.config.node, error=f"{type(error).__name__}: {error}")
        self.proposer.lead(0)
        self.requests.close("stopping")
        self.sessions.refuse_all("stopping", "this server has halted; connect to another")
        self.reads.close()
        self.events.close()
        self.failure.set_result(error)

    # What it knows

    @property
    def state(self) -> State:
        """The live state: valid until the next await, never to be changed."""
        return self.machine.state

    def view(self) -> State:
        """A copy that stays as it is."""
        return self.machine.state.view()

    @property
    def status(self) -> RaftStatus:
        """As of the last change of role, term, leader or members; `log.status()` reads afresh."""
        return self._status

    @property
    def leading(self) -> bool:
        return self._status.role == Role.LEADER

    @property
    def ready(self) -> bool:
        """A leader is known, and this node has applied something of its term."""
        return bool(self._status.leader) and bool(self.state.meta.cluster) and not self.failed

    @property
    def failed(self) -> bool:
        return self._stopping or self.failure.done()

    def leader_api(self) -> str:
        """Where the leader's API listens; empty when no leader is known."""
        leader = self._status.leader
        found = [member for member in self._status.members if member.node == leader]
        return found[0].api_address if found else ""

    def welcome(self) -> Welcome:
        meta = self.state.meta
        return Welcome(
            cluster=meta.cluster or self.config.cluster,
            node=self.config.node,
            leader=self._status.leader,
            leader_api=self.leader_api(),
            applied_index=meta.applied_index,
            settings=meta.settings if meta.cluster else self.config.settings,
        )

    # What it is asked

    async def submit(self, submission: Submission, timeout_s: float = 5.0) -> Result:
        """Have one event decided. Ends within the timeout; raises UnencodableMessage."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def reply(result: Result) -> None:
            if not future.done():
                future.set_result(result)

        size_bytes = len(encode_batch(Batch(0, 0, 0, (submission,))))
        self.accept([Request(submission, size_bytes, reply)], timeout_s)
        return await future

    def receive(self, session: Session, submit: Submit, size_bytes: int) -> None:
        """Everything in one message of a session; each is answered to it in time."""
        reply = session.deliver
        each = size_bytes // max(1, len(submit.submissions))
        requests = [Request(submission, each, reply) for submission in submit.submissions]
        if size_bytes > self.config.limits.event_bytes:
            for request in requests:
                request.size_bytes = len(encode_batch(Batch(0, 0, 0, (request.submission,))))
        self.accept(requests, submit.timeout_ms / 1_000)

    def accept(self, requests: list[Request], timeout_s: float) -> None:
        """Take requests in, or refuse them at once; `reply` is called once for each."""
        reason = self._cannot_accept(requests)
        taken = []
        for request in requests:
            refusal = reason or self._refusal(request)
            if refusal:
                self._refuse(request, refusal)
            else:
                taken.append(request)
        if taken:
            bounded_s = min(max(timeout_s, 0.001), TIMEOUT_LIMIT_S)
            deadline = asyncio.get_running_loop().time() + bounded_s
            self.router.route(self.requests.add(taken, deadline))

    async def read_index(self, timeout_s: float = 5.0) -> int:
        """A barrier: everything acknowledged anywhere before the call is in `state` on return.
        Returns the applied index; raises ReadUnavailable."""
        if self.failed:
            raise NodeStopped("this server is stopping; ask another")
        await self.reads.barrier(timeout_s)
        return self.state.meta.applied_index

    def watch(self, from_index: int) -> AsyncIterator[Recorded]:
        """Every entry from there on, until the node stops."""
        return self.events.watch(from_index)

    def beat(self, session: Session, beat: Beat) -> None:
        """A host is alive."""
        self.metrics.heartbeats.inc()
        self.heartbeats.beat(self.state, session, beat)

    def relayed(self, link: RelayLink, up: RelayUp) -> None:
        """What came from a relay, of its own and of the agents behind it."""
        self.relays.arrived(link, up, self.state, asyncio.get_running_loop().time())

    # Inside

    def _cannot_accept(self, requests: list[Request]) -> str:
        limits = self.config.limits
        if self.failed:
            return "stopping"
        if self.log.status().read_only:
            return "read_only"
        size_bytes = sum(request.size_bytes for request in requests)
        if (
            len(self.requests) + len(requests) > limits.pending_events
            or self.requests.size_bytes + size_bytes > limits.pending_bytes
        ):
            return "busy"
        return ""

    def _refusal(self, request: Request) -> str:
        actor = request.submission.origin.actor
        if isinstance(request.submission.event, LEADERS_OWN):
            return "not_allowed"
        if not actor.startswith(("client:", "host:")):
            return "not_allowed"
        if request.size_bytes > self.config.limits.event_bytes:
            return "too_large"
        return ""

    def _refuse(self, request: Request, reason: str) -> None:
        self.metrics.refused.labels(reason).inc()
        request.done = True
        retry_after_ms = RETRY_AFTER_MS if reason in ("busy", "read_only") else 0
        if request.reply is not None:
            request.reply(undecided(request, "not_committed", reason, retry_after_ms))

    def _handed_back(self, requests: tuple[Request, ...], outcome: ProposeOutcome) -> None:
        self.router.handed_back(requests, outcome)

    def _applied(self, records: tuple[Recorded, ...], state: State) -> None:
        reach("node.entries.applied")
        decided = self.requests.decided
        for record in records:
            decided(record, state)
            event_type = type(record.entry.event)
            if event_type is HeartbeatsSeen:
                self.heartbeats.applied(record, state)
            for decision in record.decisions:
                if type(decision) is RosterCut:
                    self.relays.cut(decision, state)
            if event_type in OF_RELAYS:
                self.relays.applied(record, state)
            if record.rejection:
                self.metrics.rejected.labels(record.rejection).inc()
        if state.replanned:
            self.sessions.offer_plans(state, state.replanned)
            state.replanned = {}
        self.reads.applied()

    def _installed(self) -> None:
        """A snapshot replaced the state: plans and readers look again. Requests it decided are
        sent again in time, and get their first outcome."""
        self.sessions.offer_all_plans(self.state)
        self.reads.applied()

    def _status_changed(self, status: RaftStatus) -> None:
        if self.failed:
            return
        previous, self._status = self._status, status
        if previous.leader != status.leader:
            self.metrics.leader_changes.inc()
            log.info("leader_changed", leader=status.leader, term=status.term)
        self.router.status_changed(status)
        self.reads.status_changed(status)
        moved = previous.leader != status.leader or previous.members != status.members
        if moved and status.leader:
            self.sessions.leader_changed()

    def _peer_said(self, sender: int, message: PeerMessage) -> None:
        if self.failed:
            return
        if isinstance(message, SubmitRefused):
            self.router.refused(message)
        elif isinstance(message, ReadAsked):
            self.reads.asked(sender, message)
        elif isinstance(message, ReadReady):
            self.reads.ready(message)
        elif isinstance(message, DigestSeen):
            self.digests.seen(sender, message)

    def _frames_arrived(
        self, sender: int, submissions: tuple[Submission, ...], size_bytes: int
    ) -> None:
        if self.leading:
            self.proposer.add_frames(submissions)

    def _send_frame(self) -> None:
        """The beats heard here, to the leader, once; on the leader, let all frames go."""
        meta = self.state.meta
        frame = self.heartbeats.take_frame(self._status.term, meta.applied_index)
        self._pass_on((frame,) if frame is not None else ())
        if self.leading:
            self.proposer.flush_frames()

    def _pass_on(self, frames: tuple[Submission, ...]) -> None:
        if self.leading:
            self.proposer.add_frames(frames)
        elif frames and self._status.leader:
            self._peers.send_events(self._status.leader, BEATS_TOPIC, frames)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.proposer.run())
            group.create_task(self._tick())
            group.create_task(self._keep())
            group.create_task(self._check())

    def _main_ended(self, main: asyncio.Task[None]) -> None:
        if not main.cancelled() and main.exception() is not None:
            error = main.exception()
            assert error is not None
            self.halt(_first_cause(error))

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        intervals = self.config.intervals
        due = dict.fromkeys(("frame", "state", "digest"), loop.time())
        expected = loop.time()
        while True:
            expected = max(expected, loop.time() - intervals.tick_s) + intervals.tick_s
            await asyncio.sleep(max(0.0, expected - loop.time()))
            now = loop.time()
            self.metrics.loop_lag_s.observe(max(0.0, now - expected))
            self.router.route(self.requests.expire(now))
            self.router.tick(now)
            self.reads.tick(now)
            self._pass_on(self.relays.take_frames(now))
            for name in _passed(due, now):
                due[name] = now + getattr(intervals, f"{name}_s")
                self._do(name)

    def _do(self, name: str) -> None:
        if name == "frame":
            self.metrics.storage_committed(self.log.status().fsync_ms_last)
            self._send_frame()
            self.sessions.mend_plans(self.state)
        elif name == "state":
            self.machine.stage_state()
        else:
            self.digests.tick()

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self.config.intervals.invariants_s)
            await self.keeper.check_invariants()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.config.intervals.keep_s)
            try:
                await self.keeper.keep()
            except (StorageFull, RuntimeError) as error:
                log.warning("housekeeping_deferred", error=str(error))


def _before_start(node: int) -> RaftStatus:
    """No leader, no members: what is known before the log has been opened."""
    return RaftStatus(node, Role.FOLLOWER, 0, 0, 0, 0, 1, 0, (), ())


def _passed(due: dict[str, float], now: float) -> Iterable[str]:
    return [name for name, at in due.items() if at <= now]


def _first_cause(error: BaseException) -> BaseException:
    """The first error inside nested groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
