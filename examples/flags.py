"""A service of another team in a page: feature flags, kept in coord's log.

Setting a flag is a note in the log. Each process that wants flags has a copy of all of them, which
follows the log, and answers once it has seen all that was set before it was asked. There is a
mistake in what it does when that takes too long, which shows only when something is broken;
`test_flags.py` finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from coord.client import Client, Unavailable
from coord.model.events import NoteAdded

SUBJECT = "flag/"
PATIENCE_S = 5.0
CATCH_UP_S = 0.5
"""It takes a few milliseconds while all is well."""


class Flags:
    """One copy. A `careful` one answers nothing rather than something old."""

    def __init__(self, servers: Iterable[str], *, name: str, careful: bool) -> None:
        self.name = name
        self.careful = careful
        self._client = Client(servers, actor=name, timeout_s=PATIENCE_S)
        self._values: dict[str, str] = {}
        self._seen = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._client.close()

    async def set(self, flag: str, value: str) -> int:
        """The index in the log at which it was set. Raises CoordError."""
        decided = await self._client.note(SUBJECT + flag, value)
        return decided.index

    async def get(self, flag: str) -> str | None:
        """None when it was never set. Raises CoordError; a careful one, TimeoutError."""
        newest = (await self._client.cluster()).applied_index
        try:
            async with asyncio.timeout(CATCH_UP_S), self._changed:
                await self._changed.wait_for(lambda: self._seen >= newest)
        except TimeoutError:
            if self.careful:
                raise
            # The mistake: an old answer passes for a new one. It takes a server that falls behind.
        return self._values.get(flag)

    async def _follow(self) -> None:
        while True:
            try:
                async for recorded in self._client.watch(self._seen + 1):
                    event = recorded.entry.event
                    if isinstance(event, NoteAdded) and event.subject.startswith(SUBJECT):
                        self._values[event.subject.removeprefix(SUBJECT)] = event.text
                    async with self._changed:
                        self._seen = recorded.entry.index
                        self._changed.notify_all()
            except Unavailable:
                await asyncio.sleep(0.2)
