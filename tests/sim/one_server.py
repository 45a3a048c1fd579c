"""A server that is a process of its own and a whole cluster by itself, for callers to talk to."""

from __future__ import annotations

import asyncio

from coord_sim.kernel import Kernel, SimProcess

from coord.model.settings import Settings
from coord.node.config import Intervals, Limits, NodeConfig
from coord.node.node import Node
from coord.raft.memory import InMemoryHub
from coord.store.memory import MemoryEventStore

CLUSTER = "test"
SETTINGS = Settings(lease_ms=6_000, heartbeat_ms=1_000)
INTERVALS = Intervals(tick_s=0.1, frame_s=0.2, invariants_s=1e9)


class KernelClock:
    """Wall time that starts in 2001 and goes with the kernel's."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def wall_ms(self) -> int:
        return int(self._kernel.now_s() * 1000) + 10**12


class OneServer:
    """Node 1. What it had decided survives its process, as on a disk that never forgets."""

    def __init__(self, kernel: Kernel, limits: Limits | None = None) -> None:
        self._kernel = kernel
        self._limits = limits or Limits(command_apply_s=0)
        self._store = MemoryEventStore(CLUSTER)
        self._hub = InMemoryHub(1)
        self._node: Node | None = None
        self._process: SimProcess | None = None

    def node(self, number: int) -> Node | None:
        return self._node if number == 1 else None

    def process(self, number: int) -> SimProcess | None:
        return self._process if number == 1 else None

    @property
    def running(self) -> Node:
        assert self._node is not None
        return self._node

    def numbers(self) -> list[int]:
        return [1]

    def start(self) -> SimProcess:
        """Returns once the node is ready."""
        self._process = self._kernel.spawn("server 1", self._main)

        async def ready() -> None:
            while self._node is None or not self._node.ready:  # noqa: ASYNC110 no event for it
                await asyncio.sleep(0.05)

        self._kernel.run_until(ready())
        return self._process

    def kill(self) -> None:
        assert self._process is not None
        self._node = None
        self._process.kill()
        self._kernel.run_until(self._hub.log(1).stop())
        self._store = self._store.reopened()

    async def _main(self) -> None:
        log = self._hub.log(1)
        config = NodeConfig(
            node=1,
            cluster=CLUSTER,
            settings=SETTINGS,
            limits=self._limits,
            intervals=INTERVALS,
            api_address="sim-1:7101",
        )
        node = Node(log, log.bus, self._store, KernelClock(self._kernel), config)
        await node.start()
        self._node = node
        await asyncio.Event().wait()
