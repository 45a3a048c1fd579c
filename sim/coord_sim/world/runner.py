"""See `ports.ProcessRunner`: the ranks of a simulated host, as one agent of it reaches them.

An exit that the agent is there for is observed: of its own children always, of those it took over
only where the kernel is new enough to tell (Linux 6.15), as `exits.learn` does. What happened
before it came is known from the keeper's note, or not at all.
"""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING

from coord.agent.exits import ExitNotes
from coord.agent.ports import ExitCallback, ExitStatus, LaunchError, LaunchSpec
from coord.agent.records import Process
from coord_sim.kernel import ProcessKilled, SimProcess
from coord_sim.world.ranks import SimRank

if TYPE_CHECKING:
    from coord_sim.world.hosts import SimHost

EXIT_SEEN_S = 0.005
"""At most so long after an exit the agent's loop has heard of it."""


class _Watched:
    """A task whose main process ends some time. `rank` is None where that is over already."""

    def __init__(self, rank: SimRank | None, *, own: bool) -> None:
        self.rank = rank
        self.own = own
        self.killed = False
        self.told = False


class SimRunner:
    """Made anew for each agent of the host."""

    def __init__(self, host: SimHost, agent: str, process: SimProcess, notes: ExitNotes) -> None:
        self._host = host
        self._agent = agent
        self._process = process
        self._notes = notes
        self._rng: random.Random = host.kernel.rng(f"runner/{host.name}")
        self._watched: dict[str, _Watched] = {}
        self._callback: ExitCallback | None = None

    # For the agent

    def on_exit(self, callback: ExitCallback) -> None:
        self._callback = callback

    def launch(self, spec: LaunchSpec) -> Process:
        self._check_alive()
        if self._host.disk.full:
            raise LaunchError(f"cannot write output of {spec.task}: disk full", user_error=False)
        failure = self._host.take_launch_failure()
        if failure is not None:
            raise failure
        rank = self._host.start_rank(spec)
        self._watched[spec.task] = _Watched(rank, own=True)
        return rank.process

    def find(self, task: str) -> Process | None:
        for rank in self._host.runs:
            if rank.alive and self._is_of(rank, task):
                return rank.process
        return None

    def adopt(self, task: str, process: Process) -> None:
        found = [rank for rank in self._host.runs if rank.process == process and rank.alive]
        self._watched[task] = watched = _Watched(found[0] if found else None, own=False)
        if not found:
            self._process.call_soon(self._ended, task, watched)

    def survivors(self, task: str, process: Process | None) -> tuple[int, ...]:
        return tuple(sorted(pid for rank in self._family(task, process) for pid in rank.pids))

    def signal(self, task: str, process: Process | None, number: int) -> tuple[int, ...]:
        self._check_alive()
        watched = self._watched.get(task)
        if watched is not None and number == signal.SIGKILL:
            watched.killed = True
        family = self._family(task, process)
        pids = tuple(sorted(pid for rank in family for pid in rank.pids))
        for rank in family:
            rank.signal(number)
        return pids

    def release(self, task: str) -> None:
        self._watched.pop(task, None)

    def collect(self) -> None:
        """There are no zombies here."""

    def close(self) -> None:
        self._watched.clear()

    # For the host

    def rank_ended(self, rank: SimRank) -> None:
        """A main process has ended, whoever watches it."""
        for task, watched in list(self._watched.items()):
            if watched.rank is rank:
                at_s = self._host.kernel.now_s() + self._rng.random() * EXIT_SEEN_S
                self._process.call_at(at_s, self._ended, task, watched)

    # Inside

    def _ended(self, task: str, watched: _Watched) -> None:
        if self._watched.get(task) is not watched or watched.told:
            return
        watched.told = True
        if self._callback is not None:
            self._callback(task, self._status(task, watched))

    def _status(self, task: str, watched: _Watched) -> ExitStatus:
        rank = watched.rank
        if rank is not None and (watched.own or self._host.kernel_tells):
            assert rank.status is not None, f"{task} has not ended"
            oom = rank.oom and not watched.killed
            return ExitStatus(rank.status.exit_code, rank.status.signal, oom=oom)
        noted = self._notes.read(task).status
        if noted is None:
            return ExitStatus(observed=False)
        code = os.waitstatus_to_exitcode(noted)
        return ExitStatus(signal=-code) if code < 0 else ExitStatus(exit_code=code)

    def _family(self, task: str, process: Process | None) -> list[SimRank]:
        if process is not None and process.boot != self._host.boot:
            return []
        return [
            rank
            for rank in self._host.runs
            if not rank.gone and (rank.process == process or self._is_of(rank, task))
        ]

    def _is_of(self, rank: SimRank, task: str) -> bool:
        return rank.task == task and rank.agent == self._agent

    def _check_alive(self) -> None:
        if not self._process.alive:
            raise ProcessKilled(self._process.name)
