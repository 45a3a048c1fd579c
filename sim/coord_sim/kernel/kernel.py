"""One simulation: virtual time, processes, random streams and the trace, all from one seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from coord_sim.kernel.loop import SimLoop
from coord_sim.kernel.process import SimProcess, current_process
from coord_sim.kernel.trace import Trace

T = TypeVar("T")


class Kernel:
    """Everything that happens in it follows from `seed`. Close it, or use it in a `with`."""

    def __init__(self, seed: int, *, trace: Trace | None = None) -> None:
        self.seed = seed
        self.trace = trace if trace is not None else Trace()
        self.loop = SimLoop()
        self.processes: list[SimProcess] = []
        """All there ever were, in the order of their start."""
        self._streams: dict[str, random.Random] = {}
        self.trace.attach(self._where)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rng(self, name: str) -> random.Random:
        """The random stream of that name: drawing from one never shifts another."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self.seed}/{name}")
        return stream

    def now_s(self) -> float:
        """Virtual seconds, from 1000.0 on."""
        return self.loop.time()

    def spawn(
        self, name: str, main: Coroutine[Any, Any, Any] | Callable[[], Coroutine[Any, Any, Any]]
    ) -> SimProcess:
        """A process that lives until `main` ends or it is killed."""
        process = self.loop.outside.copy().run(SimProcess, name, self.loop)
        self.processes.append(process)
        process.begin(main)
        return process

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """For networks, devices and faults: belongs to no process, whoever calls."""
        return self.loop.call_later(delay_s, callback, *arguments, context=self.loop.outside)

    def call_at(
        self, when_s: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """As `call_later`, at a time."""
        return self.loop.call_at(when_s, callback, *arguments, context=self.loop.outside)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of the simulation's own, whoever calls."""
        return self.loop.create_task(coroutine, context=self.loop.outside.copy())

    def run_until(self, done: Awaitable[T]) -> T:
        """Run until it is done, and return what it gives or raise what it raises."""
        result: T = self.loop.run_until_complete(done)
        return result

    def run_for(self, seconds: float) -> None:
        """Run for so much virtual time."""
        self.call_later(seconds, self.loop.stop)
        self.loop.run_forever()

    def fail(self, error: BaseException) -> None:
        """End the run from wherever it is: `run_until` or `run_for` raises `error`."""
        self.loop.fail(error)

    def close(self) -> None:
        """Kill everything and leave nothing that warns when it is collected. Idempotent."""
        if self.loop.is_closed():
            return
        self.loop.closing = True
        for process in self.processes:
            process.alive = False
            process.blocked = True
        self.loop.discard(self.processes)

    def _where(self) -> tuple[float, str]:
        process = current_process()
        return self.loop.time(), process.name if process is not None else ""
