"""The servers of a simulated cluster: the real `Node` on the real raft log, each a process.

A server that ends by a fault that was injected (a failed fsync, a full disk at its start) is
started again after a while, as a supervisor would. One whose data is damaged refuses to start,
and waits to be replaced. Any other end is a violation.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from coord.core.state import State
from coord.model.entry import Recorded
from coord.model.settings import Settings
from coord.node.config import NodeConfig
from coord.node.node import Node
from coord.raft.guard_append import Message
from coord.raft.ports import Committed, Member, RaftStatus
from coord.raft.rules import ALL_RULES
from coord.store.environment import Identity
from coord.store.events import LmdbEventStore
from coord.store.ports import StorageCorrupt, StorageFull
from coord_sim.kernel import Kernel, SimProcess, current_process
from coord_sim.world.clock import SimClock
from coord_sim.world.disk import SimDisk, SimEnvironment
from coord_sim.world.joining import tell_and_add, wait_to_join
from coord_sim.world.member_checks import MemberChecks
from coord_sim.world.peers import Connection, SimPeers
from coord_sim.world.raft_checks import CATCHES_UP, HALTED, REFUSES_DAMAGE, RaftChecks
from coord_sim.world.raft_traffic import RaftTraffic
from coord_sim.world.server import CLUSTER, ClusterTimings, ServerEnded, SimServer, member_of
from coord_sim.world.violation import Violation
from coord_sim.world.watched import OnApplied, WatchedLog, WatchedNode

__all__ = ["CLUSTER", "ClusterTimings", "ServerEnded", "SimServer", "SimServers", "member_of"]

T = TypeVar("T")
RESTART_S = (0.5, 3.0)
"""A supervisor starts a server that has ended after a time drawn from here."""


class SimServers:
    """All servers. `directory` is a real one for snapshot files, best in memory.

    A violation ends the run: `kernel.run_until` raises it.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        count: int = 3,
        settings: Settings | None = None,
        config: ClusterTimings | None = None,
        rules: frozenset[str] = ALL_RULES,
        directory: str,
        peers: SimPeers | None = None,
    ) -> None:
        self.kernel = kernel
        self.count = count
        """Of the first members."""
        self.rng = kernel.rng("servers")
        self.settings = settings if settings is not None else Settings()
        self.config = config if config is not None else ClusterTimings()
        self.rules = rules
        self.peers = peers if peers is not None else SimPeers(kernel)
        self.all: dict[int, SimServer] = {}
        self.checks = RaftChecks(self.all, self.violated)
        self.members = MemberChecks(self.violated)
        self.traffic = RaftTraffic(kernel, self.all, self.peers, self.violated)
        self.broken: Violation | None = None
        """The first violation."""
        self.counts = dict.fromkeys(
            ("starts", "crashes", "entries", "installs", "refused", "added", "removed"), 0
        )
        self.started: list[Callable[[int, Node], None]] = []
        """Called in the server's process once its node has started: to open its API."""
        self.worker_s: tuple[float, float] = (0.0, 0.05)
        """A worker thread that writes a snapshot takes a time drawn from here before it does."""
        self._directory = directory
        self._callbacks: list[OnApplied] = []
        self.peers.on_sent = self._sent
        first = tuple(member_of(number) for number in range(1, count + 1))
        for number in range(1, count + 1):
            self._new(number, first)

    # What runs

    def node(self, n: int) -> Node | None:
        """The node of a running server that has started; None else."""
        server = self.all.get(n)
        return server.node if server is not None and server.running else None

    def numbers(self) -> list[int]:
        """Of all servers that were not removed, ascending."""
        return [number for number, server in sorted(self.all.items()) if not server.removed]

    def running(self) -> list[int]:
        """Those whose node has started."""
        return [number for number in self.numbers() if self.node(number) is not None]

    def leader(self) -> Node | None:
        """Whoever leads in the highest term, by its own word."""
        nodes = [self.node(number) for number in self.running()]
        leading = [node for node in nodes if node is not None and node.leading and not node.failed]
        return max(leading, key=lambda node: node.status.term, default=None)

    def clock(self, n: int) -> SimClock:
        return self.all[n].clock

    def disk(self, n: int) -> SimDisk:
        return self.all[n].disk

    def process(self, n: int) -> SimProcess | None:
        return self.all[n].process

    @staticmethod
    def url(n: int) -> str:
        """The base URL of its API, as clients and agents know it."""
        return f"http://sim-{n}"

    def on_applied(self, callback: OnApplied) -> None:
        """`callback(n, records, state)` after every command applied on every node, and with no
        records after a snapshot was installed. A Violation that it raises ends the run."""
        self._callbacks.append(callback)

    # Processes

    async def start_all(self) -> None:
        """Start every server that does not run, and return once one leads."""
        for number in self.numbers():
            self.start(number)
        await self.wait("a leader", lambda: self.leader() is not None)

    def start(self, n: int) -> None:
        """Start its process; does nothing where it runs, or refused its data."""
        server = self.all[n]
        server.wanted = True
        if server.running or server.refused or server.removed:
            return
        server.starts += 1
        self.counts["starts"] += 1
        server.node = None
        server.process = self.kernel.spawn(f"server-{n}", lambda: self._serve(server))
        process = server.process
        process.on_death.append(lambda: self._died(server, process))

    def crash(self, n: int, *, lose_unsynced: bool = True, silently: bool = False) -> None:
        """Kill its process; with `lose_unsynced` the power goes, too. `silently` closes none of its
        connections. It stays down until `start`."""
        server = self.all[n]
        server.wanted = False
        if not server.running:
            return
        self.counts["crashes"] += 1
        assert server.process is not None
        if server.network is not None:
            server.network.loses_power = silently
        server.process.kill()
        server.disk.crash(lose_unsynced=lose_unsynced)

    def pause(self, n: int) -> None:
        server = self.all[n]
        if server.process is not None:
            server.process.pause()

    def resume(self, n: int) -> None:
        server = self.all[n]
        if server.process is not None:
            server.process.resume()

    def stall(self, n: int, seconds: float) -> None:
        server = self.all[n]
        if server.process is not None:
            server.process.stall(seconds)

    # Administration

    async def add(self, limit_s: float = 10.0) -> int:
        """A new server joins under a number that was never used; 0 when the cluster did not say
        that it is a member."""
        number = max(self.all) + 1
        server = self._new(number, ())
        self.start(number)
        outcome = await self.ask_leader(
            lambda node: tell_and_add(node, server, limit_s / 2), limit_s
        )
        if isinstance(outcome, Committed):
            self.counts["added"] += 1
            return number
        return 0

    async def remove(self, n: int, limit_s: float = 10.0) -> bool:
        """Take it out of the cluster, handing leadership over first, and switch it off for good;
        whether the cluster said that it is out."""
        leader = self.leader()
        if leader is not None and leader.config.node == n:
            await self.transfer(0, limit_s / 2)
        outcome = await self.ask_leader(
            lambda node: node.log.remove_member(n, limit_s / 2), limit_s
        )
        if not isinstance(outcome, Committed):
            return False
        self.counts["removed"] += 1
        self._retire(n)
        return True

    async def replace(self, n: int, limit_s: float = 20.0) -> int:
        """Have a server whose data is damaged rejoin as REJOIN says: out, and in again as a new
        member with an empty disk. Returns the new number, 0 when that did not work out."""
        if not await self.remove(n, limit_s / 2):
            return 0
        return await self.add(limit_s / 2)

    async def transfer(self, n: int = 0, limit_s: float = 5.0) -> bool:
        """Have the leader hand over to `n` (0: whoever is most advanced)."""
        moved = await self.ask_leader(
            lambda node: node.log.transfer_leadership(n, limit_s / 2), limit_s
        )
        return bool(moved)

    async def snapshot(self, n: int, limit_s: float = 5.0) -> int:
        """Have a node write a snapshot now; the raft index it holds, 0 where it could not."""

        async def write(node: Node) -> int:
            try:
                return await node.keeper.snapshot()
            except (RuntimeError, StorageCorrupt, StorageFull, ValueError):
                return 0

        return await self.ask(n, write, limit_s) or 0

    async def ask_leader(
        self, question: Callable[[Node], Coroutine[Any, Any, T]], limit_s: float
    ) -> T | None:
        """What the leader answers; None when there is none so long, or it does not answer."""
        until_s = self.kernel.now_s() + limit_s
        while (leader := self.leader()) is None:
            if self.kernel.now_s() >= until_s:
                return None
            await asyncio.sleep(0.1)
        return await self.ask(leader.config.node, question, limit_s)

    async def ask(
        self, n: int, question: Callable[[Node], Coroutine[Any, Any, T]], limit_s: float
    ) -> T | None:
        """Have a node's own process work on a question; None when it dies or takes too long;
        raises what the question raises."""
        server = self.all[n]
        node, process = server.node, server.process
        if node is None or process is None or not process.alive:
            return None
        answer: asyncio.Future[T | None] = self.kernel.loop.create_future()

        async def work() -> None:
            try:
                result = await question(node)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        def died() -> None:
            if not answer.done():
                answer.set_result(None)

        process.on_death.append(died)
        process.call_soon(lambda: process.tasks.append(self.kernel.loop.create_task(work())))
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            if died in process.on_death:
                process.on_death.remove(died)

    async def wait(self, what: str, holds: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Until it holds; a violation of liveness when it does not within so many seconds."""
        if not await self.wait_for(holds, limit_s):
            raise Violation(CATCHES_UP, f"not within {limit_s} s: {what}; {self.summary()}")

    async def wait_for(self, holds: Callable[[], bool], limit_s: float) -> bool:
        """Until it holds, at most so long; whether it does."""
        until_s = self.kernel.now_s() + limit_s
        while not (found := holds()):
            if self.kernel.now_s() >= until_s:
                break
            await asyncio.sleep(0.1)
        return found

    # Ending well

    async def caught_up(self, limit_s: float = 60.0) -> None:
        """One leader, every member runs and has applied all that it has, with equal digests."""
        await self.wait("every member is level", self._level, limit_s)

    def _level(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        applied = leader.log.status().applied_index
        for member in leader.log.status().members:
            node = self.node(member.node)
            if node is None or node.log.status().applied_index != applied:
                return False
            if node.state.meta.digest != leader.state.meta.digest:
                return False
        return True

    def check(self) -> None:
        """Raise the first violation. Looks for answers that are overdue, for leaders that cannot
        write and for snapshots that nobody could fetch; to be called every now and then."""
        now_s = self.kernel.now_s()
        self.checks.overdue(now_s)
        for number, server in sorted(self.all.items()):
            for property in server.complaints(now_s, self.config.unable_s):
                self.violated(Violation(property, f"node {number}: {self.summary()}"))
        if self.broken is not None:
            raise self.broken

    def violated(self, violation: Violation) -> None:
        """Keep the first and end the run."""
        if self.broken is None:
            self.broken = violation
            self.kernel.trace.note("violation", property=violation.property)
            self.kernel.fail(violation)

    def summary(self) -> str:
        """Who is where, in one line."""
        return "; ".join(server.line() for _, server in sorted(self.all.items()))

    # Inside

    def _sent(self, connection: Connection, sender: int, message: Message) -> None:
        self.checks.sent(sender, connection.peer_of(sender), message)
        self.traffic.sent(connection, sender, message)

    def _new(self, number: int, members: tuple[Member, ...]) -> SimServer:
        disk = SimDisk(self.kernel, str(number), os.path.join(self._directory, str(number)))
        server = SimServer(number, disk, SimClock(self.kernel), members)
        self.all[number] = server
        disk.on_removed = lambda entries: self.checks.removed(number, disk, entries)
        return server

    def _retire(self, n: int) -> None:
        server = self.all[n]
        server.removed = True
        self.crash(n)

    async def _serve(self, server: SimServer) -> None:
        """The main of a server's process."""
        process = current_process()
        assert process is not None
        self.checks.started(server.number, server.disk)
        environment = SimEnvironment.open(server.disk, Identity(CLUSTER, server.number))
        server.told = ()
        members, joins = server.members, False
        if not members:
            joins = True
            members = await wait_to_join(server, environment, self.leader, self.kernel.now_s)
        server.network = self.peers.network(
            server.number, process, lambda: not server.disk.faults.full
        )
        log = WatchedLog(
            self.checks,
            self.traffic,
            server.number,
            members,
            environment,
            self.config.raft,
            rng=self.kernel.rng(f"raft/{server.number}"),
            joins=joins,
            network=server.network,
            rules=self.rules,
            run_blocking=lambda function: self._work(server, function),
        )
        log.on_change(lambda status: self._status(server, status, log))
        store = LmdbEventStore(environment)  # type: ignore[arg-type]
        node = WatchedNode(
            self._applied, log, log.bus, store, server.clock, self._node_config(server)
        )
        await node.start()
        server.node = node
        if server.disk.flipped:
            self._refuse_silently_used(server)
        for started in self.started:
            started(server.number, node)
        error = await node.failure
        raise ServerEnded(f"node {server.number} halted: {error!r}") from error

    async def _work(
        self, server: SimServer, function: Callable[[], tuple[int, str]]
    ) -> tuple[int, str]:
        """A worker thread that writes a snapshot; it finds the disk full, if that is."""
        await asyncio.sleep(self.rng.uniform(*self.worker_s))
        written = function()
        if server.disk.faults.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    def _node_config(self, server: SimServer) -> NodeConfig:
        config = self.config
        return NodeConfig(
            node=server.number,
            cluster=CLUSTER,
            settings=self.settings,
            name=f"node-{server.number}",
            api_address=server.member.api_address,
            snapshot_entries=config.snapshot_entries,
            snapshot_bytes=config.snapshot_bytes,
            limits=config.limits,
            retention=config.retention,
            intervals=config.intervals,
        )

    def _status(self, server: SimServer, status: RaftStatus, log: WatchedLog) -> None:
        self.kernel.trace.note(
            "raft",
            role=status.role.value,
            term=status.term,
            leader=status.leader,
            members=tuple(member.node for member in status.members),
            read_only=bool(status.read_only),
        )
        self.checks.status(server.number, status, self.kernel.now_s(), self.config.answers_s)
        self.members.status(server.number, status, lambda: log.settled_members)
        self.traffic.writable(server.number, not status.read_only)

    def _applied(self, number: int, records: tuple[Recorded, ...], state: State) -> None:
        self.counts["entries"] += len(records)
        meta = state.meta
        for record in records:
            self.checks.digest(number, record.entry.index, record.digest)
        if not records:
            self.counts["installs"] += 1
            self.checks.digest(number, meta.applied_index, meta.digest)
        self.kernel.trace.note("applied", index=meta.applied_index, digest=meta.digest)
        try:
            for callback in self._callbacks:
                callback(number, records, state)
        except Violation as violation:
            self.violated(violation)

    def _refuse_silently_used(self, server: SimServer) -> None:
        """It started although a bit was turned over: what it has must still be right."""
        node = server.node
        assert node is not None
        index, digest = node.state.meta.applied_index, node.state.meta.digest
        used = any(where.startswith("raft_meta") for where in server.disk.flipped)
        if used or self.checks.digests.get(index, digest) != digest:
            self.violated(Violation(REFUSES_DAMAGE, f"node {server.number}: {server.disk.flipped}"))

    def _died(self, server: SimServer, process: SimProcess) -> None:
        """Its process has ended: by a fault, by itself, or by `crash`, which says no more."""
        self.checks.died(server.number)
        self.kernel.trace.note("ended", server=server.number)
        if process is not server.process:
            return
        server.node = None
        broke = server.disk.broken
        server.disk.crash()
        error = process.crashed
        if error is not None:
            self._ended_by_itself(server, error, broke)
        if server.wanted and not server.refused:
            self.kernel.call_later(self.rng.uniform(*RESTART_S), self._restart, server)

    def _ended_by_itself(self, server: SimServer, error: BaseException, broke: bool) -> None:
        cause = error.__cause__ if isinstance(error, ServerEnded) else error
        if broke or (isinstance(cause, StorageFull) and not isinstance(error, ServerEnded)):
            return
        if isinstance(cause, StorageCorrupt) and server.disk.flipped:
            server.refused = str(cause)
            self.counts["refused"] += 1
            return
        self.violated(Violation(HALTED, f"node {server.number}: {cause!r}; {self.summary()}"))

    def _restart(self, server: SimServer) -> None:
        if server.wanted:
            self.start(server.number)
