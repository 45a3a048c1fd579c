"""What a node measures of itself, in the names of the field. One registry for each node."""

from __future__ import annotations

import prometheus_client.registry
from prometheus_client import Counter, Gauge, Histogram, ProcessCollector, generate_latest

from coord.raft.ports import Committed, NotCommitted, ProposeOutcome

FINE_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip


class Metrics:
    """Counters and histograms are fed as things happen, gauges when somebody looks."""

    def __init__(self) -> None:
        self.registry = prometheus_client.registry.CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.commit_s = self._histogram(
            "coord_commit_duration_seconds", "From proposing a command to its application here"
        )
        self.fsync_s = self._histogram(
            "coord_storage_fsync_duration_seconds", "Of one durable commit of the storage, sampled"
        )
        self.apply_s = self._histogram(
            "coord_apply_duration_seconds", "Of applying one command, all its entries"
        )
        self.loop_lag_s = self._histogram(
            "coord_loop_lag_seconds", "How late the event loop woke a timer: its saturation"
        )
        self.commands = self._counter(
            "coord_commands_total", "Commands proposed, by outcome", ("outcome",)
        )
        self.entries = self._counter("coord_entries_applied_total", "Log entries applied")
        self.rejected = self._counter(
            "coord_entries_rejected_total", "Entries applied without effect", ("rejection",)
        )
        self.heartbeats = self._counter(
            "coord_heartbeats_received_total", "Beats of agents connected here"
        )
        self.relay_beats = self._counter(
            "coord_relay_heartbeats_total", "Beats that counted by a relay connected here"
        )
        self.relay_refused = self._counter(
            "coord_relay_refused_total", "What a relay claimed and may not", ("cause",)
        )
        self.refused = self._counter(
            "coord_requests_refused_total", "Requests that ended without a decision", ("reason",)
        )
        self.leader_changes = self._counter(
            "coord_leader_changes_total", "Changes of leader seen by this node"
        )
        self.snapshots = self._counter("coord_snapshots_total", "Snapshots written by this node")
        self.too_slow = self._counter(
            "coord_sessions_dropped_total", "Connections ended by the server", ("code",)
        )
        self._fsync_ms = 0.0
        self._gauges: dict[str, Gauge] = {}

    def proposed(self, outcome: ProposeOutcome, seconds: float, events: int) -> None:
        """A command came to its end."""
        if isinstance(outcome, Committed):
            word = "committed"
            self.commit_s.observe(seconds)
        else:
            word = "not_committed" if isinstance(outcome, NotCommitted) else "unknown"
        self.commands.labels(word).inc()

    def storage_committed(self, fsync_ms: float) -> None:
        """The duration of the newest commit, looked at often: each value is counted once."""
        if fsync_ms != self._fsync_ms:
            self._fsync_ms = fsync_ms
            self.fsync_s.observe(fsync_ms / 1_000)

    def gauge(self, name: str, help_text: str, value: float) -> None:
        """Set a gauge, made on first use."""
        found = self._gauges.get(name)
        if found is None:
            found = self._gauges[name] = Gauge(name, help_text, registry=self.registry)
        found.set(value)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, help_text: str) -> Histogram:
        return Histogram(name, help_text, registry=self.registry, buckets=FINE_S)

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)
