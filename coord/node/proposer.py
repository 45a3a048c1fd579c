"""The leader's hand: one command outstanding, and everything that arrives meanwhile in the next.

A command holds, in this order: what opens the term (alone), heartbeat frames, requests, and last
`ClockAdvanced` when something is due. An empty one is a barrier for readers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import msgspec
import structlog

from coord.codec import encode_batch
from coord.core.cluster import NEWEST_LOGIC_VERSION
from coord.core.machine import log_time_ms, next_due_ms
from coord.core.state import State
from coord.model.entry import Batch, Origin, Submission
from coord.model.events import ClockAdvanced, ClusterConfigured, HeartbeatsSeen, LeaderElected
from coord.node.config import NodeConfig
from coord.node.metrics import Metrics
from coord.node.ports import Clock
from coord.node.relay_frames import RelayFrames
from coord.node.requests import Key, Request
from coord.raft.ports import Committed, NotCommitted, ProposeOutcome, ReplicatedLog
from coord.sites import reach

PAUSE_S = 0.05
"""After a command that was not committed, so that a lasting cause does not spin the loop."""
LEAST_EVENTS = 64
"""A command takes so many however slow they are."""
ENVELOPE_BYTES = 65_536
"""Kept free in a command for what the leader adds itself."""

log = structlog.get_logger()

Barrier = Callable[[int], None]


class Proposal(msgspec.Struct, frozen=True):
    """One command and who waits for it."""

    batch: Batch
    requests: tuple[Request, ...] = ()
    barriers: tuple[Barrier, ...] = ()


class Proposer:
    """Runs on every node, acts on the leader. `handed_back(requests, outcome)` receives what a
    command left without an outcome that ends it."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        replicated: ReplicatedLog,
        clock: Clock,
        metrics: Metrics,
        state: Callable[[], State],
        event_s: Callable[[], float],
        handed_back: Callable[[tuple[Request, ...], ProposeOutcome], None],
    ) -> None:
        self._config = config
        self._log = replicated
        self._clock = clock
        self._metrics = metrics
        self._state = state
        self._event_s = event_s
        self._handed_back = handed_back
        self._queue: deque[Request] = deque()
        self._keys: dict[Key, None] = {}
        self._frames: list[Submission] = []
        self._relay_frames = RelayFrames(config.limits.relay_frames)
        self._frames_due = False
        self._barriers: list[Barrier] = []
        self._term = 0
        self._opened = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._last_entries = 0.0
        """Loop time of the last command with entries: a barrier alone moves no log time."""
        self._seq = clock.wall_ms()
        self._reported = ""
        """The outcome last logged, so that a lasting one is logged once."""

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def opened(self) -> bool:
        """Whether this term's first entry was applied: only then may anything else be proposed."""
        return self._opened

    def lead(self, term: int) -> None:
        """This node leads in `term`; 0 when it does not. Takes effect at once."""
        if term == self._term:
            return
        self._term = term
        self._opened = False
        self._frames.clear()
        self._relay_frames.clear()
        self._barriers.clear()
        self._wake.set()

    def drain(self) -> list[Request]:
        """Give up everything queued, in order."""
        drained = list(self._queue)
        self._queue.clear()
        for request in drained:
            self._keys.pop(request.key, None)
        return drained

    def enqueue(self, requests: Iterable[Request]) -> None:
        """Take requests into the next command. One that is on its way already is not doubled."""
        keys = self._keys
        for request in requests:
            if request.key not in keys:
                keys[request.key] = None
                self._queue.append(request)
        self._wake.set()

    def add_frames(self, frames: Iterable[Submission]) -> None:
        """Heartbeats wait for the next command, or for `flush_frames`."""
        now_s = asyncio.get_running_loop().time()
        for frame in frames:
            if isinstance(frame.event, HeartbeatsSeen):
                self._frames.append(frame)
            else:
                self._relay_frames.add((frame,), now_s)
        del self._frames[: -self._config.limits.frames]

    def flush_frames(self) -> None:
        """Let the frames go even if nothing else does."""
        if self._frames or self._relay_frames:
            self._frames_due = True
            self._wake.set()

    def barrier(self, done: Barrier) -> None:
        """Call `done(raft_index)` once a command proposed from now on is committed and applied.
        Never called if this node stops leading first."""
        self._barriers.append(done)
        self._wake.set()

    async def run(self) -> None:
        """For as long as the node lives."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._term:
                    proposal = self._assemble()
                    if proposal is None:
                        self._arm_timer()
                        break
                    await self._commit(proposal)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    # Assembling

    def _assemble(self) -> Proposal | None:
        if not self._opened:
            return Proposal(self._batch(self._opening()))
        requests = self._take_requests()
        barriers, self._barriers = tuple(self._barriers), []
        clock_due = self._clock_due()
        if not (requests or barriers or clock_due or self._frames_due):
            return None
        frames = [*self._frames, *self._relay_frames.take(asyncio.get_running_loop().time())]
        self._frames = []
        self._frames_due = False
        submissions = [*frames, *(request.submission for request in requests)]
        if clock_due:
            submissions.append(Submission(self._origin(), ClockAdvanced()))
        return Proposal(self._batch(submissions), tuple(requests), barriers)

    def _opening(self) -> list[Submission]:
        """The first entries of a term, and of a cluster."""
        config = self._config
        elected = LeaderElected(config.node, self._term)
        opening = [Submission(self._origin(), elected)]
        if not self._state().meta.cluster:
            configured = ClusterConfigured(config.cluster, config.settings, NEWEST_LOGIC_VERSION)
            opening.append(Submission(self._origin(), configured))
        return opening

    def _batch(self, submissions: list[Submission]) -> Batch:
        return Batch(self._term, self._config.node, self._clock.wall_ms(), tuple(submissions))

    def _origin(self) -> Origin:
        self._seq += 1
        applied_index = self._state().meta.applied_index
        return Origin(f"node:{self._config.node}", self._term, self._seq, applied_index)

    def _take_requests(self) -> list[Request]:
        limits = self._config.limits
        room = limits.command_bytes - ENVELOPE_BYTES
        most = limits.command_events
        if limits.command_apply_s and self._event_s():
            most = min(most, max(LEAST_EVENTS, int(limits.command_apply_s / self._event_s())))
        taken: list[Request] = []
        while self._queue and len(taken) < most:
            request = self._queue[0]
            if request.done:
                # Its sender was told that it was not done, or that nobody knows.
                self._keys.pop(request.key, None)
                self._queue.popleft()
                continue
            room -= request.size_bytes
            if room < 0 and taken:
                break
            taken.append(self._queue.popleft())
        return taken

    def _clock_due(self) -> bool:
        state = self._state()
        due_ms = next_due_ms(state)
        if due_ms is not None and due_ms <= log_time_ms(state, self._clock.wall_ms()):
            return True
        idle_s = asyncio.get_running_loop().time() - self._last_entries
        return idle_s >= self._config.intervals.idle_clock_s

    def _arm_timer(self) -> None:
        """Wake when the next timer of the core is due, or when it is time to let time pass."""
        loop = asyncio.get_running_loop()
        state = self._state()
        wait_s = self._last_entries + self._config.intervals.idle_clock_s - loop.time()
        due_ms = next_due_ms(state)
        if due_ms is not None:
            wait_s = min(wait_s, (due_ms - log_time_ms(state, self._clock.wall_ms())) / 1_000)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(max(wait_s, 0.001), self._wake.set)

    # Committing

    async def _commit(self, proposal: Proposal) -> None:
        term = self._term
        payload = encode_batch(proposal.batch)
        if len(payload) > self._config.limits.command_bytes and self._split(proposal):
            return
        for request in proposal.requests:
            request.attempts += 1
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = await self._log.propose(payload, self._config.intervals.propose_s)
        reach("node.command.decided")
        ended = loop.time()
        if proposal.batch.submissions:
            self._last_entries = ended
        self._metrics.proposed(outcome, ended - started, len(proposal.requests))
        for request in proposal.requests:
            self._keys.pop(request.key, None)
        if isinstance(outcome, Committed):
            self._reported = ""
            self._opened = self._opened or (
                term == self._term and proposal.batch.term == self._state().meta.term
            )
            for done in proposal.barriers:
                done(outcome.raft_index)
            if term == self._term and not self._opened:
                log.error("term_not_opened", term=term, log_term=self._state().meta.term)
                await asyncio.sleep(PAUSE_S)
            return
        self._report(outcome)
        if isinstance(outcome, NotCommitted):
            for request in proposal.requests:
                request.attempts -= 1
        if term == self._term:
            self._barriers = [*proposal.barriers, *self._barriers]
        self._handed_back(proposal.requests, outcome)
        await asyncio.sleep(PAUSE_S)

    def _report(self, outcome: ProposeOutcome) -> None:
        said = str(outcome)
        if said != self._reported:
            self._reported = said
            log.warning("command_not_committed", term=self._term, outcome=said)

    def _split(self, proposal: Proposal) -> bool:
        """A command came out larger than estimated: take half, or give up on a single event."""
        requests = proposal.requests
        if not requests:
            return False
        self._barriers = [*proposal.barriers, *self._barriers]
        if len(requests) == 1:
            self._keys.pop(requests[0].key, None)
            self._handed_back(requests, NotCommitted("too_large"))
            return True
        for request in requests:
            request.size_bytes *= 2
        self._queue.extendleft(reversed(requests))
        return True
