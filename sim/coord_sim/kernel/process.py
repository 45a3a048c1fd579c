"""Simulated processes: what is scheduled from within one belongs to it, and dies with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from coord_sim.kernel.loop import SimHandle, SimLoop, SimTimer

PROCESS: ContextVar[SimProcess | None] = ContextVar("simulated_process", default=None)


class ProcessKilled(BaseException):
    """Unwinds a callback of a process that has just died. No effect of its is let out any more."""


def current_process() -> SimProcess | None:
    """The process whose code is running; None for the simulation's own."""
    return PROCESS.get()


class SimProcess:
    """An operating-system process. Made by `Kernel.spawn`."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self.alive = True
        self.blocked = False
        """Dead, paused or stalled: the loop runs none of its callbacks."""
        self.stalled_until_s = 0.0
        """What it does after a stall within one callback happens then, not now."""
        self.blocked_s = 0.0
        """How long it has been paused or stalled in all, up to the last time it went on."""
        self.on_death: list[Callable[[], None]] = []
        self.crashed: BaseException | None = None
        self.parked: list[SimHandle | SimTimer] = []
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept, so that nothing of a killed process is collected, and so cleaned up, early."""
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)
        self.main: asyncio.Task[Any] | None = None
        self._loop = loop
        self._stopped = False
        self._stalls = 0
        self._blocked_since_s = 0.0
        self._tasks_swept_at = 64

    @property
    def paused(self) -> bool:
        return self.alive and self.blocked

    def begin(
        self, main: Coroutine[Any, Any, Any] | Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        """Run `main` as its first task; when that ends, so does the process."""
        coroutine = main if asyncio.iscoroutine(main) else _called(main)
        self.main = self._loop.create_task(coroutine, context=self.context.copy())
        self.main.add_done_callback(self._main_ended, context=self.context)

    def kill(self) -> None:
        """As kill -9: no callback or task of its runs again, and no finally block."""
        if not self.alive:
            return
        self.alive = False
        self.blocked = True
        self.parked.clear()
        deaths, self.on_death = self.on_death, []
        for died in deaths:
            self._loop.outside.copy().run(died)

    def die(self) -> NoReturn:
        """Kill the process whose code is running, here and now."""
        self.kill()
        raise ProcessKilled(self.name)

    def pause(self) -> None:
        """As SIGSTOP: its callbacks and timers wait while virtual time goes on."""
        self._stopped = True
        self._block()

    def resume(self) -> None:
        """As SIGCONT: what waited runs in its order. Idempotent."""
        self._stopped = False
        self._block()

    def stall(self, seconds: float) -> None:
        """A pause that ends by itself: a slow fsync, a collector's pause, no processor to be had.

        Called from within, it stands for what a call took: the callback goes on at once, but what
        it sends leaves at `stalled_until_s`.
        """
        if not self.alive or seconds <= 0:
            return
        self._stalls += 1
        start_s = max(self._loop.time(), self.stalled_until_s)
        self.stalled_until_s = start_s + seconds
        self._loop.call_at(self.stalled_until_s, self._stall_ended, context=self._loop.outside)
        self._block()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        """Have the process itself run it: for devices and networks that report to it."""
        return self._loop.call_soon(callback, *arguments, context=self.context.copy())

    def call_at(
        self, when_s: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """As `call_soon`, at a time."""
        return self._loop.call_at(when_s, callback, *arguments, context=self.context.copy())

    def run(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call it now, as code of this process."""
        return self.context.copy().run(callback, *arguments)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it is done."""
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_swept_at:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._tasks_swept_at = 64 + 2 * len(self.tasks)

    def _main_ended(self, main: asyncio.Task[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        if error is not None and not isinstance(error, ProcessKilled):
            self.crashed = error
        self.kill()

    def _stall_ended(self) -> None:
        self._stalls -= 1
        self._block()

    def _block(self) -> None:
        if not self.alive:
            return
        blocked = self._stopped or self._stalls > 0
        if blocked and not self.blocked:
            self._blocked_since_s = self._loop.time()
        elif self.blocked and not blocked:
            self.blocked_s += self._loop.time() - self._blocked_since_s
        self.blocked = blocked
        if not self.blocked and self.parked:
            parked, self.parked = self.parked, []
            self._loop.run_again(parked)


async def _called(main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    await main()
