"""Applied entries for those who read and follow: the newest in memory, the rest in the store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice

from coord.model.entry import Recorded
from coord.node.config import Limits
from coord.store.ports import EventStore

CHUNK = 512


class EventLog:
    """The records of this node, with a way to wait for the next."""

    def __init__(self, store: EventStore, limits: Limits) -> None:
        self.store = store
        self._limits = limits
        self._recent: deque[tuple[Recorded, int]] = deque()
        self._recent_bytes = 0
        self._news: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def first_index(self) -> int:
        return self.store.first_index

    @property
    def last_index(self) -> int:
        return self.store.last_index

    def append(self, records: tuple[Recorded, ...], raft_index: int, size_bytes: int) -> None:
        """Records just applied, of one command of that size."""
        self.store.append(records, raft_index)
        each = size_bytes // max(1, len(records))
        for record in records:
            self._recent.append((record, each))
        self._recent_bytes += each * len(records)
        while (
            len(self._recent) > self._limits.recent_records
            or self._recent_bytes > self._limits.recent_bytes
        ) and self._recent:
            self._recent_bytes -= self._recent.popleft()[1]
        if records:
            self._wake()

    def replaced(self) -> None:
        """A snapshot took the place of everything."""
        self._recent.clear()
        self._recent_bytes = 0
        self._wake()

    def close(self) -> None:
        """Nothing more will come: nobody waits any longer."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def read(self, start: int, limit: int) -> list[Recorded]:
        """At most `limit` entries from `start` on; from the oldest kept one if `start` is older."""
        if self._recent:
            oldest = self._recent[0][0].entry.index
            if start >= oldest:
                at = start - oldest
                return [record for record, _ in islice(self._recent, at, at + limit)]
        return self.store.read(start, limit)

    async def fetch(self, start: int, limit: int) -> list[Recorded]:
        """As `read`, but what lies on disk is decoded in a worker, so that the loop goes on."""
        if not self._recent or start >= self._recent[0][0].entry.index:
            return self.read(start, limit)
        first = max(start, self.store.first_index)
        return await asyncio.to_thread(list, self.store.scan(first, first + limit))

    def digest_at(self, index: int) -> str:
        """The running digest after this index; empty when the entry is not kept."""
        found = self.read(index, 1)
        return found[0].digest if found and found[0].entry.index == index else ""

    async def wait_beyond(self, index: int, timeout_s: float) -> bool:
        """Until an entry after `index` exists; False when none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.store.last_index <= index and not self._closed:
                    if self._news is None:
                        self._news = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._news)
        except TimeoutError:
            return False
        return self.store.last_index > index

    async def watch(self, start: int) -> AsyncIterator[Recorded]:
        """Every entry from `start` on, until the node stops. Who falls behind reads from disk."""
        at = max(1, start)
        while not self._closed:
            records = await self.fetch(at, CHUNK)
            for record in records:
                yield record
            if records:
                at = records[-1].entry.index + 1
                await asyncio.sleep(0)
            else:
                await self.wait_beyond(at - 1, 60.0)
