"""Housekeeping: snapshots, retention, and the invariants on a sample."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator

import msgspec
import structlog

from coord.codec import encode_recorded
from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.state import encode_state
from coord.model.entry import Recorded
from coord.node.config import NodeConfig
from coord.node.eventlog import EventLog
from coord.node.machine import NodeMachine, base_state_of
from coord.node.ports import Clock
from coord.raft.ports import ReplicatedLog
from coord.sites import reach
from coord.store.ports import StorageFull

RETAIN_STEP = 100_000
"""The most entries that one pass of retention gives up."""
REPLAY_STEP = 2_000
"""Entries replayed by the worker before it lets the loop's thread run."""
CHECK_SHARE = 50
"""Invariants may take one part in so many of the time."""
CHECKED_ON_LOOP = 1_000
"""Rows of a state small enough to be looked at in between."""
DUMPED_RECORDS = 2_000
SAMPLED_RECORDS = 50
ENTRY_OVERHEAD_BYTES = 48
"""Of an entry in the storage: key, checksum, its share of a page."""

log = structlog.get_logger()


class InvariantBroken(Exception):
    """The state says what must never be. The node stops; the last events are in a file."""


class Keeper:
    """Owned by the node. `tick` on the loop; replay and the writing of snapshots in a worker."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        replicated: ReplicatedLog,
        machine: NodeMachine,
        events: EventLog,
        clock: Clock,
        halt: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._log = replicated
        self._machine = machine
        self._events = events
        self._clock = clock
        self._halt = halt
        self._checked_index = -1
        self._check_not_before = 0.0
        self._snapshotting = asyncio.Lock()

    async def check_invariants(self) -> None:
        """Look for violations if something changed, within the share of time this may take. A
        large state is looked at in a worker, on a copy, so that the loop goes on."""
        loop = asyncio.get_running_loop()
        state = self._machine.state
        index = state.meta.applied_index
        if index == self._checked_index or loop.time() < self._check_not_before:
            return
        started = time.perf_counter()
        if len(state.tasks) + len(state.hosts) + len(state.jobs) <= CHECKED_ON_LOOP:
            found = violations(state)
        else:
            found = await asyncio.to_thread(violations, state.view())
        took_s = time.perf_counter() - started
        self._checked_index = index
        self._check_not_before = loop.time() + took_s * CHECK_SHARE
        if found:
            where = self._dump(index)
            self._halt(
                InvariantBroken(
                    f"at index {index}: {'; '.join(found)}. The last events are in {where}"
                )
            )

    async def keep(self) -> None:
        """One pass: a snapshot if one is due, then retention."""
        if self._snapshot_due():
            await self.snapshot()
        await self.retain()

    async def snapshot(self) -> int:
        """Write a snapshot now; returns the raft index it holds. One at a time."""
        async with self._snapshotting:
            index = await self._log.snapshot()
            log.info("snapshot_written", raft_index=index)
            return index

    async def retain(self) -> None:
        """Give up entries beyond what retention keeps, advancing the base state by replay."""
        first = self._events.first_index
        keep_from = min(self._keep_from(), first + RETAIN_STEP)
        if keep_from <= first:
            return
        store = self._events.store
        replayed = await asyncio.to_thread(
            _replay, store.base_state(), store.scan(first, keep_from)
        )
        reach("node.retain.replayed")
        if self._events.first_index != first:
            return  # A snapshot was installed meanwhile.
        self._machine.stage_state()
        try:
            self._events.store.retain(keep_from, replayed)
        except StorageFull as error:
            log.warning("retention_deferred", error=str(error))
            return
        log.info("entries_retired", first_index=keep_from, entries=keep_from - first)

    def _snapshot_due(self) -> bool:
        status = self._log.status()
        if status.read_only:
            return False
        journal_entries = status.last_index - status.first_index
        return self._machine.bytes_since_snapshot > 0 and (
            journal_entries > self._config.snapshot_entries
            or self._machine.bytes_since_snapshot > self._config.snapshot_bytes
        )

    def _keep_from(self) -> int:
        """The lowest index that stays."""
        retention = self._config.retention
        first, last = self._events.first_index, self._events.last_index
        kept = last - first + 1
        keep_from = first
        if retention.max_entries:
            keep_from = max(keep_from, last + 1 - retention.max_entries)
        if retention.max_bytes and kept:
            # The file does not shrink, but what is given up in it is used again.
            affordable = int(retention.max_bytes / self._mean_bytes(first, last))
            keep_from = max(keep_from, last + 1 - affordable)
        if retention.max_age_s:
            oldest_ms = self._clock.wall_ms() - retention.max_age_s * 1_000
            keep_from = max(keep_from, self._first_younger(oldest_ms))
        return min(keep_from, last + 1)

    def _mean_bytes(self, first: int, last: int) -> float:
        """Of an entry as stored, from a sample spread over all that are kept."""
        stride = max(1, (last - first + 1) // SAMPLED_RECORDS)
        sizes = [
            len(encode_recorded(record)) + ENTRY_OVERHEAD_BYTES
            for at in range(first, last + 1, stride)
            for record in self._events.read(at, 1)
        ]
        return sum(sizes) / max(1, len(sizes))

    def _first_younger(self, wall_ms: int) -> int:
        """The first entry stamped at or after this, by bisection."""
        low, high = self._events.first_index, self._events.last_index + 1
        while low < high:
            middle = (low + high) // 2
            found = self._events.read(middle, 1)
            if found and found[0].entry.wall_ms < wall_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _dump(self, index: int) -> str:
        """The newest events as JSON lines, for whoever examines a broken invariant."""
        return dump_events(
            self._config.dump_directory,
            f"node-{self._config.node}-at-{index}.jsonl",
            self._events.read(max(1, index - DUMPED_RECORDS + 1), DUMPED_RECORDS),
        )


def dump_events(directory: str, name: str, records: list[Recorded]) -> str:
    """Write records as JSON lines; returns the path, or why there is none."""
    if not directory:
        return "no file, because the node has no directory for it"
    path = os.path.join(directory, name)
    try:
        with open(path, "wb") as file:
            for record in records:
                file.write(msgspec.json.encode(record) + b"\n")
    except OSError as error:
        return f"no file ({path}: {error})"
    return path


def _replay(base: bytes, records: Iterator[Recorded]) -> bytes:
    """In a worker thread: the state after these records, from the one before them."""
    state = base_state_of(base)
    for number, record in enumerate(records):
        replayed = apply(state, record.entry)
        if replayed.digest != record.digest:
            raise InvariantBroken(
                f"replay of entry {record.entry.index} gives digest {replayed.digest}, the "
                f"record says {record.digest}"
            )
        if number % REPLAY_STEP == REPLAY_STEP - 1:
            time.sleep(0.001)
    return encode_state(state)
