"""The state machine as the replicated log drives it: core, store, and who waits for an entry."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import structlog

from coord.codec import decode_batch
from coord.core.machine import apply_batch
from coord.core.state import State, decode_state, state_from_rows, take_changes
from coord.model.entry import Recorded
from coord.node.eventlog import EventLog
from coord.node.metrics import Metrics
from coord.store.ports import REJOIN, EventStore, StorageCorrupt

log = structlog.get_logger()

Applied = Callable[[tuple[Recorded, ...], State], None]


class NodeMachine:
    """`on_applied(records, state)` is called after each command, before anyone else runs."""

    def __init__(
        self,
        store: EventStore,
        events: EventLog,
        metrics: Metrics,
        on_applied: Applied,
        on_installed: Callable[[], None],
    ) -> None:
        self._store = store
        self._events = events
        self._metrics = metrics
        self._on_applied = on_applied
        self._on_installed = on_installed
        self.raft_index, self.state = _load(store)
        self.bytes_since_snapshot = 0
        self.event_s = 0.0
        """What applying one event takes, as a sliding mean."""
        self._staged_index = self.raft_index

    def applied_raft_index(self) -> int:
        return self.raft_index

    def apply(self, raft_index: int, term: int, payload: bytes) -> None:
        started = time.perf_counter()
        batch = decode_batch(payload)
        records = apply_batch(self.state, batch)
        self._events.append(records, raft_index, len(payload))
        self.raft_index = raft_index
        self.bytes_since_snapshot += len(payload)
        self._on_applied(records, self.state)
        self._measured(time.perf_counter() - started, len(records))
        self._metrics.entries.inc(len(records))

    def _measured(self, took_s: float, events: int) -> None:
        self._metrics.apply_s.observe(took_s)
        if events:
            weight = min(1.0, events / 256)
            self.event_s += weight * (took_s / events - self.event_s)

    def stage_state(self) -> None:
        """Stage the rows changed since the last call; the next commit makes them durable."""
        if self._staged_index != self.raft_index:
            self._store.put_state(take_changes(self.state))
            self._staged_index = self.raft_index

    def write_snapshot(self) -> Callable[[str], None]:
        self.stage_state()
        write = self._store.begin_snapshot()
        self.bytes_since_snapshot = 0
        self._metrics.snapshots.inc()
        return write

    def install_snapshot(self, path: str, raft_index: int) -> None:
        before = self.state.meta.applied_index
        self._store.install_snapshot(path)
        self.raft_index, self.state = _load(self._store)
        self._staged_index = self.raft_index
        if self.raft_index != raft_index:
            raise StorageCorrupt(
                f"{path} was offered as of raft index {raft_index}, but holds the state as of "
                f"{self.raft_index}"
            )
        log.info("snapshot_installed", before=before, applied_index=self.state.meta.applied_index)
        self._events.replaced()
        self._on_installed()


def _load(store: EventStore) -> tuple[int, State]:
    raft_index, rows = store.load_state()
    try:
        return raft_index, state_from_rows(rows)
    except (msgspec.DecodeError, KeyError) as error:
        raise StorageCorrupt(
            f"the stored state as of raft index {raft_index} cannot be read: {error}; stop this "
            f"server and {REJOIN}"
        ) from error


def base_state_of(encoded: bytes) -> State:
    """What a store keeps as the state before its first entry; raises StorageCorrupt."""
    try:
        return decode_state(encoded)
    except (msgspec.DecodeError, KeyError) as error:
        raise StorageCorrupt(
            f"the stored state before the first entry cannot be read: {error}; stop this server "
            f"and {REJOIN}"
        ) from error
