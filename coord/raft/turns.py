"""Turns of the event loop: in each, raft takes what arrived, ticks, commits and sends.

A turn takes what arrived and what was proposed, lets raft tick, commits the environment (one
transaction, one fsync), and sends. Turns are scheduled by each message, each proposal and a timer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from coord.raft import guard_durable
from coord.raft.guard_append import Message
from coord.raft.guarded_raft import GuardedRaft
from coord.raft.journal import Journal, JournalEnvironment
from coord.raft.network import PeerNetwork
from coord.raft.proposals import Proposals
from coord.raft.timings import RaftTimings
from coord.sites import reach
from coord.store.ports import StorageFull

log = structlog.get_logger()


class Turns:
    """Drives one `GuardedRaft`. `after_turn` is called at the end of each turn, also of one that
    could do nothing; `failed` once, after which there are no more."""

    def __init__(
        self,
        raft: GuardedRaft,
        journal: Journal,
        environment: JournalEnvironment,
        network: PeerNetwork,
        proposals: Proposals,
        timings: RaftTimings,
        rng: random.Random,
        *,
        rules: frozenset[str],
        after_turn: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.running = False
        self.read_only = ""
        """Why nothing can be written; empty when all is well."""
        self.holds_proposals = False
        """Proposals wait while leadership is handed over."""
        self._raft = raft
        self._journal = journal
        self._environment = environment
        self._network = network
        self._proposals = proposals
        self._timings = timings
        self._rng = rng
        self._rules = rules
        self._after_turn = after_turn
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._inbox: list[tuple[int, int, Message]] = []
        self._epochs: dict[int, int] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._notices: dict[int, Message] = {}
        """Appends without entries, by peer, that an append with entries may make needless."""
        self._notice_timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._orphaned: asyncio.TimerHandle | None = None
        self._blocked_since_s = 0.0
        self._tick_not_before_s = 0.0
        self._ticked = False

    def start(self) -> None:
        self.running = True
        self._arm_timer()

    def stop(self) -> None:
        """No turn comes after; whoever waits for one returns."""
        self.running = False
        for handle in (self._scheduled, self._timer, self._orphaned, self._notice_timer):
            if handle is not None:
                handle.cancel()
        self._wake()

    @property
    def connected_to(self) -> tuple[int, ...]:
        return tuple(sorted(self._epochs))

    def commit_now(self) -> None:
        """Outside of turns, at start and stop. Raises StorageFull."""
        self._environment.commit()
        self._journal.committed()

    def schedule(self) -> None:
        """Have a turn soon."""
        if self.running and self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._turn)

    async def next_turn(self) -> None:
        """Return after the next turn, or when there are no more."""
        if not self.running:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    # Connections

    def connected(self, node: int, epoch: int) -> None:
        if not self.running:
            return
        if node in self._epochs:
            self._raft.disconnected(node)
        self._notices.pop(node, None)
        self._epochs[node] = epoch
        self._raft.connected(node)
        self.schedule()

    def disconnected(self, node: int, epoch: int) -> None:
        if not self.running or self._epochs.get(node) != epoch:
            return
        del self._epochs[node]
        self._notices.pop(node, None)
        self._raft.disconnected(node)
        if node == self._raft.leader and self._orphaned is None:
            self._arm_orphan_timer()

    def received(self, node: int, epoch: int, message: Message) -> None:
        """While nothing can be written, what arrives is as good as lost."""
        if not self.read_only:
            self._inbox.append((node, epoch, message))
            self.schedule()

    def is_newest(self, node: int, epoch: int) -> bool:
        """Rule G8."""
        return "G8" not in self._rules or self._epochs.get(node) == epoch

    # Turns

    def _turn(self, timer: bool = False) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        if not self.running:
            return
        try:
            if self._can_write():
                self._take_turn(timer)
            if self._raft.failure is not None:
                raise self._raft.failure
            if not self.read_only:
                self._send_all()
            self._after_turn()
        except Exception as error:
            self._fail(error)
            return
        self._wake()

    def _take_turn(self, timer: bool) -> None:
        try:
            heard = self._take_inbox()
        except StorageFull as error:
            self._block(error)
            return
        if guard_durable.must_commit_before_tick(
            leads=self._raft.leads, dirty=self._journal.dirty, rules=self._rules
        ):
            self._commit()
        if self.read_only or self._raft.failure is not None:
            return
        if heard or self._raft.leads or self._loop.time() >= self._tick_not_before_s:
            self._tick()
        self._send_early()
        reach("raft.turn.sent_early")
        self._commit_turn(timer)

    def _take_inbox(self) -> bool:
        """Whether there was anything in it."""
        inbox, self._inbox = self._inbox, []
        for node, epoch, message in inbox:
            if self._raft.failure is None and self.is_newest(node, epoch):
                self._raft.receive(node, message)
        return bool(inbox)

    def _tick(self) -> None:
        self._ticked = True
        if not self._raft.leads:
            self._proposals.refuse("not_leader")
        elif not self.holds_proposals:
            self._proposals.hand_over()
        self._raft.tick()
        if self._raft.failure is not None:
            return
        self._proposals.applied(self._raft.applied_index, self._journal.term_at)
        leading_term = self._raft.term if self._raft.leads else 0
        if "G11" in self._rules:
            self._proposals.abandon("stepped_down", leading_term)

    def _send_early(self) -> None:
        """What needs not wait for the fsync goes before it, in order for each peer."""
        held: list[tuple[int, Message]] = []
        holding: dict[int, None] = {}
        for peer, message in self._raft.outbox:
            if peer not in holding and guard_durable.may_leave(
                message,
                entries_dirty=self._journal.entries_dirty,
                hard_state_dirty=self._journal.hard_state_dirty,
                rules=self._rules,
            ):
                self._post(peer, message)
            else:
                holding[peer] = None
                held.append((peer, message))
        self._raft.outbox = held

    def _send_all(self) -> None:
        outbox, self._raft.outbox = self._raft.outbox, []
        for peer, message in outbox:
            self._post(peer, message)

    def _post(self, peer: int, message: Message) -> None:
        """Send, or for an append without entries, wait a moment for one that has some."""
        if message["type"] == "append_entries":
            if not message.get("entries"):
                self._notices[peer] = message
                if self._notice_timer is None:
                    delay_s = self._timings.notice_ms / 1000
                    self._notice_timer = self._loop.call_later(delay_s, self._send_notices)
                return
            self._notices.pop(peer, None)
        self._network.send(peer, message)

    def _send_notices(self) -> None:
        self._notice_timer = None
        notices, self._notices = self._notices, {}
        for peer, message in sorted(notices.items()):
            if self._raft.leads and message["term"] == self._raft.term:
                self._network.send(peer, message)

    def _commit_turn(self, timer: bool) -> None:
        """Commit what messages and ticks depend on; what was only applied may wait for the next
        such commit, or for the timer."""
        own = self._raft.leads and not self._journal.hard_state_dirty
        due = self._journal.dirty and ("G5.own" in self._rules or not own)
        if due or (timer and self._environment.dirty):
            self._commit()

    def _commit(self) -> None:
        try:
            self._environment.commit()
        except StorageFull as error:
            self._block(error)
            return
        reach("raft.turn.committed")
        self._journal.committed()
        if self.read_only:
            log.info("writing again", node=self._raft.node)
            self.read_only = ""
            self._hear_first()

    def _block(self, error: StorageFull) -> None:
        if not self.read_only:
            self._blocked_since_s = self._loop.time()
            log.error("nothing can be written", node=self._raft.node, error=str(error))
        self.read_only = str(error)

    def _can_write(self) -> bool:
        """Rule G5: while the sync fails nothing leaves and no tick runs. The timer tries again."""
        if not self.read_only:
            return True
        self._proposals.refuse("read_only")
        self._commit()
        if not self.read_only:
            return True
        blocked_ms = (self._loop.time() - self._blocked_since_s) * 1000
        if guard_durable.must_step_down(
            leads=self._raft.leads,
            blocked_ms=blocked_ms,
            election_ms=self._timings.election_max_ms,
            rules=self._rules,
        ):
            self._raft.step_down()
            self._raft.outbox.clear()
            self._proposals.abandon("read_only")
        return False

    # Timers

    def _arm_timer(self) -> None:
        self._timer_due_s = self._loop.time() + self._timings.tick_ms / 1000
        self._timer = self._loop.call_at(self._timer_due_s, self._on_timer)

    def _on_timer(self) -> None:
        late_ms = (self._loop.time() - self._timer_due_s) * 1000
        self._arm_timer()
        if late_ms > self._timings.heartbeat_ms:
            self._hear_first()
        self._turn(timer=True)

    def _hear_first(self) -> None:
        """The process stood still: a follower waits for what lies in its sockets, lest it stand
        for election for want of a heartbeat that has arrived. Not twice without a tick between, or
        one that is always late would never stand."""
        if not self._ticked:
            return
        self._ticked = False
        self._tick_not_before_s = self._loop.time() + 2 * self._timings.heartbeat_ms / 1000

    def _arm_orphan_timer(self) -> None:
        timings = self._timings
        if timings.orphan_max_ms:
            span_ms = timings.orphan_max_ms - timings.orphan_min_ms
            delay_s = (timings.orphan_min_ms + span_ms * self._rng.random()) / 1000
            self._orphaned = self._loop.call_later(
                delay_s, self._stand, self._raft.leader, self._raft.term
            )

    def _stand(self, leader: int, term: int) -> None:
        """The connection to the leader was closed and has not come back."""
        self._orphaned = None
        gone = self._raft.leader == leader and leader not in self._epochs
        majority = 2 * (len(self._epochs) + 1) > len(self._journal.members)
        if self.running and gone and majority and self._raft.term == term and not self.read_only:
            self._raft.stand()
            self._turn()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self.stop()
        self._failed(error)
