"""The three implementations of `ReplicatedLog` behind one face, for the contract suite."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Protocol

from coord.raft.memory import InMemoryHub
from coord.raft.ports import Member, PeerBus, ReplicatedLog, Role
from coord.raft.single import SingleNodeLog
from tests.raft.fakes import FakeEnvironment, ListMachine
from tests.raft.simulated import SimCluster


class Cluster(Protocol):
    """Nodes 1 to `size` of one implementation."""

    size: int
    machines: dict[int, ListMachine]
    logs: dict[int, ReplicatedLog]

    async def start(self, node: int) -> None:
        """Start a node, or start it again from its disk."""

    async def stop(self, node: int) -> None: ...
    def bus(self, node: int) -> PeerBus: ...
    def isolate(self, node: int) -> None:
        """Nobody reaches it."""

    def heal(self) -> None: ...


class MemoryCluster:
    size = 3

    def __init__(self, directory: str) -> None:
        self.hub = InMemoryHub(self.size)
        self.disks = {n: FakeEnvironment(directory, n) for n in range(1, self.size + 2)}
        self.machines: dict[int, ListMachine] = {}
        self.logs: dict[int, ReplicatedLog] = {}

    async def start(self, node: int) -> None:
        self.machines[node] = ListMachine(self.disks[node])
        self.logs[node] = self.hub.log(node)
        await self.logs[node].start(self.machines[node])

    async def stop(self, node: int) -> None:
        await self.logs[node].stop()

    def bus(self, node: int) -> PeerBus:
        return self.hub.log(node).bus

    def isolate(self, node: int) -> None:
        self.hub.partition([node], [n for n in range(1, self.size + 1) if n != node])

    def heal(self) -> None:
        self.hub.heal()


class SingleCluster:
    size = 1

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self.disk = FakeEnvironment(directory)
        self.machines: dict[int, ListMachine] = {}
        self.logs: dict[int, ReplicatedLog] = {}

    async def start(self, node: int) -> None:
        self.machines[node] = ListMachine(self.disk)
        self.logs[node] = SingleNodeLog(Member(node, "peer:1", "api:1"), self.disk)
        await self.logs[node].start(self.machines[node])

    async def stop(self, node: int) -> None:
        await self.logs[node].stop()

    def bus(self, node: int) -> PeerBus:
        raise NotImplementedError("a single node has nobody to talk to")

    def isolate(self, node: int) -> None:
        raise NotImplementedError("a single node has nobody to lose")

    def heal(self) -> None:
        raise NotImplementedError("a single node has nobody to lose")


class RaftCluster:
    size = 3

    def __init__(self, directory: str) -> None:
        self.sim = SimCluster(self.size, os.path.join(directory, "disks"), seed=1)
        self.machines: dict[int, ListMachine] = {}
        self.logs: dict[int, ReplicatedLog] = {}

    async def start(self, node: int) -> None:
        if node > self.size:
            self.sim.add_node(node)
        await self.sim.start(node, () if node > self.size else None)
        sim = self.sim.nodes[node]
        assert sim.log is not None
        assert sim.machine is not None
        self.logs[node], self.machines[node] = sim.log, sim.machine

    async def stop(self, node: int) -> None:
        await self.logs[node].stop()

    def bus(self, node: int) -> PeerBus:
        log = self.sim.nodes[node].log
        assert log is not None
        return log.bus

    def isolate(self, node: int) -> None:
        rest = tuple(n for n in range(1, self.size + 1) if n != node)
        self.sim.hub.partition((node,), rest)

    def heal(self) -> None:
        self.sim.hub.heal()


async def start_all(cluster: Cluster) -> ReplicatedLog:
    """All nodes run and one leads; returns that one's log."""
    for node in range(1, cluster.size + 1):
        await cluster.start(node)
    return await leader(cluster)


async def stop_all(cluster: Cluster) -> None:
    for node in list(cluster.logs):
        await cluster.stop(node)


async def leader(cluster: Cluster, but: int = 0) -> ReplicatedLog:
    """Whoever leads by everybody's word, once it is another than `but`."""

    def leading() -> ReplicatedLog | None:
        for node, log in cluster.logs.items():
            status = log.status()
            if node != but and status.role is Role.LEADER and status.leader == node:
                return log
        return None

    found: ReplicatedLog = await wait(leading)
    return found


async def wait(holds: Callable[[], Any], limit_s: float = 10.0) -> Any:
    """What `holds` returns, once that is true."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + limit_s
    while not (found := holds()):
        assert loop.time() < until_s, f"not within {limit_s} s: {holds}"
        await asyncio.sleep(0.002)
    return found
