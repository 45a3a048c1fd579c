"""The replicated log of one server: the same journal on disk, and nobody to ask.

What is proposed in one pass of the loop becomes durable with one fsync and is then applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from coord.raft.guarded_raft import COMMAND_LIMIT_BYTES
from coord.raft.journal import Journal, JournalEnvironment
from coord.raft.library import NO_OP, payload_of, regular_command
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
from coord.raft.rules import ALL_RULES
from coord.raft.snapshots import Snapshots
from coord.raft.timings import RaftTimings
from coord.store.ports import StorageCorrupt, StorageFull

log = structlog.get_logger()

_TIMINGS = RaftTimings(keep_entries=2)
_RETRY_S = 0.2
_FLUSH_S = 0.02

Waiting = tuple[bytes, "asyncio.Future[ProposeOutcome]"]


class SingleNodeLog:
    """A cluster of one: leader from start to stop. Its log can later be that of a cluster's first
    member."""

    def __init__(self, member: Member, environment: JournalEnvironment) -> None:
        self.node = member.node
        self._member = member
        self._environment = environment
        self._journal: Journal
        self._snapshots: Snapshots
        self._machine: StateMachine
        self._applied = 0
        self._payload_index = 0
        self._term = 0
        self._running = False
        self._read_only = ""
        self._waiting: list[Waiting] = []
        self._turn_handle: asyncio.Handle | None = None
        self._flush_handle: asyncio.TimerHandle | None = None
        self._snapshotting = False
        self._changes: list[Callable[[RaftStatus], None]] = []
        self._halts: list[Callable[[BaseException], None]] = []

    async def start(self, machine: StateMachine) -> None:
        """Raises StorageCorrupt where log and state do not belong together, StorageFull."""
        self._machine = machine
        journal = self._journal = Journal(self._environment, (self._member,))
        self._snapshots = Snapshots(journal, machine, self._environment, ALL_RULES)
        self._applied = self._payload_index = machine.applied_raft_index()
        if not journal.first_index - 1 <= self._applied <= journal.last_index:
            raise StorageCorrupt(
                f"{self._environment.path}: the state stands at raft index {self._applied}, the "
                f"log holds {journal.first_index} to {journal.last_index}; they do not belong "
                "together. Restore the directory from a copy of the whole"
            )
        self._term = journal.getCurrentTerm() + 1
        journal.setCurrentTerm(self._term, self.node)
        journal.add(NO_OP, journal.last_index + 1, self._term)
        self._environment.commit()
        self._apply_up_to_end()
        self._running = True
        self._tell()

    async def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        for handle in (self._turn_handle, self._flush_handle):
            if handle is not None:
                handle.cancel()
        self._answer_waiting(NotCommitted("stopped"))
        try:
            self._environment.commit()
        except StorageFull as error:
            log.warning("stopped with a full disk", node=self.node, error=str(error))

    async def propose(self, payload: bytes, deadline_s: float) -> ProposeOutcome:
        if not self._running:
            return NotCommitted("stopped")
        if len(payload) > COMMAND_LIMIT_BYTES:
            return NotCommitted("too_large")
        if self._read_only:
            return NotCommitted("read_only")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ProposeOutcome] = loop.create_future()
        self._waiting.append((payload, future))
        if self._turn_handle is None:
            self._turn_handle = loop.call_soon(self._turn)
        try:
            async with asyncio.timeout(deadline_s):
                return await future
        except TimeoutError:
            return Unknown("timeout")

    def status(self) -> RaftStatus:
        return RaftStatus(
            node=self.node,
            role=Role.LEADER if self._running else Role.FOLLOWER,
            term=self._term,
            leader=self.node if self._running else 0,
            commit_index=self._journal.last_index,
            applied_index=self._applied,
            first_index=self._journal.first_index,
            last_index=self._journal.last_index,
            members=(self._member,),
            connected=(),
            read_only=self._read_only,
            fsync_ms_last=self._environment.last_commit_ms,
        )

    def on_change(self, callback: Callable[[RaftStatus], None]) -> None:
        self._changes.append(callback)

    def on_halt(self, callback: Callable[[BaseException], None]) -> None:
        self._halts.append(callback)

    async def add_member(self, member: Member, deadline_s: float) -> ProposeOutcome:
        """`NotCommitted("single_node")`: start the server as a member of a cluster first."""
        return NotCommitted("single_node")

    async def remove_member(self, node: int, deadline_s: float) -> ProposeOutcome:
        """As `add_member`."""
        return NotCommitted("single_node")

    async def transfer_leadership(self, node: int, deadline_s: float) -> bool:
        """There is nobody to hand over to."""
        return False

    async def snapshot(self) -> int:
        """Raises RuntimeError while another one is being written, or nothing was applied yet."""
        index = self._payload_index
        if not self._running or self._snapshotting or index < 2:
            raise RuntimeError("nothing was applied yet, or a snapshot is being written already")
        self._snapshotting = True
        try:
            record = await self._snapshots.write(index, asyncio.to_thread)
        finally:
            self._snapshotting = False
        if record is not None and self._running:
            self._snapshots.shorten(record, _TIMINGS)
            self._flush()
            if not self._read_only:
                self._snapshots.forget_older()
        return index

    # Inside

    def _turn(self) -> None:
        self._turn_handle = None
        waiting = [one for one in self._waiting if not one[1].done()]
        self._waiting = []
        try:
            outcomes = self._take(waiting)
        except Exception as error:
            self._halt(error)
            outcomes = [Unknown("halted")] * len(waiting)
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            _answer(future, outcome)

    def _take(self, waiting: list[Waiting]) -> list[ProposeOutcome]:
        """Append, commit, apply; what became of each."""
        position, first_index = len(self._journal), self._journal.last_index + 1
        for number, (payload, _) in enumerate(waiting):
            self._journal.add(regular_command(payload), first_index + number, self._term)
        if not self._commit():
            # Nothing was written, and now it will not be.
            self._journal.deleteEntriesFrom(position)
            self._tell()
            return [NotCommitted("read_only")] * len(waiting)
        self._apply_up_to_end()
        self._flush_soon(_FLUSH_S)
        return [Committed(first_index + number) for number in range(len(waiting))]

    def _commit(self) -> bool:
        try:
            self._environment.commit()
        except StorageFull as error:
            self._read_only = str(error)
            log.error("nothing can be written", node=self.node, error=self._read_only)
            self._flush_soon(_RETRY_S)
            return False
        if self._read_only:
            self._read_only = ""
            log.info("writing again", node=self.node)
            self._tell()
        return True

    def _flush_soon(self, delay_s: float) -> None:
        if self._flush_handle is None:
            loop = asyncio.get_running_loop()
            self._flush_handle = loop.call_later(delay_s, self._flush)

    def _flush(self) -> None:
        """What was only staged becomes durable, and a full disk is tried again."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        if self._running and (self._environment.dirty or self._read_only):
            try:
                self._commit()
            except Exception as error:
                self._halt(error)

    def _apply_up_to_end(self) -> None:
        """Raises what the state machine raises."""
        while self._applied < self._journal.last_index:
            index = self._applied + 1
            entry = self._journal.entry(index)
            assert entry is not None
            payload = payload_of(entry[0])
            if payload is not None:
                self._machine.apply(index, entry[2], payload)
                self._payload_index = index
            self._applied = index

    def _halt(self, error: BaseException) -> None:
        log.critical("the log halts", node=self.node, error=repr(error))
        self._running = False
        self._answer_waiting(NotCommitted("stopped"))
        for callback in list(self._halts):
            callback(error)

    def _answer_waiting(self, outcome: ProposeOutcome) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            _answer(future, outcome)

    def _tell(self) -> None:
        status = self.status()
        for callback in list(self._changes):
            callback(status)


def _answer(future: asyncio.Future[ProposeOutcome], outcome: ProposeOutcome) -> None:
    if not future.done():
        future.set_result(outcome)
