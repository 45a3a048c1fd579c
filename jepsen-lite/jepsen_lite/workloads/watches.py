"""Watchers that follow the log across failures, beside writers of notes."""

from __future__ import annotations

import asyncio
import time

from coord.client import Client, EventsGone, NotDone, Unavailable
from coord.model.events import NoteAdded
from jepsen_lite.history.operation import Operation
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.judge.watches import (
    AS_LOGGED,
    IN_ORDER,
    TO_THE_END,
    Seen,
    WatchWriter,
    judge_watches,
)
from jepsen_lite.workloads.asking import Asker, Pace, wait_for
from jepsen_lite.workloads.judging import judge_common
from jepsen_lite.workloads.port import Context, Evidence
from jepsen_lite.workloads.quiet import POLL_S

WATCHERS = 6
"""Each begins with another server; every second one takes what its server has (`stale`)."""
WRITERS = 4
STAYS = (50, 400)
"""A watcher goes on with another server after so many entries."""
SETTLE_S = 60.0
PAUSE_S = 0.2


class Watcher:
    """Follows the log from one index on, by index, with one server after another."""

    def __init__(self, ctx: Context, number: int) -> None:
        self._ctx = ctx
        self._number = number
        self._name = f"watches/{number}"
        self._rng = ctx.rng(self._name)
        self.next_index = 1
        self._refused = 0
        """Servers in a row that have not kept what comes next: one that joined late may not."""
        self.until = 0
        """Where it may end; 0: not known yet."""

    async def follow(self) -> None:
        """Until `until` has been given. Whatever ends it is in its file."""
        path = self._ctx.directory / "watches" / f"{self._number}.jsonl"
        if self._number % 3:
            self.next_index = await self._newest() + 1
        writer = WatchWriter(path, self._name, self.next_index)
        first = self._number
        broke_off = "it failed"
        try:
            while not self._is_done():
                stale = bool(self._number % 2)
                async with self._ctx.open_client(self._name, first, stale=stale) as client:
                    await self._stay(client, writer)
                first += 1
            broke_off = ""
        except EventsGone as gone:
            broke_off = f"no server has kept what comes next: {gone}"
        except asyncio.CancelledError:
            # Cancelled with its end in view, it had its time and is judged by how far it came.
            broke_off = "" if self.until else "it was cancelled"
            raise
        finally:
            writer.close(until=self.until, broke_off=broke_off)

    def _is_done(self) -> bool:
        return bool(self.until) and self.next_index > self.until

    async def _stay(self, client: Client, writer: WatchWriter) -> None:
        """With one client, for a while. Each entry is on record before it is counted."""
        left = self._rng.randint(*STAYS)
        try:
            async for recorded in client.watch(self.next_index):
                entry = recorded.entry
                name = type(entry.event).__name__
                writer.seen(Seen(entry.index, recorded.digest, name, time.monotonic_ns()))
                self.next_index = entry.index + 1
                self._refused = 0
                left -= 1
                if self._is_done() or not left:
                    return
        except EventsGone:
            self._refused += 1
            if self._refused >= 2 * len(self._ctx.cluster.urls):
                raise
        except Unavailable:
            await wait_for(self._ctx.never, PAUSE_S)

    async def _newest(self) -> int:
        async with self._ctx.open_client(self._name, self._number) as client:
            while True:
                try:
                    return (await client.cluster()).applied_index
                except NotDone:
                    await wait_for(self._ctx.never, PAUSE_S)


class Watches:
    """See `port.Workload`."""

    name = "watches"
    line = "Watchers of the log on different servers, beside writers of notes."
    needs: frozenset[str] = frozenset()
    clients = WATCHERS + WRITERS
    makes = frozenset({IN_ORDER, AS_LOGGED, TO_THE_END})

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._following: list[asyncio.Task[None]] = []

    async def prepare(self, ctx: Context) -> None:
        """Watchers begin with the clients."""

    async def client(self, ctx: Context, number: int) -> None:
        if number < WATCHERS:
            # They outlive the clients: what came last must be given to them after healing.
            watcher = Watcher(ctx, number)
            self._watchers.append(watcher)
            self._following.append(asyncio.create_task(watcher.follow(), name=f"watcher {number}"))
            await ctx.stopping.wait()
            return
        pace = Pace(ctx, WRITERS, ctx.rng(f"{self.name}/{number}"))
        async with Asker(ctx, self.name, number) as asker:
            while await pace.turn():
                await _note(asker, f"notes-{number}")

    async def settle(self, ctx: Context) -> None:
        """Give every watcher time to come to the end of the log as it is now."""
        deadline_s = time.monotonic() + SETTLE_S
        async with Asker(ctx, self.name, self.clients) as asker:
            while time.monotonic() < deadline_s:
                operation = await _note(asker, "notes-last")
                if operation.index:
                    for watcher in self._watchers:
                        watcher.until = operation.index
                    # Who was given that one already waits for one more, which an idle cluster
                    # would not have.
                    await _note(asker, "notes-last")
                    break
                await wait_for(ctx.never, POLL_S)
        if self._following:
            _, late = await asyncio.wait(self._following, timeout=SETTLE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._following, return_exceptions=True)
        for task in self._following:
            if not task.cancelled() and task.exception() is not None:
                raise RuntimeError("a watcher failed in a way of its own") from task.exception()

    def judge(self, evidence: Evidence) -> list[Judgement]:
        return [*judge_watches(evidence.watched, evidence.log), *judge_common(evidence)]


async def _note(asker: Asker, key: str) -> Operation:
    return await asker.write(key, "note", lambda token: NoteAdded(asker.name, key, token))
