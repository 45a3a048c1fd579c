"""What the node needs of a replicated log, and how nodes talk to each other."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

import msgspec


class Role(enum.StrEnum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Member(msgspec.Struct, frozen=True, order=True):
    """A server of the cluster. Addresses are `host:port`."""

    node: int
    peer_address: str
    api_address: str


class Committed(msgspec.Struct, frozen=True):
    """The payload was committed at this raft index and applied here."""

    raft_index: int


class NotCommitted(msgspec.Struct, frozen=True):
    """The payload was provably never appended. `reason` is a word: `not_leader`, `too_large`,
    `read_only` (the disk is full), `stopped`, `busy` (it was not this one's turn in time); of
    changes of members also `already_member`, `not_a_member`, `leads`, `single_node`."""

    reason: str


class Unknown(msgspec.Struct, frozen=True):
    """The payload may have been committed, or may be yet."""

    reason: str


ProposeOutcome = Committed | NotCommitted | Unknown


class RaftStatus(msgspec.Struct, frozen=True):
    """A reading. `leader` is 0 when none is known. Indexes are raft's, not coord's."""

    node: int
    role: Role
    term: int
    leader: int
    commit_index: int
    applied_index: int
    first_index: int
    last_index: int
    members: tuple[Member, ...]
    connected: tuple[int, ...]
    read_only: str = ""
    """Why nothing can be written here (the disk is full); empty when all is well."""
    fsync_ms_last: float = 0.0


class StateMachine(Protocol):
    """What the log drives. Called on the event loop's thread, never concurrently.

    An exception out of any of these halts the node.
    """

    def applied_raft_index(self) -> int:
        """The raft index up to which the state at hand holds everything. Read once, at start."""

    def apply(self, raft_index: int, term: int, payload: bytes) -> None:
        """A committed payload, in order, each exactly once over the life of the data directory
        (the log skips what `applied_raft_index` covers)."""

    def write_snapshot(self) -> Callable[[str], None]:
        """Called on the loop; fixes the state as of the last apply. The function returned writes it
        to the path it is given, in a worker thread, while applies go on, and fsyncs the file."""

    def install_snapshot(self, path: str, raft_index: int) -> None:
        """Replace the whole state by the file's, durably, in one step."""


class ReplicatedLog(Protocol):
    """A log of opaque payloads, the same on every member.

    All methods are called on the event loop. `propose` may be called while another is outstanding,
    but the node keeps to one at a time (group commit stands above this port).
    """

    async def start(self, machine: StateMachine) -> None:
        """Open, recover, replay the tail through `machine.apply`, and take part in the cluster."""

    async def stop(self) -> None:
        """Leave the loop clean: no task, socket or transaction of ours remains. Idempotent."""

    async def propose(self, payload: bytes, deadline_s: float) -> ProposeOutcome:
        """Append on the leader and wait until committed and applied here. Always answers within
        `deadline_s` seconds. `Committed` implies durable on a majority."""

    def status(self) -> RaftStatus: ...

    def on_change(self, callback: Callable[[RaftStatus], None]) -> None:
        """Call back, on the loop, after each change of role, term, leader or members."""

    def on_halt(self, callback: Callable[[BaseException], None]) -> None:
        """Call back once if the log had to stop (a raising apply, a broken guard rule)."""

    async def add_member(self, member: Member, deadline_s: float) -> ProposeOutcome: ...

    async def remove_member(self, node: int, deadline_s: float) -> ProposeOutcome: ...

    async def transfer_leadership(self, node: int, deadline_s: float) -> bool:
        """Ask `node` (0: the most advanced follower) to take over; true once we no longer lead.
        False when we did not lead at all, or nobody took over in time."""

    async def snapshot(self) -> int:
        """Write a snapshot now, shorten the journal, return the raft index it holds."""


class PeerBus(Protocol):
    """Messages between nodes, beside raft's own, over the same connections.

    Ordered within one connection, lost with it, never delivered from a superseded one.
    """

    def send(self, node: int, topic: str, payload: bytes) -> bool:
        """False when there is no connection or its buffer is full: certainly not delivered."""

    def subscribe(self, topic: str, handler: Callable[[int, bytes], None]) -> None:
        """`handler(sender, payload)`, on the loop. One handler a topic."""
