"""An event loop whose time passes only when nothing else can happen."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")

LIMIT_S = 1_000_000.0
"""More virtual time than any test needs: a test that gets there waits for what never comes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeping costs nothing: when every task waits, the clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now_s


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits for something that no timer will bring")
        self._loop.now_s += timeout
        if self._loop.now_s > LIMIT_S:
            raise RuntimeError(f"{LIMIT_S:g} virtual seconds have passed; the test hangs")
        return ready


def run(test: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a test in virtual time, to the end, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test)


async def eventually(holds: Any, within_s: float = 60.0) -> None:
    """Wait until `holds()`; fails when it does not within the time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not holds():
        assert loop.time() < deadline_s, f"not so within {within_s:g} s"
        await asyncio.sleep(0.005)
