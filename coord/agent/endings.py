"""Ending a task: SIGTERM, a grace, SIGKILL, until not one process of it is left."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from coord.agent.ports import ProcessRunner
from coord.agent.records import Process

LEFTOVER_GRACE_S = 0.5
"""What processes get that outlive a main process which ended by itself."""
POLL_FIRST_S = 0.005
POLL_LIMIT_S = 0.1
POLL_UNKILLABLE_S = 1.0


class EndingListener(Protocol):
    """Who is told how it goes. Called on the loop."""

    def on_gone(self, task: str) -> None:
        """Not one process of the task is left."""

    def on_unkillable(self, task: str, pid: int) -> None:
        """This process outlived SIGKILL. The ending goes on."""


class Ending:
    """One task's end. `kill_at` is a loop time in seconds; it only ever moves nearer.

    `run` ends when the main process has ended (`main_exited` says so) and nothing is left.
    """

    def __init__(
        self,
        task: str,
        process: Process | None,
        runner: ProcessRunner,
        listener: EndingListener,
        unkillable_s: float,
        kill_at: float,
    ) -> None:
        self.task = task
        self._process = process
        self._runner = runner
        self._listener = listener
        self._unkillable_s = unkillable_s
        self._kill_at = kill_at
        self._exited = False
        self._asked = False
        self._killed_at: float | None = None
        self._told = False
        self._wake = asyncio.Event()

    def hasten(self, kill_at: float) -> None:
        """SIGKILL at this time, unless it comes sooner already."""
        if kill_at < self._kill_at:
            self._kill_at = kill_at
            self._wake.set()

    def main_exited(self) -> None:
        """The main process has ended; from now on what is left decides."""
        self._exited = True
        self._wake.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = POLL_FIRST_S
        while True:
            self._wake.clear()
            left = self._step(loop.time())
            if self._exited and not left:
                self._listener.on_gone(self.task)
                return
            now = loop.time()
            if self._killed_at is not None or self._exited:
                wait_s = POLL_UNKILLABLE_S if self._told else pause_s
                pause_s = min(pause_s * 1.5, POLL_LIMIT_S)
            else:
                wait_s = self._kill_at - now
            if self._killed_at is None:
                wait_s = min(wait_s, self._kill_at - now)
            await _wait(self._wake, max(wait_s, 0.0))

    def _step(self, now: float) -> tuple[int, ...]:
        """Do what is due; returns the pids left before it."""
        if now >= self._kill_at:
            left = self._runner.signal(self.task, self._process, signal.SIGKILL)
            if self._killed_at is None:
                self._killed_at = now
            elif left and not self._told and now - self._killed_at >= self._unkillable_s:
                self._told = True
                self._listener.on_unkillable(self.task, left[0])
            return left
        if not self._asked:
            # Once: many programs take a second SIGTERM for impatience and drop everything.
            self._asked = True
            return self._runner.signal(self.task, self._process, signal.SIGTERM)
        return self._runner.survivors(self.task, self._process) if self._exited else ()


class Endings:
    """All tasks being ended. `spawn` runs a coroutine under an owner."""

    def __init__(
        self,
        runner: ProcessRunner,
        listener: EndingListener,
        unkillable_s: float,
        spawn: Callable[[Ending], None],
    ) -> None:
        self._runner = runner
        self._listener = listener
        self._unkillable_s = unkillable_s
        self._spawn = spawn
        self._active: dict[str, Ending] = {}

    def begin(self, task: str, process: Process | None, kill_at: float, *, exited: bool) -> None:
        """End the task, or bring its SIGKILL nearer if it is being ended already."""
        ending = self._active.get(task)
        if ending is None:
            ending = Ending(
                task, process, self._runner, self._listener, self._unkillable_s, kill_at
            )
            self._active[task] = ending
            if exited:
                ending.main_exited()
            self._spawn(ending)
            return
        ending.hasten(kill_at)
        if exited:
            ending.main_exited()

    def main_exited(self, task: str) -> None:
        """The main process of a task being ended has ended."""
        self._active[task].main_exited()

    def is_ending(self, task: str) -> bool:
        return task in self._active

    def over(self, task: str) -> None:
        """The task is gone."""
        self._active.pop(task, None)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
