"""The replicated log in memory, for tests of the layers above: several nodes, one process.

`InMemoryHub` is the cluster: it holds the one log that all agree on, and decides who reaches whom.
`hub.log(node)` is one node's `ReplicatedLog`, `hub.log(node).bus` its `PeerBus`. Everything happens
in the order of the calls, delivery through `loop.call_soon`; there is no randomness and, unless
`election_delay_s` is set, no timer but the proposals' deadlines.

The hub outlives its logs: stop one, ask for `hub.log(node)` again, start it, and it is the
restarted process of the same data directory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable

import msgspec

from coord.raft.ports import (
    Committed,
    Member,
    NotCommitted,
    ProposeOutcome,
    RaftStatus,
    Role,
    StateMachine,
    Unknown,
)

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024


class _Slot(msgspec.Struct, frozen=True):
    """One entry of the log. `payload` None is the no-op of a new leader or a membership change."""

    index: int
    term: int
    payload: bytes | None


class _Waiting(msgspec.Struct, frozen=True):
    """A proposal in the leader's log that is not yet applied there."""

    index: int
    term: int
    future: asyncio.Future[ProposeOutcome]


class InMemoryHub:
    """A cluster of logs in one process. `members` is the first configuration.

    With `auto_elect`, whenever no leader reaches a majority and some side of the partition could,
    its lowest running node is elected (after `election_delay_s`); otherwise tests call `elect`.
    """

    def __init__(
        self,
        members: Iterable[Member] | int = 1,
        *,
        auto_elect: bool = True,
        election_delay_s: float = 0.0,
    ) -> None:
        if isinstance(members, int):
            members = [Member(n, f"peer-{n}:1", f"api-{n}:1") for n in range(1, members + 1)]
        self.members: dict[int, Member] = {member.node: member for member in members}
        self.term = 0
        self.leader = 0
        self.commit_index = 0
        self.auto_elect = auto_elect
        self.election_delay_s = election_delay_s
        self._logs: dict[int, InMemoryLog] = {}
        self._slots: list[_Slot] = []
        self._snapshot: tuple[int, str] | None = None
        self._sides: dict[int, int] = {}
        self._loses: list[bool] = []
        self._election: asyncio.Handle | None = None
        self._directory = ""

    # What tests do

    def log(self, node: int) -> InMemoryLog:
        """The node's log: the running one, or a new one if there is none or it was stopped."""
        current = self._logs.get(node)
        if current is None or current.stopped:
            current = InMemoryLog(self, node)
            self._logs[node] = current
        return current

    def elect(self, node: int) -> None:
        """Make `node` leader of a new term now. It must run, be a member and reach a majority."""
        if not self._may_lead(node):
            raise ValueError(f"node {node} does not run, or reaches no majority of {self._ids()}")
        self.term += 1
        previous, self.leader = self.leader, node
        del self._slots[self._position(self.commit_index + 1) :]
        for log in self._running():
            if log.node in (previous, node):
                log.abandon("leader_changed")
        self._append(None)
        self._commit()
        self._announce()

    def fail_over(self) -> int:
        """Depose the leader in favour of the next running node; returns the new leader."""
        candidates = [n for n in self._ids() if n != self.leader and self._may_lead(n)]
        if not candidates:
            raise ValueError("no other node runs and reaches a majority")
        after = [n for n in candidates if n > self.leader]
        self.elect((after or candidates)[0])
        return self.leader

    def step_down(self) -> None:
        """The leader loses its office and nobody follows until `elect` (or the next `heal`)."""
        previous, self.leader = self.leader, 0
        if previous in self._logs:
            self._logs[previous].abandon("stepped_down")
        self._announce()

    def partition(self, *sides: Iterable[int]) -> None:
        """Nodes of different sides do not reach each other; unnamed nodes are each alone."""
        self._sides = {node: -node for node in self.members}
        for number, side in enumerate(sides):
            for node in side:
                self._sides[node] = number + 1
        if self.leader and not self._may_lead(self.leader):
            self.step_down()
        self._announce()
        self.review()

    def heal(self) -> None:
        """Everyone reaches everyone; those behind catch up."""
        self._sides = {}
        self._announce()
        self._commit()
        self.review()

    def lose_next_proposal(self, *, commits: bool) -> None:
        """The next proposal ends as `Unknown`; `commits` says whether it is committed after all."""
        self._loses.append(commits)

    # What the logs use

    def reaches(self, one: int, other: int) -> bool:
        return self._sides.get(one, 0) == self._sides.get(other, 0)

    def review(self) -> None:
        """Elect if there should be a leader and is none."""
        if not self.auto_elect or self.leader or self._election is not None:
            return
        if not any(self._may_lead(node) for node in self._ids()):
            return
        loop = asyncio.get_running_loop()
        if self.election_delay_s > 0:
            self._election = loop.call_later(self.election_delay_s, self._elect_first)
        else:
            self._election = loop.call_soon(self._elect_first)

    def joined(self, log: InMemoryLog) -> None:
        self._catch_up(log)
        self._announce()
        self._commit()
        self.review()

    def left(self, node: int) -> None:
        if self.leader == node:
            self.leader = 0
        elif self.leader and not self._may_lead(self.leader):
            self.step_down()
        self._announce()
        if not self._running() and self._election is not None:
            self._election.cancel()
            self._election = None
        if self._running():
            self.review()

    def propose(self, log: InMemoryLog, payload: bytes | None) -> asyncio.Future[ProposeOutcome]:
        future: asyncio.Future[ProposeOutcome] = asyncio.get_running_loop().create_future()
        if payload is not None and self._loses:
            if self._loses.pop(0):
                self._append(payload)
                self._commit()
            future.set_result(Unknown("lost"))
            return future
        slot = self._append(payload)
        log.wait_for(_Waiting(slot.index, slot.term, future))
        self._commit()
        return future

    def change_members(self, members: dict[int, Member]) -> None:
        self.members = dict(sorted(members.items()))
        if self.leader and self.leader not in self.members:
            self.step_down()
        self._announce()
        self._commit()
        self.review()

    def entries(self, start: int, stop: int) -> list[_Slot]:
        return self._slots[self._position(start) : self._position(stop)]

    @property
    def first_index(self) -> int:
        return self._snapshot[0] + 1 if self._snapshot else 1

    @property
    def last_index(self) -> int:
        return self._slots[-1].index if self._slots else self.first_index - 1

    @property
    def snapshot_file(self) -> tuple[int, str] | None:
        return self._snapshot

    def snapshot_path(self, index: int) -> str:
        if not self._directory:
            self._directory = tempfile.mkdtemp(prefix="coord-hub-")
            weakref.finalize(self, shutil.rmtree, self._directory, True)
        return os.path.join(self._directory, f"{index:020d}")

    def keep_snapshot(self, index: int, path: str) -> None:
        """The log up to `index` is forgotten; who still needs it installs the file."""
        if self._snapshot is not None and self._snapshot[0] >= index:
            return
        del self._slots[: self._position(index + 1)]
        self._snapshot = (index, path)

    # How it works inside

    def _ids(self) -> list[int]:
        return sorted(self.members)

    def _running(self) -> list[InMemoryLog]:
        return [log for _, log in sorted(self._logs.items()) if log.running]

    def _may_lead(self, node: int) -> bool:
        if node not in self.members or not any(log.node == node for log in self._running()):
            return False
        reached = [
            log.node
            for log in self._running()
            if log.node in self.members and self.reaches(log.node, node)
        ]
        return len(reached) > len(self.members) // 2

    def _elect_first(self) -> None:
        self._election = None
        for node in self._ids():
            if not self.leader and self._may_lead(node):
                self.elect(node)

    def _append(self, payload: bytes | None) -> _Slot:
        slot = _Slot(self.last_index + 1, self.term, payload)
        self._slots.append(slot)
        return slot

    def _commit(self) -> None:
        if not self.leader or not self._may_lead(self.leader):
            return
        self.commit_index = self.last_index
        for log in self._running():
            self._catch_up(log)

    def _catch_up(self, log: InMemoryLog) -> None:
        if self.leader and log.node in self.members and self.reaches(log.node, self.leader):
            log.deliver()

    def _announce(self) -> None:
        for log in self._running():
            log.announce()

    def _position(self, index: int) -> int:
        return max(0, index - self.first_index)


class InMemoryLog:
    """One node of an `InMemoryHub`: both its `ReplicatedLog` and (as `bus`) its `PeerBus`."""

    def __init__(self, hub: InMemoryHub, node: int) -> None:
        self.node = node
        self.running = False
        self.stopped = False
        self.bus = InMemoryBus(self)
        self.hub = hub
        self._machine: StateMachine | None = None
        self._applied = 0
        self._delivery: asyncio.Handle | None = None
        self._waiting: list[_Waiting] = []
        self._changes: list[Callable[[RaftStatus], None]] = []
        self._halts: list[Callable[[BaseException], None]] = []
        self._announced: tuple[Role, int, int, tuple[Member, ...]] | None = None

    async def start(self, machine: StateMachine) -> None:
        self._machine = machine
        self._applied = machine.applied_raft_index()
        self.running = True
        self.hub.joined(self)

    async def stop(self) -> None:
        if not self.running:
            self.stopped = True
            return
        self.running = False
        self.stopped = True
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None
        self.abandon("stopped")
        self.hub.left(self.node)

    async def propose(self, payload: bytes, deadline_s: float) -> ProposeOutcome:
        if len(payload) > MAX_PAYLOAD_BYTES:
            return NotCommitted("too_large")
        return await self._propose(payload, deadline_s)

    def status(self) -> RaftStatus:
        leader = self.hub.leader if self.hub.reaches(self.node, self.hub.leader) else 0
        leads = self.running and self.hub.leader == self.node
        return RaftStatus(
            node=self.node,
            role=Role.LEADER if leads else Role.FOLLOWER,
            term=self.hub.term,
            leader=leader if self.running else 0,
            commit_index=self.hub.commit_index,
            applied_index=self._applied,
            first_index=self.hub.first_index,
            last_index=self.hub.last_index,
            members=tuple(self.hub.members.values()),
            connected=tuple(self.hub_peers()),
        )

    def on_change(self, callback: Callable[[RaftStatus], None]) -> None:
        self._changes.append(callback)

    def on_halt(self, callback: Callable[[BaseException], None]) -> None:
        self._halts.append(callback)

    async def add_member(self, member: Member, deadline_s: float) -> ProposeOutcome:
        outcome = await self._propose(None, deadline_s)
        if isinstance(outcome, Committed):
            self.hub.change_members({**self.hub.members, member.node: member})
        return outcome

    async def remove_member(self, node: int, deadline_s: float) -> ProposeOutcome:
        if node == self.node:
            return NotCommitted("leads")
        outcome = await self._propose(None, deadline_s)
        if isinstance(outcome, Committed):
            self.hub.change_members({n: m for n, m in self.hub.members.items() if n != node})
        return outcome

    async def transfer_leadership(self, node: int, deadline_s: float) -> bool:
        if self.hub.leader != self.node:
            return False
        try:
            if node:
                self.hub.elect(node)
            else:
                self.hub.fail_over()
        except ValueError:
            return False
        return True

    async def snapshot(self) -> int:
        if self._machine is None:
            raise RuntimeError("snapshot() before start()")
        index = self._applied
        path = self.hub.snapshot_path(index)
        write = self._machine.write_snapshot()
        await asyncio.to_thread(write, path)
        self.hub.keep_snapshot(index, path)
        return index

    # Called by the hub

    def hub_peers(self) -> list[int]:
        return [
            log.node
            for log in self.hub._running()
            if log.node != self.node and self.hub.reaches(log.node, self.node)
        ]

    def wait_for(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)

    def deliver(self) -> None:
        """Apply what is committed, soon."""
        if self.running and self._delivery is None and self._applied < self.hub.commit_index:
            self._delivery = asyncio.get_running_loop().call_soon(self._apply_committed)

    def abandon(self, reason: str) -> None:
        """Whoever waits here learns that nobody knows."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.future.done():
                one.future.set_result(Unknown(reason))

    def announce(self) -> None:
        status = self.status()
        seen = (status.role, status.term, status.leader, status.members)
        if seen != self._announced:
            self._announced = seen
            for callback in list(self._changes):
                callback(status)

    # Inside

    async def _propose(self, payload: bytes | None, deadline_s: float) -> ProposeOutcome:
        if not self.running:
            return NotCommitted("stopped")
        if self.hub.leader != self.node:
            return NotCommitted("not_leader")
        future = self.hub.propose(self, payload)
        try:
            async with asyncio.timeout(deadline_s):
                return await future
        except TimeoutError:
            return Unknown("timeout")

    def _apply_committed(self) -> None:
        self._delivery = None
        assert self._machine is not None
        try:
            snapshot = self.hub.snapshot_file
            if snapshot is not None and self._applied < snapshot[0]:
                self._machine.install_snapshot(snapshot[1], snapshot[0])
                self._applied = snapshot[0]
            for slot in self.hub.entries(self._applied + 1, self.hub.commit_index + 1):
                if slot.payload is not None:
                    self._machine.apply(slot.index, slot.term, slot.payload)
                self._applied = slot.index
                if not self.running:
                    return
        except Exception as error:
            self._halt(error)
            return
        self._answer()

    def _answer(self) -> None:
        done = [one for one in self._waiting if one.index <= self._applied]
        self._waiting = [one for one in self._waiting if one.index > self._applied]
        for one in done:
            if not one.future.done():
                one.future.set_result(Committed(one.index))

    def _halt(self, error: BaseException) -> None:
        self.running = False
        self.stopped = True
        self.abandon("halted")
        self.hub.left(self.node)
        for callback in list(self._halts):
            callback(error)


class InMemoryBus:
    """`PeerBus` between the logs of one hub."""

    def __init__(self, log: InMemoryLog) -> None:
        self._log = log
        self._handlers: dict[str, Callable[[int, bytes], None]] = {}

    def send(self, node: int, topic: str, payload: bytes) -> bool:
        if not self._log.running or node not in self._log.hub_peers():
            return False
        other = self._log.hub.log(node)
        asyncio.get_running_loop().call_soon(
            other.bus.receive, self._log.node, topic, bytes(payload)
        )
        return True

    def subscribe(self, topic: str, handler: Callable[[int, bytes], None]) -> None:
        if topic in self._handlers:
            raise ValueError(f"topic {topic!r} already has a handler")
        self._handlers[topic] = handler

    def receive(self, sender: int, topic: str, payload: bytes) -> None:
        handler = self._handlers.get(topic)
        if handler is not None and self._log.running and sender in self._log.hub_peers():
            handler(sender, payload)
