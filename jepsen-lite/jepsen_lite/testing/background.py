"""An event loop on a thread of its own, so that tests of either kind can wait for what it does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

Answer = TypeVar("Answer")

TIMEOUT_S = 240.0
"""No single step takes so long; one that does is given up, for a test must end."""


class Background:
    """Everything of ours runs here, whichever loop a test has, or none. Close it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="jepsen_lite", daemon=True
        )
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begin it and go on."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Answer], timeout_s: float = TIMEOUT_S) -> Answer:
        """Block until it is done. Raises what it raises; TimeoutError when it is not done in time,
        after cancelling it."""
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            if future.done():
                raise  # Its own.
            raise TimeoutError(f"not done within {timeout_s:g} s") from None
        finally:
            future.cancel()  # Nothing, when it is done; else we were interrupted.

    async def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The same for a test with an asyncio loop, which goes on meanwhile."""
        return await asyncio.wrap_future(self.start(work))

    def call(self, act: Callable[[], object]) -> None:
        """Have something done on the loop, soon."""
        self._loop.call_soon_threadsafe(act)

    def close(self) -> None:
        """Cancel what still runs, and end the thread. Idempotent."""
        if self._loop.is_closed():
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
