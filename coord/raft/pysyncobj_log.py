"""The replicated log of a cluster: PySyncObj behind the guard, on the asyncio loop.

There are no threads but the one that writes a snapshot, and no polling: see turns.py.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any

import structlog

from coord.raft.guard_append import Message
from coord.raft.guard_snapshot import SnapshotPoint
from coord.raft.guarded_raft import COMMAND_LIMIT_BYTES, GuardedRaft
from coord.raft.journal import Journal, JournalEnvironment
from coord.raft.network import FetchFailed, PeerNetwork, SnapshotSource
from coord.raft.ports import (
    Member,
    NotCommitted,
    ProposeOutcome,
    RaftStatus,
    Role,
    StateMachine,
)
from coord.raft.proposals import Proposal, Proposals
from coord.raft.rules import ALL_RULES
from coord.raft.snapshots import RunBlocking, Snapshots
from coord.raft.timings import DEFAULT_TIMINGS, RaftTimings
from coord.raft.transport import TcpNetwork
from coord.raft.turns import Turns
from coord.store.ports import StorageCorrupt, StorageFull

log = structlog.get_logger()

Change = tuple[Role, int, int, tuple[Member, ...], str]
"""Role, term, leader, members, read_only: what `on_change` tells of."""


async def run_in_thread(function: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    return await asyncio.to_thread(function)


class PySyncObjLog:
    """A member's `ReplicatedLog`, and as `bus` its `PeerBus`.

    `members` is the first configuration, of which this node is one; with `joins` it is not, and
    waits until the leader adds it: `members` must then be those that the leader has (its own entry
    says where others will reach it), because the library counts majorities of whom it knows.
    After a restart the log's own configuration counts. `listen` is the address to bind where that
    is not the node's peer address; `ssl_context` is made by `handshake.peer_context`. The
    environment stays the caller's, who closes it after `stop`.
    """

    def __init__(
        self,
        node: int,
        members: tuple[Member, ...],
        environment: JournalEnvironment,
        timings: RaftTimings = DEFAULT_TIMINGS,
        *,
        rng: random.Random,
        ssl_context: ssl.SSLContext | None = None,
        listen: str = "",
        joins: bool = False,
        network: PeerNetwork | None = None,
        rules: frozenset[str] = ALL_RULES,
        run_blocking: RunBlocking = run_in_thread,
    ) -> None:
        own = [member.peer_address for member in members if member.node == node]
        self._first_address = own[0] if own else listen
        if network is None:
            network = TcpNetwork(
                node,
                environment.identity.cluster,
                listen=listen or self._first_address,
                peer_address=self._own_address,
                ssl_context=ssl_context,
                rng=rng,
            )
        self.node = node
        self.bus = NetworkBus(network)
        self._first_members = (
            tuple(member for member in members if member.node != node) if joins else members
        )
        self._environment = environment
        self._timings = timings
        self._network = network
        self._rng = rng
        self._rules = rules
        self._run_blocking = run_blocking
        self._changes: list[Callable[[RaftStatus], None]] = []
        self._halts: list[Callable[[BaseException], None]] = []
        self._proposals = Proposals()
        self._announced: Change | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._snapshotting = False
        self._snapshot_wanted_index = 0
        self._payload_index = 0
        self._raft: GuardedRaft
        self._journal: Journal
        self._snapshots: Snapshots
        self._machine: StateMachine
        self._turns: Turns | None = None

    # The port

    async def start(self, machine: StateMachine) -> None:
        """Raises StorageCorrupt where log and state do not belong together, OSError where the
        address cannot be had, and whatever `machine` raises."""
        self._machine = machine
        self._journal = Journal(self._environment, self._first_members)
        self._snapshots = Snapshots(self._journal, machine, self._environment, self._rules)
        self._payload_index = machine.applied_raft_index()
        self._check_start(self._payload_index)
        self._raft = self._make_raft(self._payload_index)
        turns = Turns(
            self._raft,
            self._journal,
            self._environment,
            self._network,
            self._proposals,
            self._timings,
            self._rng,
            rules=self._rules,
            after_turn=self._after_turn,
            failed=self._halt,
        )
        turns.commit_now()
        self._raft.load()
        if self._raft.failure is not None:
            raise self._raft.failure
        for member in self._journal.members:
            if member.node != self.node:
                self._network.add_peer(member)
        self._turns = turns
        turns.start()
        try:
            await self._network.start(self)
        except BaseException:
            turns.stop()
            await self._network.stop()
            raise
        self._announce()

    def _make_raft(self, applied_index: int) -> GuardedRaft:
        return GuardedRaft(
            self.node,
            self._journal,
            self._timings,
            self._rng,
            applied_index=applied_index,
            directory=self._environment.path,
            apply=self._apply,
            install=self._install,
            snapshot=self._snapshots.point,
            fetched=self._snapshots.fetched_point,
            add_peer=self._network.add_peer,
            drop_peer=self._network.drop_peer,
            rules=self._rules,
        )

    async def stop(self) -> None:
        turns = self._turns
        if turns is None:
            return
        was_running = turns.running
        turns.stop()
        self._proposals.refuse("stopped")
        self._proposals.abandon("stopped")
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
            self._fetching = None
        await self._network.stop()
        if was_running:
            try:
                turns.commit_now()
            except StorageFull as error:
                log.warning("stopped with a full disk", node=self.node, error=str(error))

    async def propose(self, payload: bytes, deadline_s: float) -> ProposeOutcome:
        if len(payload) > COMMAND_LIMIT_BYTES:
            return NotCommitted("too_large")

        def append(proposal: Proposal) -> None:
            self._raft.propose(payload, self._placing(proposal, "not_leader"))

        return await self._propose(append, deadline_s)

    def status(self) -> RaftStatus:
        raft, journal, turns = self._raft, self._journal, self._turns
        running = turns is not None and turns.running
        return RaftStatus(
            node=self.node,
            role=raft.role if running else Role.FOLLOWER,
            term=raft.term,
            leader=raft.leader if running else 0,
            commit_index=raft.commit_index,
            applied_index=raft.applied_index,
            first_index=journal.first_index,
            last_index=journal.last_index,
            members=journal.members,
            connected=turns.connected_to if turns is not None else (),
            read_only=turns.read_only if turns is not None else "",
            fsync_ms_last=self._environment.last_commit_ms,
        )

    def on_change(self, callback: Callable[[RaftStatus], None]) -> None:
        self._changes.append(callback)

    def on_halt(self, callback: Callable[[BaseException], None]) -> None:
        self._halts.append(callback)

    async def add_member(self, member: Member, deadline_s: float) -> ProposeOutcome:
        """`NotCommitted("already_member")` when its number is taken."""
        return await self._change_members(member, True, deadline_s)

    async def remove_member(self, node: int, deadline_s: float) -> ProposeOutcome:
        """`NotCommitted("not_a_member")`; `NotCommitted("leads")` for the leader itself, which has
        to hand over first."""
        known = [member for member in self._journal.members if member.node == node]
        if not known:
            return NotCommitted("not_a_member")
        return await self._change_members(known[0], False, deadline_s)

    async def transfer_leadership(self, node: int, deadline_s: float) -> bool:
        """Proposals wait meanwhile, so that the follower can be level; but no longer than an
        election takes, for one that is away must not cost everybody else their writes."""
        turns = self._turns
        if turns is None or not turns.running or not self._raft.leads:
            return False
        term = self._raft.term
        turns.holds_proposals = True
        try:
            async with asyncio.timeout(min(deadline_s, self._timings.election_max_ms / 1_000)):
                while self._leads_in(term):
                    if self._raft.transfer(node):
                        turns.schedule()
                        await self._led_for(self._timings.election_min_ms / 1000, term)
                    else:
                        await turns.next_turn()
        except TimeoutError:
            return False
        finally:
            turns.holds_proposals = False
            turns.schedule()
        return not self._leads_in(term)

    async def snapshot(self) -> int:
        """Raises RuntimeError while another one is being written, or nothing was applied yet."""
        turns, index = self._turns, self._payload_index
        if turns is None or not turns.running or self._snapshotting:
            raise RuntimeError("the log does not run, or a snapshot is being written already")
        newest = self._journal.snapshot
        if newest is not None and newest.index >= index:
            return newest.index
        if index < 2:
            raise RuntimeError("nothing was applied yet; there is nothing to write")
        self._snapshotting = True
        try:
            record = await self._snapshots.write(index, self._run_blocking)
        finally:
            self._snapshotting = False
        if record is None:
            return self._journal.snapshot.index if self._journal.snapshot else 0
        if turns.running:
            self._snapshots.shorten(record, self._timings)
            turns.schedule()
        while turns.running and self._journal.dirty:
            await turns.next_turn()
        if turns.running:
            self._snapshots.forget_older()
        return record.index

    # What the network calls

    def version(self) -> tuple[int, int]:
        return self._journal.configuration.version

    def accepts(self, node: int, version: tuple[int, int]) -> bool:
        if self._turns is None or not self._turns.running:
            return False
        # By what is committed: the newest in our log may yet be cut off, by that very node.
        settled = self._journal.configuration_at(self._raft.commit_index)
        known = node in self._raft.voters or node in [member.node for member in settled.members]
        return known or version > settled.version or not self._raft.votes

    def connected(self, node: int, epoch: int) -> None:
        assert self._turns is not None
        self._turns.connected(node, epoch)

    def disconnected(self, node: int, epoch: int) -> None:
        assert self._turns is not None
        self._turns.disconnected(node, epoch)

    def received(self, node: int, epoch: int, message: Message) -> None:
        turns = self._turns
        assert turns is not None
        if not turns.running or not turns.is_newest(node, epoch):
            return
        if message["type"] == "bus":
            self.bus.receive(node, message["topic"], message["payload"])
        else:
            turns.received(node, epoch, message)

    def snapshot_source(self, index: int) -> SnapshotSource | None:
        return self._snapshots.source(index)

    # Inside

    def _check_start(self, applied: int) -> None:
        journal = self._journal
        compacted = journal.first_index > 1
        if applied > journal.last_index or (compacted and applied <= journal.first_index):
            raise StorageCorrupt(
                f"{self._environment.path}: the state stands at raft index {applied}, the log "
                f"holds {journal.first_index} to {journal.last_index}; they do not belong "
                "together. Move the data directory away and let the server rejoin from its peers"
            )

    def _own_address(self) -> str:
        """Where others reach this node: as the configuration has it, once that has this node."""
        known = [one.peer_address for one in self._journal.members if one.node == self.node]
        return known[0] if known else self._first_address

    def _leads_in(self, term: int) -> bool:
        running = self._turns is not None and self._turns.running
        return running and self._raft.leads and self._raft.term == term

    async def _led_for(self, seconds: float, term: int) -> None:
        """Return once we no longer lead in this term, or after so many seconds."""
        assert self._turns is not None
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while self._leads_in(term) and loop.time() < until_s:
            await self._turns.next_turn()

    async def _propose(
        self, append: Callable[[Proposal], None], deadline_s: float
    ) -> ProposeOutcome:
        turns = self._turns
        if turns is None or not turns.running:
            return NotCommitted("stopped")
        if turns.read_only:
            return NotCommitted("read_only")
        if not self._raft.leads:
            return NotCommitted("not_leader")
        turns.schedule()
        return await self._proposals.wait(Proposal(append), deadline_s)

    def _placing(self, proposal: Proposal, refusal: str) -> Callable[[int, int], None]:
        return lambda index, term: self._proposals.place(proposal, index, term, refusal)

    async def _change_members(
        self, member: Member, adds: bool, deadline_s: float
    ) -> ProposeOutcome:
        def append(proposal: Proposal) -> None:
            self._raft.propose_change(member, adds, self._placing(proposal, "busy"))

        loop = asyncio.get_running_loop()
        until_s = loop.time() + deadline_s
        while True:
            if self._turns is None or not self._turns.running:
                return NotCommitted("stopped")
            if not self._raft.leads:
                return NotCommitted("not_leader")
            known = member.node in self._raft.voters
            if adds and known:
                return NotCommitted("already_member")
            if not adds and not known:
                return NotCommitted("not_a_member")
            if not adds and member.node == self.node:
                return NotCommitted("leads")
            outcome = await self._propose(append, until_s - loop.time())
            if outcome != NotCommitted("busy") or loop.time() >= until_s:
                return outcome
            # Not at the next turn: asking makes one, and so the loop would do nothing else.
            await asyncio.sleep(self._timings.tick_ms / 1000)

    def _apply(self, index: int, term: int, payload: bytes) -> None:
        self._machine.apply(index, term, payload)
        self._payload_index = index

    def _install(self, point: SnapshotPoint) -> SnapshotSource:
        source = self._snapshots.install(point)
        self._payload_index = source.index
        return source

    def _after_turn(self) -> None:
        fetches, self._raft.fetches = self._raft.fetches, []
        for peer, point in fetches:
            fetched = self._snapshots.fetched
            if self._fetching is None and (fetched is None or fetched.index < point.index):
                self._fetching = asyncio.create_task(self._fetch(peer, point))
        self._announce()

    async def _fetch(self, peer: int, point: SnapshotPoint) -> None:
        try:
            source = await self._network.fetch_snapshot(
                peer, point.index, self._snapshots.directory
            )
            if SnapshotPoint(source.index, source.term) == point:
                self._snapshots.fetched = source
        except (FetchFailed, OSError) as error:
            log.warning("snapshot not fetched yet", node=self.node, peer=peer, error=str(error))
        except Exception as error:
            self._fetching = None
            self._halt(error)
        finally:
            self._fetching = None

    def _announce(self) -> None:
        raft, turns = self._raft, self._turns
        read_only = turns.read_only if turns is not None else ""
        seen = (raft.role, raft.term, raft.leader, self._journal.members, read_only)
        if seen != self._announced:
            self._announced = seen
            status = self.status()
            for callback in list(self._changes):
                callback(status)

    def _halt(self, error: BaseException) -> None:
        """Stop taking part, for ever; `stop` still has to be called."""
        log.critical("the replicated log halts", node=self.node, error=repr(error))
        if self._turns is not None:
            self._turns.stop()
        self._proposals.refuse("stopped")
        self._proposals.abandon("halted")
        for member in self._journal.members:
            self._network.drop_peer(member.node)
        for callback in list(self._halts):
            callback(error)


class NetworkBus:
    """`PeerBus` over the connections that raft uses."""

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network
        self._handlers: dict[str, Callable[[int, bytes], None]] = {}

    def send(self, node: int, topic: str, payload: bytes) -> bool:
        message: dict[str, Any] = {"type": "bus", "topic": topic, "payload": payload}
        return self._network.send(node, message)

    def subscribe(self, topic: str, handler: Callable[[int, bytes], None]) -> None:
        if topic in self._handlers:
            raise ValueError(f"topic {topic!r} already has a handler")
        self._handlers[topic] = handler

    def receive(self, sender: int, topic: str, payload: bytes) -> None:
        handler = self._handlers.get(topic)
        if handler is not None:
            handler(sender, payload)
