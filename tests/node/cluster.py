"""Nodes of one process over the log in memory, with everything a test wants to do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from coord.model.channel import Beat, HostPlan, Result, Results, Submit, ToClient
from coord.model.entry import Origin, Submission
from coord.model.events import AnyEvent, HostRegistered, NoteAdded
from coord.model.settings import Settings
from coord.node.config import Intervals, Limits, NodeConfig, Retention
from coord.node.node import Node
from coord.node.ports import Clock, SystemClock
from coord.node.sessions import Session
from coord.raft.memory import InMemoryHub
from coord.store.memory import MemoryEventStore

CLUSTER = "test"


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for a condition; fails after the timeout."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 the condition is no event
            await asyncio.sleep(0.005)


async def turns_until(condition: Callable[[], object]) -> None:
    """As `until`, but looks after every turn of the loop."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 the condition is no event
            await asyncio.sleep(0)


class LoopClock:
    """The wall clock of a virtual loop."""

    def wall_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)


def note(text: str = "hello") -> NoteAdded:
    return NoteAdded("tester", "subject", text)


class Writer:
    """A client: its own numbers, through any node."""

    def __init__(self, name: str) -> None:
        self.actor = f"client:{name}"
        self._numbers = count(1)

    def submission(self, event: AnyEvent | None = None) -> Submission:
        return Submission(Origin(self.actor, 0, next(self._numbers)), event or note())

    async def write(
        self, node: Node, event: AnyEvent | None = None, timeout_s: float = 5.0
    ) -> Result:
        return await node.submit(self.submission(event), timeout_s)


class FakeAgent:
    """An agent's side of a session, without a connection."""

    def __init__(self, node: Node, host: str, name: str = "") -> None:
        self.node = node
        self.host = host
        self.name = name or f"agent-{host}"
        self.session: Session = node.sessions.attach(f"host:{host}")
        self.results: list[Result] = []
        self.plans: list[HostPlan] = []
        self.messages: list[ToClient] = []
        self.incarnation = 0
        self.slot = 0
        self._sequence = count(1)
        self._registrations = count(1)
        self._reports = count(1)

    def take(self) -> None:
        """Read everything the session has for us."""
        for message in self.session.take(self.node.state, self.node.welcome):
            self.messages.append(message)
            if isinstance(message, Results):
                self.results += message.results
            elif isinstance(message, HostPlan):
                self.plans.append(message)

    async def register(self, devices: int = 0, **offer: object) -> Result:
        event = HostRegistered(
            self.host, self.name, "boot", "127.0.0.1", devices, cpu_millis=4_000, memory_mib=4_000
        )
        origin = Origin(f"client:{self.name}", 0, next(self._registrations))
        result = await self.send(Submission(origin, event))
        if not result.rejection:
            self.incarnation, self.slot = result.result, result.slot
            self._reports = count(1)
        return result

    async def report(self, event: AnyEvent) -> Result:
        origin = Origin(f"host:{self.host}", self.incarnation, next(self._reports))
        return await self.send(Submission(origin, event))

    async def send(self, submission: Submission) -> Result:
        seen = len(self.results)
        self.node.receive(self.session, Submit((submission,)), 200)
        await until(lambda: self.take() or len(self.results) > seen)
        return self.results[-1]

    def beat(self) -> int:
        sequence = next(self._sequence)
        self.node.beat(self.session, Beat(self.slot, self.incarnation, 0, sequence))
        return sequence


class Cluster:
    """`size` nodes. Each keeps its store over a restart, as far as that was durable."""

    def __init__(
        self,
        size: int = 3,
        *,
        settings: Settings | None = None,
        limits: Limits | None = None,
        intervals: Intervals | None = None,
        retention: Retention | None = None,
        dump_directory: str = "",
        snapshot_entries: int = 100_000,
        hub: InMemoryHub | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.hub = hub or InMemoryHub(size)
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._limits = limits or Limits()
        self._intervals = intervals or Intervals()
        self._retention = retention or Retention()
        self._dump_directory = dump_directory
        self._snapshot_entries = snapshot_entries
        self.stores = {n: MemoryEventStore(CLUSTER) for n in range(1, size + 1)}
        self.nodes: dict[int, Node] = {}

    async def __aenter__(self) -> Cluster:
        for number in sorted(self.stores):
            await self.start(number)
        await until(lambda: all(node.ready for node in self.nodes.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.stop()

    async def start(self, number: int) -> Node:
        log = self.hub.log(number)
        config = NodeConfig(
            node=number,
            cluster=CLUSTER,
            settings=self._settings,
            limits=self._limits,
            intervals=self._intervals,
            retention=self._retention,
            dump_directory=self._dump_directory,
            snapshot_entries=self._snapshot_entries,
        )
        node = Node(log, log.bus, self.stores[number], self._clock, config)
        self.nodes[number] = node
        await node.start()
        return node

    async def kill(self, number: int) -> None:
        """As kill -9: what was not durable is gone. Its asyncio tasks are stopped all the same."""
        node = self.nodes.pop(number)
        survived = self.stores[number].reopened()
        await node.stop()
        self.stores[number] = survived

    @property
    def leader(self) -> Node:
        return self.nodes[self.hub.leader]

    @property
    def followers(self) -> list[Node]:
        return [node for number, node in self.nodes.items() if number != self.hub.leader]

    async def agree(self) -> None:
        """Until all nodes have applied the same, with the same digest."""
        await until(
            lambda: len({n.machine.raft_index for n in self.nodes.values()}) == 1, timeout_s=5
        )
        digests = {node.state.meta.digest for node in self.nodes.values()}
        assert len(digests) == 1, digests
