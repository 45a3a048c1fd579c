"""The processes of a simulated host, as an agent under test starts and ends them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from coord.agent.launching import Workshop
from coord.agent.ports import ExitStatus, TaskOutput
from coord.model.plans import TaskOrder
from coord_sim.world.runner import SimRunner

if TYPE_CHECKING:
    from coord_sim.world.hosts import SimHost


class Machine:
    """What an agent has of its host's operating system. Processes outlive the agent that started
    them and end with the host's power; the next agent of the host finds them by their task keys.

    `runner` is the port below, `coord.agent.ports.ProcessRunner`, for an agent that wants pids,
    start times and single signals.
    """

    def __init__(
        self, host: SimHost, agent_id: str, runner: SimRunner, output: TaskOutput, socket: Path
    ) -> None:
        self.runner = runner
        self._host = host
        self._agent_id = agent_id
        self._workshop = Workshop(host.name, agent_id, output, socket, {}, host.is_free)
        self._ends: dict[str, asyncio.Future[ExitStatus]] = {}
        runner.on_exit(self._ended)

    def start(self, order: TaskOrder) -> int:
        """Run the order's program, with the environment that workers expect; returns the pid.
        Raises LaunchError, which has `user_error`."""
        spec = self._workshop.prepare(order, frozenset(self.tasks()))
        process = self.runner.launch(spec)
        self._ends[order.task] = asyncio.get_running_loop().create_future()
        return process.pid

    def tasks(self) -> dict[str, int]:
        """Task key to pid of every main process that an agent with this `agent_id` started, in this
        life or an earlier one, and that lives."""
        return {
            rank.task: rank.process.pid
            for rank in self._host.runs
            if rank.alive and rank.agent == self._agent_id
        }

    def pids(self, task: str) -> tuple[int, ...]:
        """Every process of the task that lives: children may outlive the main one. A task may be
        reported as reaped only when there is none."""
        return self.runner.survivors(task, None)

    def signal(self, task: str, number: int = signal.SIGTERM) -> tuple[int, ...]:
        """To every process of the task; returns the pids that there were."""
        return self.runner.signal(task, None, number)

    async def ended(self, task: str) -> ExitStatus:
        """Wait for the end of the main process. `observed` is false where nobody can say how it
        ended, because its parent, an earlier agent, is dead."""
        if task not in self._ends:
            self._ends[task] = asyncio.get_running_loop().create_future()
            process = self.runner.find(task)
            if process is None:
                self._ended(task, ExitStatus(observed=False))
            else:
                self.runner.adopt(task, process)
        return await asyncio.shield(self._ends[task])

    async def clear(self, task: str, grace_s: float = 0.0) -> None:
        """SIGTERM, then SIGKILL after the grace; return when no process of the task is left."""
        loop = asyncio.get_running_loop()
        kill_at = loop.time() + grace_s
        if grace_s:
            self.signal(task, signal.SIGTERM)
        while self.pids(task):
            if loop.time() >= kill_at:
                self.signal(task, signal.SIGKILL)
            await asyncio.sleep(0.02)

    def _ended(self, task: str, status: ExitStatus) -> None:
        end = self._ends.get(task)
        if end is not None and not end.done():
            end.set_result(status)
