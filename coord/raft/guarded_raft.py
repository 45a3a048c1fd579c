"""PySyncObj behind the guard, without sockets, tasks or timers: everything happens when called.

Calls go in by `receive`, `propose`, `tick`; what is to be sent lies in `outbox` until whoever calls
has committed what must be durable first (guard_durable.py).
"""

from __future__ import annotations

import collections
import os
import random
from collections.abc import Callable
from typing import Any

import msgspec
from pysyncobj.config import FAIL_REASON, SERIALIZER_STATE, SyncObjConf
from pysyncobj.syncobj import _RAFT_STATE, SyncObj, replicated
from pysyncobj.transport import Transport

from coord.raft.configuration import LogEntry, first_configuration
from coord.raft.guard import Answering, Deliver, Fetch, Guard, Install, Send, cannot_win
from coord.raft.guard_append import GuardBroken, Message
from coord.raft.guard_snapshot import TICKET, SnapshotPoint
from coord.raft.journal import Journal
from coord.raft.library import NO_OP, PeerNode, active, peer_node
from coord.raft.network import SnapshotSource
from coord.raft.ports import Member, Role
from coord.raft.rules import ALL_RULES
from coord.raft.timings import RaftTimings
from coord.store.ports import StorageFull

COMMAND_LIMIT_BYTES = 4 * 1024 * 1024
"""A payload may have so many bytes."""

_NEVER_S = 1e9
_LIBRARY_BATCH_BYTES = 64 * 1024 * 1024

Placed = Callable[[int, int], None]
"""(index, term) at which the leader appended a proposal; (0, 0) if it certainly did not."""


class Installed(msgspec.Struct, frozen=True):
    """What a dump is loaded from: the last two entries that the state holds, and the members."""

    entries: tuple[LogEntry, LogEntry]
    members: tuple[Member, ...]


class GuardedRaft:
    """One node's raft. `apply(index, term, payload)` and `install(point)` drive the state machine;
    `add_peer` and `drop_peer` follow the configuration."""

    def __init__(
        self,
        node: int,
        journal: Journal,
        timings: RaftTimings,
        rng: random.Random,
        *,
        applied_index: int,
        directory: str,
        apply: Callable[[int, int, bytes], None],
        install: Callable[[SnapshotPoint], SnapshotSource],
        snapshot: Callable[[], SnapshotPoint | None],
        fetched: Callable[[], SnapshotPoint | None],
        add_peer: Callable[[Member], None],
        drop_peer: Callable[[int], None],
        rules: frozenset[str] = ALL_RULES,
    ) -> None:
        self.node = node
        self.journal = journal
        self.rules = rules
        self.outbox: list[tuple[int, Message]] = []
        self.fetches: list[tuple[int, SnapshotPoint]] = []
        self.failure: BaseException | None = None
        """What made it impossible to go on; the caller must halt the node."""
        self._rng = rng
        self._timings = timings
        self._apply = apply
        self._install = install
        self._add_peer = add_peer
        self._drop_peer = drop_peer
        self._queued: collections.deque[Placed] = collections.deque()
        self._queued_change: Placed | None = None
        """The change of members that was queued last."""
        self._followed: tuple[Member, ...] | None = None
        self._peers: dict[int, PeerNode] = {}
        self._candidate = False
        self._state_index = applied_index
        self._ticket = os.path.join(directory, "raft-ticket")
        self._loads = self._prepare_start(applied_index)
        with active(rng, journal):
            self._library: Any = _Library(self, journal, self._conf())
        self.guard = Guard(journal, self, snapshot, fetched, rules, timings)

    # What is read

    @property
    def term(self) -> int:
        return int(self._library.raftCurrentTerm)

    @property
    def commit_index(self) -> int:
        return int(self._library.raftCommitIndex)

    @property
    def applied_index(self) -> int:
        return int(self._library.raftLastApplied)

    @property
    def leads(self) -> bool:
        return bool(self._library._isLeader())

    @property
    def leader(self) -> int:
        """0 when none is known."""
        known = self._library._getLeader()
        return 0 if known is None else int(known.id)

    @property
    def role(self) -> Role:
        if self.leads:
            return Role.LEADER
        return Role.CANDIDATE if self._candidate else Role.FOLLOWER

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(member.node for member in self.journal.members)

    @property
    def votes(self) -> bool:
        """We are a member: may vote, and stand for election."""
        return self.node in self.voters

    # What is done

    def load(self) -> None:
        """Rule G13: the first tick, in which the library loads the state at hand and applies what
        it knows to be committed. No message may be let in before."""
        self.tick()
        self.journal.reveal()
        with open(self._ticket, "wb") as file:
            file.write(TICKET)

    def tick(self) -> None:
        """Elect, commit, apply, send what is due, append what was proposed."""
        with active(self._rng, self.journal):
            self._library.doTick(0)
        self._write_first_configuration()
        self._follow_membership()

    def connected(self, peer: int) -> None:
        self._library.connection_up(PeerNode(peer))
        for told in self.guard.connected(peer):
            self._hand_over(peer, told, None)

    def disconnected(self, peer: int) -> None:
        self._library.connection_down(PeerNode(peer))

    def receive(self, peer: int, message: Message) -> None:
        """A message from a peer. Raises GuardBroken, and StorageFull if a snapshot did not fit;
        sets `failure` if it did not load."""
        if message["type"] in ("next_node_idx", "alive") and peer not in self.voters:
            return
        for step in self.guard.incoming(peer, message):
            if isinstance(step, Send):
                self.outbox.append((peer, step.message))
            elif isinstance(step, Fetch):
                self.fetches.append((peer, step.point))
            elif isinstance(step, Install):
                self._receive_snapshot(peer, step)
            else:
                self._deliver(peer, step)
        self._follow_membership()

    def propose(self, payload: bytes, placed: Placed) -> None:
        """Append `payload` in the next tick; `placed` says where, or that it was not."""
        self._library.commit(payload, callback=self._queue(placed))

    def propose_change(self, member: Member, adds: bool, placed: Placed) -> None:
        """Append a change of members in the next tick. It is refused while another one, or the
        leader's first entry, is not committed."""
        queued = self._queued_change in self._queued  # not in the log before the next tick
        if queued or self.journal.has_change_after(self.commit_index):
            placed(0, 0)
            return
        self._queued_change = placed
        change = self._library.addNodeToCluster if adds else self._library.removeNodeFromCluster
        change(peer_node(member), callback=self._queue(placed))

    def transfer(self, node: int) -> bool:
        """Ask `node` (0: the most advanced) to stand for election now. False when it lags."""
        answers: list[int] = []
        target = PeerNode(node) if node else None
        self._library.transferLeadership(target, lambda _result, error: answers.append(error))
        return answers == [FAIL_REASON.SUCCESS]

    def step_down(self) -> None:
        """Give up leadership, for a term that nobody has led yet."""
        if self.leads:
            self._deliver(0, Deliver(cannot_win(self.term + 1)))

    def stand(self) -> None:
        """Stand for election in the next tick, as if the leader had asked for it."""
        if self.leader and self.votes and not self.leads:
            self._deliver(self.leader, Deliver({"type": "timeout_now", "term": self.term}))

    # Called by the library

    def from_library(self, peer: int, message: Message) -> bool:
        if message["type"] == "apply_command" and self._queued:
            self._queued.popleft()(0, 0)
        self.outbox += [(peer, sent) for sent in self.guard.outgoing(peer, message)]
        return True

    def appended(self, entry: LogEntry) -> None:
        """The journal got an entry while the library worked off proposals."""
        if self._queued and self.leads and entry[0][:1] != NO_OP:
            self._queued.popleft()(entry[1], entry[2])

    def state_changed(self, _old: int, new: int) -> None:
        self._candidate = new == _RAFT_STATE.CANDIDATE

    def committed(self, payload: bytes) -> None:
        """The one replicated method. Never raises: a failure halts the node."""
        index = self.applied_index + 1
        if self.failure is not None or index <= self._state_index:
            return
        try:
            self._apply(index, self.journal.term_at(index) or 0, payload)
        except Exception as error:
            self.failure = error

    def add_node(self, node: PeerNode) -> None:
        self._add_peer(node.member)

    def drop_node(self, node: PeerNode) -> None:
        self._drop_peer(int(node.id))

    def load_dump(self) -> tuple[LogEntry, LogEntry, list[PeerNode]]:
        """What the library calls loading a dump: at start the state at hand, later a snapshot that
        has been installed already."""
        assert self._loads is not None
        before_last, last = self._loads.entries
        return last, before_last, [peer_node(member) for member in self._loads.members]

    # Inside

    def _deliver(self, peer: int, step: Deliver) -> None:
        self._hand_over(peer, step.message, step.answering)

    def _hand_over(self, peer: int, message: Message, answering: Answering | None) -> None:
        self.guard.answering = answering
        try:
            with active(self._rng, self.journal):
                self._library.message_received(self._peer(peer), message)
        finally:
            self.guard.answering = None

    def _peer(self, node: int) -> PeerNode:
        """What the library compares its members with: only the number counts."""
        return self._peers.setdefault(node, PeerNode(node))

    def _receive_snapshot(self, peer: int, step: Install) -> None:
        """Rule G7: install in one step, and only then have the library load it, which would
        answer even a load that failed with success. Raises StorageFull with all as it was."""
        try:
            source = self._install(step.point)
        except StorageFull:
            raise
        except Exception as error:
            self.failure = error
            return
        self._loads = Installed(source.entries, source.members)
        self._state_index = source.index
        self._hand_over(peer, step.message, step.answering)
        if self.applied_index < step.point.index:
            self.failure = GuardBroken(
                f"the snapshot at index {step.point.index} was installed, but the library does "
                "not know; a restart will"
            )

    def _queue(self, placed: Placed) -> Callable[[object, int], None]:
        """The library works proposals off in order. What it calls back is believed only about one
        that is still queued: later it also says LEADER_CHANGED of what it forwarded."""
        self._queued.append(placed)

        def called_back(_result: object, error: int) -> None:
            if error != FAIL_REASON.SUCCESS and self._queued and self._queued[0] is placed:
                self._queued.popleft()(0, 0)

        return called_back

    def _write_first_configuration(self) -> None:
        """The first leader ever says in the log who the members are, for those who will join."""
        journal = self.journal
        if self.leads and not journal.configuration.in_log:
            journal.add(first_configuration(journal.members), journal.last_index + 1, self.term)

    def _follow_membership(self) -> None:
        """Keep the library's members the journal's. It takes back a change that is cut off by
        undoing it, also where it had changed nothing; and it knows no first configuration."""
        members = self.journal.members
        if self._followed is members:
            return
        self._followed = members
        known = {int(node.id): node for node in self._library.otherNodes}
        wanted = {member.node: member for member in members if member.node != self.node}
        for node in sorted(known.keys() - wanted.keys()):
            self._library.change_cluster(["rem", node, known[node]])
        for node in sorted(wanted.keys() - known.keys()):
            self._library.change_cluster(["add", node, peer_node(wanted[node])])
        self._let_stand()

    def _let_stand(self) -> None:
        """Who is no member must not stand for election: the library would count itself."""
        conf, timings = self._library.conf, self._timings
        conf.raftMinTimeout = timings.election_min_ms / 1000 if self.votes else _NEVER_S
        conf.raftMaxTimeout = timings.election_max_ms / 1000 if self.votes else 2 * _NEVER_S

    def _prepare_start(self, applied_index: int) -> Installed | None:
        """Rule G13: show a log that begins with the two entries that the state ends with."""
        if os.path.exists(self._ticket):
            os.unlink(self._ticket)
        last = self.journal.entry(applied_index)
        before_last = self.journal.entry(applied_index - 1)
        if last is None or before_last is None or "G13" not in self.rules:
            return None
        with open(self._ticket, "wb") as file:
            file.write(TICKET)
        self.journal.hide_before(applied_index - 1)
        return Installed((before_last, last), self.journal.members)

    def _conf(self) -> Any:
        timings = self._timings
        votes = self.votes
        return SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesPeriod=timings.heartbeat_ms / 1000,
            appendEntriesBatchSizeBytes=_LIBRARY_BATCH_BYTES,
            raftMinTimeout=timings.election_min_ms / 1000 if votes else _NEVER_S,
            raftMaxTimeout=timings.election_max_ms / 1000 if votes else 2 * _NEVER_S,
            leaderFallbackTimeout=timings.leader_fallback_ms / 1000,
            connectionTimeout=2 * _NEVER_S,
            commandsQueueSize=0,
            commandsWaitLeader=False,
            dynamicMembershipChange=True,
            logCompactionMinEntries=int(_NEVER_S),
            logCompactionMinTime=int(_NEVER_S),
            fullDumpFile=self._ticket,
            journalFile=None,
            useFork=False,
            serializer=_never_serialize,
            deserializer=lambda _file: self.load_dump(),
            serializeChecker=lambda: SERIALIZER_STATE.NOT_SERIALIZING,
            onStateChanged=self.state_changed,
        )


class _Library(SyncObj):  # type: ignore[misc]  # the library is untyped
    """The one SyncObj: exactly one replicated method, because it numbers them by sorted name."""

    def __init__(self, owner: GuardedRaft, journal: Journal, conf: Any) -> None:
        self._owner = owner
        self._bridge = _Bridge(owner)
        journal.on_append = owner.appended
        others = [peer_node(member) for member in journal.members if member.node != owner.node]
        super().__init__(PeerNode(owner.node), others, conf, transport=self._bridge)

    @replicated  # type: ignore[untyped-decorator]
    def commit(self, payload: bytes) -> None:
        self._owner.committed(payload)

    def change_cluster(self, request: list[Any]) -> None:
        self._SyncObj__doChangeCluster(request)

    def connection_up(self, node: PeerNode) -> None:
        self._bridge._onNodeConnected(node)

    def connection_down(self, node: PeerNode) -> None:
        self._bridge._onNodeDisconnected(node)

    def message_received(self, node: PeerNode, message: Message) -> None:
        self._bridge._onMessageReceived(node, message)


class _Bridge(Transport):  # type: ignore[misc]  # the library is untyped
    """The library's transport: everything goes to and comes from the guard."""

    def __init__(self, owner: GuardedRaft) -> None:
        super().__init__(None, None, [])
        self._owner = owner

    def setOnUtilityMessageCallback(self, message: str, callback: Any) -> None:
        """Rule G9: nobody changes members, versions or leaders by a message of the library's."""

    def send(self, node: PeerNode, message: Message) -> bool:
        return self._owner.from_library(int(node.id), message)

    def addNode(self, node: PeerNode) -> None:
        self._owner.add_node(node)

    def dropNode(self, node: PeerNode) -> None:
        self._owner.drop_node(node)


def _never_serialize(_file: str, _data: object) -> None:
    raise RuntimeError("the library's own compaction is switched off")
