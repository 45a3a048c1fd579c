"""A worker of somebody else as the program of simulated ranks."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from coord.agent.ports import LaunchSpec
from coord.agent.records import Process
from coord.agent.socket import Answer, CheckpointBegun, Progress, ShardSaved, ShouldStop
from coord_sim.world.collectives import Collective
from coord_sim.world.habits import JobHabits, RankHabits
from coord_sim.world.ranks import AWAY_S, RECORDING_S, SimRank
from coord_sim.world.worker_socket import Away

if TYPE_CHECKING:
    from coord_sim.world.hosts import SimHost

ANSWER_S = 0.25
"""How long an agent may take to answer what it can answer at once, as in `coord.worker`."""
FAREWELL_S = 0.01

Shelf = dict[tuple[str, str], bytes]
"""The storage that all hosts see: (checkpoint directory, shard) to what was saved."""


class Worker:
    """`coord.worker` for simulated ranks: the same contract, asynchronous where that one waits.

    Let time pass with `asyncio.sleep`: that is what a step takes.
    """

    def __init__(self, rank: OwnRank, rng: random.Random) -> None:
        self._rank = rank
        env = rank.env
        self.job: str = env["COORD_JOB"]
        self.role: str = env["COORD_ROLE"]
        self.index = rank.index
        """Of the task in its role; `rank` counts within the gang that runs now."""
        self.rank = rank.number
        self.world_size = int(env.get("WORLD_SIZE") or 1)
        self.generation = rank.generation
        """How often the gang has been placed, from 1."""
        self.devices = rank.devices
        self.host = rank.host.name
        self.env = dict(env)
        self.restore_path: str | None = env.get("COORD_RESTORE") or None
        """Directory of the committed checkpoint to start from; None for a fresh start."""
        step = env.get("COORD_RESTORE_STEP")
        self.restore_step: int | None = int(step) if self.restore_path and step else None
        self.rng = rng
        """Draw from this one alone."""

    def restore_shard(self, of_rank: int | None = None) -> bytes | None:
        """What a rank (this one, unless given) saved in that checkpoint; None for a fresh start, or
        where that rank saved nothing."""
        number = self.rank if of_rank is None else of_rank
        return self._rank.shelf.get((self.restore_path or "", _shard(number)))

    def progress(self, step: int) -> None:
        """Tell that `step` is finished. Never fails, never waits."""
        self._rank.tell(step)

    async def should_stop(self) -> bool:
        """Whether to end soon: SIGTERM came, or the agent says so. Once true, always true."""
        return await self._rank.ask_to_stop()

    async def checkpoint(self, step: int, content: bytes = b"") -> bool:
        """Save this rank's shard of the checkpoint of `step`; every rank calls with the same step.
        Returns whether the agent had it recorded; training goes on either way."""
        return await self._rank.save(step, content)

    async def barrier(self, step: int) -> None:
        """Wait until every rank of the gang has come to this step. Raises CollectiveTimeout."""
        await self._rank.wait_for_peers(step)


WorkerMain = Callable[[Worker], Awaitable[object]]
"""A program. Returning is exit code 0, SystemExit its code, any other exception exit code 1. Only
an AssertionError ends the test."""


class OwnRank(SimRank):
    """A rank that runs somebody's program."""

    def __init__(
        self,
        program: WorkerMain,
        shelf: Shelf,
        host: SimHost,
        process: Process,
        child_pid: int,
        spec: LaunchSpec,
        habits: tuple[JobHabits, RankHabits],
        collective: Collective,
    ) -> None:
        self.shelf = shelf
        self._program = program
        self._told_to_stop = False
        # The program looks at should_stop as it likes; SIGTERM alone does not end it.
        own = msgspec.structs.replace(habits[1], on_sigterm="leave")
        super().__init__(host, process, child_pid, spec, (habits[0], own), collective)

    async def _main(self) -> None:
        worker = Worker(self, self.host.kernel.rng(f"worker/{self.task}/{self.process.pid}"))
        code, words = 0, ""
        await asyncio.sleep(self._own.start_s)
        try:
            await self._program(worker)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except Exception as error:
            if isinstance(error, AssertionError):
                self.host.kernel.fail(error)
            code, words = 1, f"{type(error).__name__}: {error}"
        await asyncio.sleep(FAREWELL_S)  # Its newest step is told before it leaves.
        self.completed = not code and not self._told_to_stop
        self.exit(code, words)

    # For its program

    def tell(self, step: int) -> None:
        self.step = step
        self._tell_progress()

    async def ask_to_stop(self) -> bool:
        if not self.asked:
            with suppress(Away, TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    answer = await self._say(ShouldStop())
                    self.asked = self.asked or bool(answer.stop)
        self._told_to_stop = self._told_to_stop or self.asked
        return self.asked

    async def wait_for_peers(self, step: int) -> None:
        await self._meet(step)

    async def save(self, step: int, content: bytes) -> bool:
        root = self.env.get("COORD_CHECKPOINT_DIR") or "/checkpoints"
        path = f"{root}/step-{step:010d}-gen-{self.generation}"
        deadline = asyncio.get_running_loop().time() + RECORDING_S + self._own.save_s
        begun = await self._recorded(CheckpointBegun(step, path), deadline)
        await asyncio.sleep(self._own.save_s)
        digest = hashlib.sha256(content).hexdigest()
        shard = _shard(self.number)
        self.shelf[path, shard] = content
        self.host.rank_saved(self, step, path, digest)
        saved = ShardSaved(step, path, shard, digest, len(content))
        return await self._recorded(saved, deadline) and begun

    async def _recorded(self, line: CheckpointBegun | ShardSaved, deadline: float) -> bool:
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    answer: Answer = await self._say(line)
                return answer.ok
            except TimeoutError:
                return False
            except Away:
                await asyncio.sleep(AWAY_S)
        return False

    def _say(
        self, line: Progress | CheckpointBegun | ShardSaved | ShouldStop
    ) -> asyncio.Future[Answer]:
        workers = self.host.workers
        if workers is None:
            raise Away(f"{self.host.name} has no agent")
        return workers.say(self.task, line)


def _shard(number: int) -> str:
    return f"rank-{number:05d}.bin"
