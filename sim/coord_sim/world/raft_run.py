"""One seed of servers alone, under load and faults: the fast way to hunt what breaks raft."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from coord.codec import encode_batch
from coord.model.entry import Batch, Origin, Submission
from coord.model.events import NoteAdded
from coord.node.node import Node
from coord.raft.rules import ALL_RULES
from coord_sim.kernel import Kernel, Trace
from coord_sim.world.peers import CHAOS
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.raft_checks import HALTED
from coord_sim.world.raft_faults import MENU
from coord_sim.world.raft_swarm import RaftSwarm, clockwork, draw
from coord_sim.world.scratch import scratch_directory
from coord_sim.world.server_faults import heal_all
from coord_sim.world.servers import SimServers
from coord_sim.world.violation import Violation

QUIET_S = 60.0
"""So long may it take until all are level, once the last fault is healed."""


class RaftOutcome(msgspec.Struct, frozen=True):
    """How a seed ended; the same, to the byte, whenever it runs."""

    seed: int
    focus: str
    chaos: bool
    digest: str
    virtual_s: float
    entries: int
    acknowledged: int
    broken: str = ""
    """The property that does not hold; empty when all do."""
    detail: str = ""
    faults: dict[str, int] = {}
    counts: dict[str, int] = {}

    @property
    def ok(self) -> bool:
        return not self.broken


def raft_run(
    seed: int,
    rules: frozenset[str] = ALL_RULES,
    *,
    seconds: float = 60.0,
    chaos: bool | None = None,
    focus: str | None = None,
    trace: Trace | None = None,
) -> RaftOutcome:
    """Load and faults for so many virtual seconds, then heal, and judge. `chaos` and
    `focus` (of FOCUSES, or empty) None: drawn."""
    swarm = draw(seed, chaos, focus)
    with scratch_directory(seed) as directory, quiet_logs(), Kernel(seed, trace=trace) as kernel:
        servers = SimServers(
            kernel, count=swarm.count, config=clockwork(swarm), rules=rules, directory=directory
        )
        run = _Run(kernel, servers, swarm, seconds)
        broken = detail = ""
        try:
            kernel.run_until(run.main())
            servers.check()
        except Violation as violation:
            first = servers.broken or violation
            broken, detail = first.property, first.detail
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            broken = HALTED
            detail = f"{type(error).__name__}: {error} in {where.name}"
        return RaftOutcome(
            seed=seed,
            focus=swarm.focus,
            chaos=swarm.chaos,
            digest=kernel.trace.digest,
            virtual_s=round(kernel.now_s() - 1000.0, 3),
            entries=max((index for index in servers.checks.digests), default=0),
            acknowledged=servers.checks.acknowledged,
            broken=broken,
            detail=detail,
            faults=dict(sorted(run.faults.items())),
            counts={**servers.counts, **servers.peers.counts},
        )


class _Run:
    def __init__(
        self, kernel: Kernel, servers: SimServers, swarm: RaftSwarm, seconds: float
    ) -> None:
        self.faults: dict[str, int] = {}
        self._kernel = kernel
        self._servers = servers
        self._swarm = swarm
        self._until_s = kernel.now_s() + seconds

    async def main(self) -> None:
        servers, kernel = self._servers, self._kernel
        await servers.start_all()
        if self._swarm.chaos:
            servers.peers.climate = msgspec.structs.replace(CHAOS)
        writers = [kernel.start(self._write(number)) for number in range(self._swarm.writers)]
        misfortunes = kernel.start(self._misfortunes())
        await asyncio.gather(*writers, misfortunes)
        await heal_all(servers)
        await servers.caught_up(QUIET_S)
        await servers.wait("a write is taken", lambda: servers.leader() is not None, QUIET_S)
        await self._last_write()
        await servers.caught_up(QUIET_S)

    async def _write(self, number: int) -> None:
        """Submit to any server, as a client does, sometimes to one that only thinks it leads."""
        servers, rng = self._servers, self._kernel.rng(f"writer/{number}")
        sequence = 0
        while self._kernel.now_s() < self._until_s:
            await asyncio.sleep(rng.expovariate(self._swarm.rate_per_s / self._swarm.writers))
            running = servers.running()
            if not running:
                continue
            leaders = [n for n in running if _leads(servers.node(n))]
            chosen = rng.choice(leaders if leaders and rng.random() < 0.8 else running)
            sequence += 1
            origin = Origin(f"client:writer-{number}", 1, sequence, 0)
            text = "x" * rng.randrange(0, 60)
            note = NoteAdded(origin.actor, "raft", text)
            node, process = servers.node(chosen), servers.process(chosen)
            if node is None or process is None:
                continue
            if self._swarm.bursts and _leads(node):
                for _ in range(rng.randint(1, self._swarm.bursts)):
                    sequence += 1
                    batch = self._batch(node, number, sequence)
                    process.call_soon(_start, self._kernel, node.log.propose, batch, 3.0)
            else:
                process.call_soon(_start, self._kernel, node.submit, Submission(origin, note), 3.0)

    def _batch(self, node: Node, number: int, sequence: int) -> bytes:
        origin = Origin(f"client:burst-{number}", 1, sequence, 0)
        note = Submission(origin, NoteAdded(origin.actor, "raft", ""))
        batch = Batch(node.status.term, node.config.node, node.clock.wall_ms(), (note,))
        return encode_batch(batch)

    async def _misfortunes(self) -> None:
        rng, swarm = self._kernel.rng("misfortunes"), self._swarm
        names = list(swarm.weights)
        weights = [swarm.weights[name] for name in names]
        under_way: list[asyncio.Task[None]] = []
        while self._kernel.now_s() < self._until_s:
            await asyncio.sleep(rng.expovariate(1 / swarm.gap_s))
            name = rng.choices(names, weights)[0]
            self.faults[name] = self.faults.get(name, 0) + 1
            self._kernel.trace.note("fault", name=name)
            under_way = [task for task in under_way if not task.done()]
            task = self._kernel.start(self._befall(name, rng))
            under_way.append(task)
            self._servers.check()
        await asyncio.gather(*under_way)

    async def _befall(self, name: str, rng: random.Random) -> None:
        stream = random.Random(rng.random())
        await MENU[name].inject(self._servers, stream)

    async def _last_write(self) -> None:
        servers = self._servers
        before = servers.checks.acknowledged
        await servers.wait(
            "a leader's entry is acknowledged",
            lambda: servers.checks.acknowledged > before,
            QUIET_S,
        )


def _start(
    kernel: Kernel, work: Callable[..., Coroutine[Any, Any, object]], *arguments: object
) -> None:
    kernel.loop.create_task(work(*arguments))


def _leads(node: Node | None) -> bool:
    return node is not None and node.leading
