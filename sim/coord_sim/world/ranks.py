"""A rank: a process that trains, as far as anybody outside can tell.

It starts from the checkpoint it is given, steps together with its peers, tells its agent of each
step, saves a shard every few steps and waits until that is recorded, leaves when asked to, and
exits with 0 after its last step. It follows the contract of `coord.worker`.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
from typing import TYPE_CHECKING

from coord.agent.ports import ExitStatus, LastWords, LaunchSpec
from coord.agent.proctable import AGENT_MARK
from coord.agent.records import Process
from coord.agent.socket import Answer, CheckpointBegun, Progress, ShardSaved
from coord_sim.world.collectives import Collective, CollectiveTimeout
from coord_sim.world.habits import JobHabits, RankHabits
from coord_sim.world.worker_socket import Away

if TYPE_CHECKING:
    from coord_sim.world.hosts import SimHost

AWAY_S = 0.25
RECORDING_S = 10.0
"""How long the recording of a checkpoint may hold a rank up, as `coord.worker.RECORDED_S`."""


class SimRank:
    """The main process of one run of one task, and its child if it has one. Made by its host."""

    def __init__(
        self,
        host: SimHost,
        process: Process,
        child_pid: int,
        spec: LaunchSpec,
        habits: tuple[JobHabits, RankHabits],
        collective: Collective,
    ) -> None:
        self.host = host
        self.task = spec.task
        self.env = spec.env
        self.process = process
        self.child_pid = child_pid
        """0 where it has none, or that has ended."""
        self.agent = spec.env.get(AGENT_MARK, "")
        self.index = int(spec.env.get("COORD_INDEX") or 0)
        self.number = int(spec.env.get("RANK") or 0)
        self.generation = int(spec.env.get("COORD_GENERATION") or 0)
        self.devices = tuple(int(one) for one in spec.env["COORD_DEVICES"].split(",") if one)
        self.step = int(spec.env.get("COORD_RESTORE_STEP") or 0)
        self.status: ExitStatus | None = None
        """How the main process ended; None while it lives."""
        self.oom = False
        self.completed = False
        """It made its last step."""
        self.asked = False
        """It got SIGTERM or its agent told it to stop, and it cares."""
        self.unkillable = False
        self.slowness = 1.0
        self.collective = collective
        self._job, self._own = habits
        self._kill_pending = False
        self.sim = host.kernel.spawn(f"{host.name}:{self.task}", self._main)
        self.sim.on_death.append(self._died)

    # For whoever looks on

    @property
    def alive(self) -> bool:
        """Whether the main process is."""
        return self.status is None

    @property
    def gone(self) -> bool:
        """Whether not one process of it is left."""
        return self.status is not None and not self.child_pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Of every live process of it."""
        main = (self.process.pid,) if self.alive else ()
        return (*main, self.child_pid) if self.child_pid else main

    @property
    def port(self) -> int:
        """Where it listens; 0 for nowhere."""
        return int(self.env.get("MASTER_PORT") or 0) if self.alive and not self.number else 0

    # What befalls it

    def signal(self, number: int) -> None:
        """To every process of it."""
        if number == signal.SIGKILL:
            if self.unkillable:
                self._kill_pending = True
            else:
                self._kill()
        elif number == signal.SIGTERM and not self.unkillable:
            self._terminate()

    def exit(self, code: int, words: str = "") -> None:
        """The program ends by itself, with a code."""
        if words:
            self.host.disk.words[self.task] = LastWords(words, words)
        self._end(ExitStatus(exit_code=code))

    def die(self, number: int, *, oom: bool = False) -> None:
        """The main process ends by a signal that its agent did not send."""
        self.oom = oom
        self._end(ExitStatus(signal=number))

    def hang(self) -> None:
        """It lives and does nothing any more, and no handler of it runs."""
        self.sim.pause()

    def go_on(self) -> None:
        """End what `hang` began, and slowness."""
        self.slowness = 1.0
        self.sim.resume()

    def let_die(self) -> None:
        """It can be killed again."""
        self.unkillable = False
        if self._kill_pending:
            self._kill()

    def lose_power(self) -> None:
        """With its host. Nobody sees how."""
        self._end_all(ExitStatus(signal=signal.SIGKILL, observed=False))

    def _terminate(self) -> None:
        kernel, term_s = self.host.kernel, self._own.term_s
        if self.child_pid:
            kernel.call_later(term_s / 2, self._child_ends)
        if self.status is not None:
            return
        if self._own.on_sigterm == "leave":
            self.asked = True
        elif self._own.on_sigterm == "die":
            kernel.call_later(term_s, self._end, ExitStatus(signal=signal.SIGTERM))

    def _kill(self) -> None:
        self._end_all(ExitStatus(signal=signal.SIGKILL))

    def _end_all(self, status: ExitStatus) -> None:
        """Every process of it, whether the main one lives or has left a child behind."""
        self._end_child()
        self._end(status)

    def _child_ends(self) -> None:
        if not self.unkillable:
            self._end_child()

    def _end_child(self) -> None:
        self.child_pid = 0
        if self.gone:
            self.host.rank_gone(self)

    def _end(self, status: ExitStatus) -> None:
        if self.status is not None:
            return
        self.status = status
        self.collective.left(self.number)
        self.sim.kill()
        self.host.rank_ended(self)
        if self.gone:
            self.host.rank_gone(self)

    def _died(self) -> None:
        if self.status is None:
            raise RuntimeError(f"{self.sim.name} failed in itself") from self.sim.crashed

    # What it does

    async def _main(self) -> None:
        job = self._job
        await asyncio.sleep(self._own.start_s)
        try:
            await self._meet(-1)
            while not self.asked and not (job.last_step and self.step >= job.last_step):
                await asyncio.sleep(job.step_s * self.slowness * self.host.fleet.pace)
                await self._meet(self.step + 1)
                self.step += 1
                self._tell_progress()
                if job.checkpoint_every and self.step % job.checkpoint_every == 0:
                    await self._save()
        except CollectiveTimeout as error:
            self.exit(1, str(error))
            return
        await asyncio.sleep(0.01)  # Its newest step is told before it leaves.
        self.completed = bool(job.last_step) and self.step >= job.last_step
        self.exit(0)

    async def _meet(self, step: int) -> None:
        if self.collective.size > 1:
            await self.collective.meet(
                step, self.number, lambda: self.host.fabric_up, self._job.collective_s
            )

    def _tell_progress(self) -> None:
        try:
            answer = self._say(Progress(self.step))
        except Away:
            return
        answer.add_done_callback(self._told)

    def _told(self, answer: asyncio.Future[Answer]) -> None:
        told = not answer.cancelled() and answer.exception() is None and answer.result().stop
        if told and self._own.on_sigterm == "leave":
            self.asked = True

    async def _save(self) -> None:
        root = self.env.get("COORD_CHECKPOINT_DIR") or "/checkpoints"
        path = f"{root}/step-{self.step:010d}-gen-{self.generation}"
        deadline = asyncio.get_running_loop().time() + RECORDING_S + self._own.save_s
        await self._record(CheckpointBegun(self.step, path), deadline)
        await asyncio.sleep(self._own.save_s)
        made = f"{self.task}@{self.step} on {self.host.name}"
        digest = hashlib.sha256(made.encode()).hexdigest()
        self.host.rank_saved(self, self.step, path, digest)
        shard = f"rank-{self.number:05d}.bin"
        await self._record(ShardSaved(self.step, path, shard, digest, len(made)), deadline)

    async def _record(self, line: CheckpointBegun | ShardSaved, deadline: float) -> None:
        """Wait until it is recorded, refused, or too late; an agent being replaced is soon back."""
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._say(line)
                return
            except TimeoutError:
                return
            except Away:
                await asyncio.sleep(AWAY_S)

    def _say(self, line: Progress | CheckpointBegun | ShardSaved) -> asyncio.Future[Answer]:
        workers = self.host.workers
        if workers is None:
            raise Away(f"{self.host.name} has no agent")
        return workers.say(self.task, line)
