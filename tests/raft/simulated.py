"""A cluster of real `PySyncObjLog`s without a node above them, for stories of a few steps.

`SimNetwork` connects all running nodes in pairs. It can delay, cut (in both or one direction),
break and supersede connections. Random histories are `coord_sim.world.raft_run`'s.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from typing import Any

from coord.codec import decode_peer_frame, encode_peer_frame
from coord.raft.guard_append import Message
from coord.raft.network import FetchFailed, PeerHandler, SnapshotSource
from coord.raft.ports import Committed, Member, NotCommitted, Role, Unknown
from coord.raft.pysyncobj_log import PySyncObjLog
from coord.raft.rules import ALL_RULES
from coord.raft.timings import RaftTimings
from tests.raft.fakes import FakeEnvironment, ListMachine

RECONNECT_S = 0.05
DELAY_S = (0.0005, 0.004)


class SimHub:
    """Who is connected to whom."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.networks: dict[int, SimNetwork] = {}
        self.cut: dict[tuple[int, int], None] = {}
        """Directions in which nothing arrives: (from, to)."""
        self._epoch = 0
        self._last_arrival_s: dict[tuple[int, int, int], float] = {}

    def network(self, node: int) -> SimNetwork:
        return SimNetwork(self, node)

    def partition(self, *sides: tuple[int, ...]) -> None:
        """Connections between the sides break, and none is made until `heal`."""
        for one in sides:
            for other in sides:
                if one is not other:
                    for a in one:
                        for b in other:
                            self.cut[(a, b)] = None
                            self.break_connection(a, b)

    def mute(self, sender: int, receiver: int) -> None:
        """What one sends to the other is lost; the connection seems well."""
        self.cut[(sender, receiver)] = None

    def heal(self) -> None:
        self.cut.clear()
        for a in sorted(self.networks):
            for b in sorted(self.networks):
                if a < b:
                    self.break_connection(a, b)
                    self.connect_soon(a, b)

    def break_connection(self, a: int, b: int) -> None:
        for one, other in ((a, b), (b, a)):
            network = self.networks.get(one)
            if network is not None and other in network.epochs:
                epoch = network.epochs.pop(other)
                network.handler.disconnected(other, epoch)
        self.connect_soon(a, b)

    def supersede(self, a: int, b: int) -> None:
        """A second connection takes the place of the first, whose last messages still arrive."""
        if self._may_connect(a, b):
            self._connect(a, b)

    def connect_soon(self, a: int, b: int) -> None:
        delay_s = RECONNECT_S * (0.5 + self.rng.random())
        asyncio.get_running_loop().call_later(delay_s, self._connect_if_needed, a, b)

    def deliver(self, sender: int, receiver: int, epoch: int, frame: bytes) -> None:
        loop = asyncio.get_running_loop()
        line = (sender, receiver, epoch)
        arrival_s = loop.time() + self.rng.uniform(*DELAY_S)
        arrival_s = max(arrival_s, self._last_arrival_s.get(line, 0.0) + 1e-6)
        self._last_arrival_s[line] = arrival_s
        loop.call_at(arrival_s, self._arrive, sender, receiver, epoch, frame)

    def _arrive(self, sender: int, receiver: int, epoch: int, frame: bytes) -> None:
        network = self.networks.get(receiver)
        if network is None or (sender, receiver) in self.cut:
            return
        if network.epochs.get(sender) != epoch:
            return
        network.handler.received(sender, epoch, decode_peer_frame(frame))

    def _may_connect(self, a: int, b: int) -> bool:
        if (a, b) in self.cut or (b, a) in self.cut:
            return False
        one, other = self.networks.get(a), self.networks.get(b)
        if one is None or other is None:
            return False
        knows = b in one.peers or a in other.peers
        versions = one.handler.version(), other.handler.version()
        return (
            knows and one.handler.accepts(b, versions[1]) and other.handler.accepts(a, versions[0])
        )

    def _connect_if_needed(self, a: int, b: int) -> None:
        one = self.networks.get(a)
        if one is not None and b not in one.epochs and self._may_connect(a, b):
            self._connect(a, b)

    def _connect(self, a: int, b: int) -> None:
        self._epoch += 1
        for one, other in ((a, b), (b, a)):
            network = self.networks[one]
            before = network.epochs.get(other)
            if before is not None:
                network.handler.disconnected(other, before)
            network.epochs[other] = self._epoch
            network.handler.connected(other, self._epoch)


class SimNetwork:
    """`PeerNetwork` of one node."""

    def __init__(self, hub: SimHub, node: int) -> None:
        self.hub = hub
        self.node = node
        self.peers: dict[int, Member] = {}
        self.epochs: dict[int, int] = {}
        self.handler: PeerHandler

    async def start(self, handler: PeerHandler) -> None:
        self.handler = handler
        self.hub.networks[self.node] = self
        for other in sorted(self.hub.networks):
            if other != self.node:
                self.hub.connect_soon(self.node, other)

    async def stop(self) -> None:
        self.vanish()

    def vanish(self) -> None:
        """The process is gone: the others see their connections close."""
        if self.hub.networks.get(self.node) is not self:
            return
        del self.hub.networks[self.node]
        for other in list(self.epochs):
            del self.epochs[other]
            network = self.hub.networks.get(other)
            if network is not None and self.node in network.epochs:
                epoch = network.epochs.pop(self.node)
                network.handler.disconnected(self.node, epoch)

    def add_peer(self, member: Member) -> None:
        self.peers[member.node] = member
        if self.node in self.hub.networks:
            self.hub.connect_soon(self.node, member.node)

    def drop_peer(self, node: int) -> None:
        self.peers.pop(node, None)
        if node in self.epochs:
            self.hub.break_connection(self.node, node)

    def send(self, node: int, message: Message) -> bool:
        epoch = self.epochs.get(node)
        if epoch is None or self.hub.networks.get(self.node) is not self:
            return False
        self.hub.deliver(self.node, node, epoch, encode_peer_frame(message))
        return True

    async def fetch_snapshot(self, node: int, index: int, directory: str) -> SnapshotSource:
        await asyncio.sleep(self.hub.rng.uniform(0.001, 0.3))
        other = self.hub.networks.get(node)
        if other is None or (node, self.node) in self.hub.cut:
            raise FetchFailed(f"node {node} is not reached")
        source = other.handler.snapshot_source(index)
        if source is None:
            raise FetchFailed(f"snapshot {index} is gone")
        path = os.path.join(directory, f"fetch-{index:020d}")
        shutil.copyfile(source.path, path)
        return SnapshotSource(
            source.index,
            source.term,
            source.size_bytes,
            source.digest,
            path,
            source.entries,
            source.members,
        )


class Violation(AssertionError):
    """A property of raft, or of the port, does not hold."""


class SimNode:
    """One node's disk, and its process while it runs."""

    def __init__(self, node: int, directory: str) -> None:
        self.node = node
        os.makedirs(directory)
        self.environment = FakeEnvironment(directory, node)
        self.log: PySyncObjLog | None = None
        self.network: SimNetwork | None = None
        self.machine: ListMachine | None = None


class SimCluster:
    """`size` nodes of one configuration, and the checks on all that they do."""

    def __init__(
        self,
        size: int,
        directory: str,
        seed: int,
        *,
        rules: frozenset[str] = ALL_RULES,
        timings: RaftTimings | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.hub = SimHub(random.Random(seed + 1))
        self.members = tuple(Member(n, f"sim:{n}", f"api:{n}") for n in range(1, size + 1))
        self.directory = directory
        self.rules = rules
        self.timings = timings or RaftTimings(keep_entries=20)
        self.nodes = {m.node: SimNode(m.node, f"{directory}/{m.node}") for m in self.members}
        self.halted: list[BaseException] = []
        self._next_payload = 0

    async def start(self, node: int, members: tuple[Member, ...] | None = None) -> None:
        sim = self.nodes[node]
        sim.environment.crash()
        sim.network = self.hub.network(node)
        log = PySyncObjLog(
            node,
            self._first_members(node) if members is None else members,
            sim.environment,
            self.timings,
            rng=random.Random(self.rng.random()),
            network=sim.network,
            rules=self.rules,
            run_blocking=self._run_blocking,
        )
        log.on_halt(self.halted.append)
        sim.log = log
        sim.machine = ListMachine(sim.environment)
        await log.start(sim.machine)

    def _first_members(self, node: int) -> tuple[Member, ...]:
        return self.members if node <= len(self.members) else ()

    def add_node(self, node: int) -> None:
        """A disk for one more node, of which nobody knows yet."""
        if node not in self.nodes:
            self.nodes[node] = SimNode(node, f"{self.directory}/{node}")

    async def start_all(self) -> None:
        for node in sorted(self.nodes):
            if self.nodes[node].log is None:
                await self.start(node)

    async def crash(self, node: int) -> None:
        """The process dies between two turns and the disk forgets what was not synced."""
        sim = self.nodes[node]
        log, sim.log = sim.log, None
        if log is None:
            return
        assert sim.network is not None
        sim.network.vanish()
        full, sim.environment.full = sim.environment.full, False
        sim.environment.crash()
        await log.stop()
        sim.environment.full = full
        sim.environment.crash()

    async def stop_all(self) -> None:
        for sim in self.nodes.values():
            if sim.log is not None:
                await sim.log.stop()
                sim.log = None

    @property
    def running(self) -> list[PySyncObjLog]:
        return [sim.log for _, sim in sorted(self.nodes.items()) if sim.log is not None]

    def leader(self) -> PySyncObjLog | None:
        """The one of the highest term, if any leads."""
        leading = [log for log in self.running if log.status().role is Role.LEADER]
        return max(leading, key=lambda log: log.status().term, default=None)

    async def wait(self, what: str, holds: Callable[[], Any], limit_s: float = 5.0) -> Any:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while not (found := holds()):
            if loop.time() >= until_s:
                raise Violation(f"not within {limit_s} s: {what}; {self.summary()}")
            await asyncio.sleep(0.005)
        return found

    async def propose(
        self, log: PySyncObjLog, deadline_s: float = 1.0
    ) -> Committed | NotCommitted | Unknown:
        self._next_payload += 1
        payload = b"%d:%s" % (self._next_payload, b"x" * self.rng.randrange(0, 60))
        return await log.propose(payload, deadline_s)

    async def caught_up(self, limit_s: float = 5.0) -> None:
        """One leader, and everybody has applied what it has."""

        def level() -> bool:
            leader = self.leader()
            if leader is None:
                return False
            members = [member.node for member in leader.status().members]
            logs = [log for log in self.running if log.node in members]
            last = leader.status().last_index
            return len(logs) == len(members) and all(
                log.status().applied_index == last for log in logs
            )

        await self.wait("every node caught up", level, limit_s)

    def check_running(self) -> None:
        """Nobody had to halt: with a violation as the reason, or for want of a way on."""
        if self.halted:
            raise Violation(f"halted: {self.halted!r}")

    def check(self) -> None:
        """Everything that must hold once all is quiet."""
        self.check_running()
        machines = [sim.machine for sim in self.nodes.values() if sim.machine is not None]
        longest = max((machine.applied for machine in machines), key=len)
        for machine in machines:
            if machine.applied != longest[: len(machine.applied)]:
                raise Violation(f"two nodes' states differ: {self.summary()}")

    def summary(self) -> str:
        return "; ".join(
            f"{log.node}: {s.role} term {s.term} leader {s.leader} log {s.first_index}.."
            f"{s.last_index} commit {s.commit_index} applied {s.applied_index} to {s.connected}"
            for log in self.running
            for s in [log.status()]
        )

    async def _run_blocking(self, function: Callable[[], tuple[int, str]]) -> tuple[int, str]:
        await asyncio.sleep(self.hub.rng.uniform(0.0, 0.2))
        return function()
