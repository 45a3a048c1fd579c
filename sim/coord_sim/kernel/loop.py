"""An asyncio event loop on virtual time: a queue of what is ready, a heap of timers, no waiting."""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from types import CoroutineType
from typing import Any
from weakref import WeakKeyDictionary

from coord_sim.kernel.process import PROCESS, ProcessKilled, SimProcess

LIVELOCK_CALLBACKS = 100_000
"""So many callbacks at one instant wait for something that will not come."""
START_S = 1000.0
DISPOSALS = 1_000
"""So many awaits in the finally blocks of a task are closed when all is taken apart."""


class Deadlock(RuntimeError):
    """Everything waits, and no timer is set."""


class Livelock(RuntimeError):
    """Callbacks follow on each other for ever and virtual time stands still."""


class SimHandle(asyncio.Handle):
    """A callback and the process that it belongs to."""

    __slots__ = ("process",)

    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context,
        process: SimProcess | None,
    ) -> None:
        self._callback = callback
        self._args = arguments
        self._context = context
        self._cancelled = False
        self.process = process

    def cancel(self) -> None:
        self._cancelled = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}>"


class SimTimer(asyncio.TimerHandle):
    """A callback at a time. Ties go in the order of scheduling."""

    __slots__ = ("process",)

    def __init__(
        self,
        when_s: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context,
        loop: SimLoop,
    ) -> None:
        self._when = when_s
        self._callback = callback
        self._args = arguments
        self._context = context
        self._cancelled = False
        self._loop: SimLoop = loop
        self.process = context.get(PROCESS)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._loop.timer_cancelled()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._when:.3f} {self._callback!r}>"


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks of processes that live and are not paused. What a worker thread would do is
    done at once, and its answer comes `worker_s()` later.

    An exception that no callback's owner took ends the run: `run_forever` raises it. What only the
    collector notices (an exception never retrieved) is put into `unretrieved`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(False)
        self.outside = Context()
        """For what belongs to no process."""
        self.worker_s: Callable[[], float] = lambda: 0.0
        self.unretrieved: list[dict[str, Any]] = []
        self.handled = 0
        """Callbacks run so far."""
        self.closing = False
        self._now_s = START_S
        self._queue: deque[SimHandle | SimTimer] = deque()
        self._heap: list[tuple[float, int, SimTimer]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        self._stop_asked = False
        self._failure: BaseException | None = None
        self._own_tasks: list[asyncio.Task[Any]] = []
        self._generators: WeakKeyDictionary[AsyncGenerator[Any, Any], SimProcess] = (
            WeakKeyDictionary()
        )

    def time(self) -> float:
        return self._now_s

    # Scheduling

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        handle = SimHandle(callback, args, context, context.get(PROCESS))
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = SimTimer(when, callback, args, copy_context() if context is None else context, self)
        self._sequence += 1
        heappush(self._heap, (when, self._sequence, timer))
        return timer

    def timer_cancelled(self) -> None:
        """Sweep once most of the heap is dead."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 500 and 2 * self._cancelled_timers > len(self._heap):
            self._heap = [item for item in self._heap if not item[2]._cancelled]
            heapify(self._heap)
            self._cancelled_timers = 0

    def run_again(self, handles: Iterable[SimHandle | SimTimer]) -> None:
        """What was parked is ready, in its order."""
        self._queue.extend(handles)

    def create_task(  # type: ignore[override]
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if self.closing:
            coro.close()
            coro = _nothing()
        task = asyncio.Task(
            coro,
            loop=self,
            name=name or (process.name if process is not None else "simulation"),
            context=context,
        )
        if process is not None:
            process.keep(task)
        else:
            self._keep(task)
        if self.closing:
            self._dispose(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            result, error = func(*args), None
        except Exception as raised:
            result, error = None, raised
        delay_s = self.worker_s()
        if delay_s > 0:
            self.call_later(delay_s, _answer, future, result, error)
        else:
            self.call_soon(_answer, future, result, error)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # Running

    def run_forever(self) -> None:
        if self.is_closed() or events._get_running_loop() is not None:
            raise RuntimeError("the loop is closed, or another one runs in this thread")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_began, finalizer=self._generator_left)
        events._set_running_loop(self)
        self._stop_asked = False
        try:
            self._run()
        finally:
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def fail(self, error: BaseException) -> None:
        """End the run, which raises `error`; the first one counts."""
        if self._failure is None:
            self._failure = error
        self._stop_asked = True

    def stop(self) -> None:
        """Stop after the callback that is running."""
        self._stop_asked = True

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_for, context=self.outside)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_for)
        if not task.done():
            raise RuntimeError("the loop was stopped before what it was run for was done")
        return task.result()

    def _stop_for(self, future: asyncio.Future[Any]) -> None:
        self.stop()

    def _run(self) -> None:
        queue = self._queue
        instant = handled = 0
        while not self._stop_asked:
            if not queue:
                self.handled += handled - instant
                instant = handled
                self._advance()
                continue
            handle = queue.popleft()
            process = handle.process
            if process is not None and process.blocked:
                if process.alive:
                    process.parked.append(handle)
                continue
            if handle._cancelled:
                continue
            handled += 1
            if handled - instant > LIVELOCK_CALLBACKS:
                raise Livelock(f"{LIVELOCK_CALLBACKS} callbacks at {self._now_s:.3f} s: {handle!r}")
            try:
                handle._context.run(handle._callback, *handle._args)
            except ProcessKilled:
                if process is not None:
                    process.kill()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._callback_failed(handle, error)
        self.handled += handled - instant

    def _advance(self) -> None:
        """To the next timer, and make all of its instant ready."""
        heap, queue = self._heap, self._queue
        while heap:
            when, _, timer = heappop(heap)
            if timer._cancelled:
                self._cancelled_timers -= 1
                continue
            self._now_s = max(self._now_s, when)
            queue.append(timer)
            while heap and heap[0][0] <= self._now_s:
                timer = heappop(heap)[2]
                if timer._cancelled:
                    self._cancelled_timers -= 1
                else:
                    queue.append(timer)
            return
        raise Deadlock(f"at {self._now_s:.3f} s everything waits and no timer is set")

    def _callback_failed(self, handle: SimHandle | SimTimer, error: BaseException) -> None:
        name = handle.process.name if handle.process is not None else "the simulation"
        error.add_note(f"in a callback of {name} at {self._now_s:.3f} s: {handle!r}")
        self.fail(error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """From destructors mostly, whose time is the collector's: never part of the trace."""
        if not self.closing and not self.is_closed():
            self.unretrieved.append(context)

    # Asynchronous generators

    def _generator_began(self, generator: AsyncGenerator[Any, Any]) -> None:
        process = PROCESS.get()
        if process is not None:
            self._generators[generator] = process

    def _generator_left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Its owner let go of it half-way: its process closes it, if it lives."""
        process = self._generators.pop(generator, None)
        if process is not None and process.alive and not self.closing:
            process.call_soon(self._close_generator, generator)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.create_task(_closed(generator))

    # Ending

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._own_tasks.append(task)
        if len(self._own_tasks) > 1_000:
            self._own_tasks = [task for task in self._own_tasks if not task.done()]

    def discard(self, processes: Iterable[SimProcess]) -> None:
        """Take everything apart so that nothing is left to the collector that could speak up."""
        self.closing = True
        for process in processes:
            for task in process.tasks:
                self._dispose(task)
            process.tasks.clear()
            process.parked.clear()
        for task in self._own_tasks:
            self._dispose(task)
        self._own_tasks.clear()
        self._queue.clear()
        self._heap.clear()
        self.close()

    def _dispose(self, task: asyncio.Task[Any]) -> None:
        """Close a task's coroutine. Its finally blocks run now, when they can do no harm; one that
        awaits anything within is closed again. What is awaited goes before who awaits it: else it
        would be left, half-way, to the collector, which warns."""
        coroutine = task.get_coro()
        for _ in range(DISPOSALS):
            if not isinstance(coroutine, Coroutine) or getattr(coroutine, "cr_frame", 0) is None:
                return
            try:
                _innermost(coroutine).close()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise


def _innermost(coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """What it waits for, at the end of all that waits for something."""
    while True:
        awaited = getattr(coroutine, "cr_await", None)
        if not isinstance(awaited, CoroutineType) or awaited.cr_frame is None:
            return coroutine
        coroutine = awaited


def _answer(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


async def _closed(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()


async def _nothing() -> None:
    """Stands for a task that is asked for while everything is being taken apart."""
