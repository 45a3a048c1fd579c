"""What a relay measures of itself. One registry for each."""

from __future__ import annotations

import prometheus_client.registry
from prometheus_client import Counter, Gauge, ProcessCollector, generate_latest


class Metrics:
    """Counters are fed as things happen, gauges when somebody looks."""

    def __init__(self) -> None:
        self.registry = prometheus_client.registry.CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.beats = self._counter("coord_relay_beats_received_total", "Beats of agents")
        self.beats_told = self._counter(
            "coord_relay_beats_acknowledged_total", "Beats whose agent was told that they count"
        )
        self.frames = self._counter(
            "coord_relay_frames_total", "Frames of heartbeats, by what became of them", "outcome"
        )
        self.refused = self._counter(
            "coord_relay_refused_total", "Reports and beats that were not taken", "reason"
        )
        self.dropped = self._counter(
            "coord_relay_sessions_dropped_total", "Conversations that the relay ended", "code"
        )
        self.upstreams = self._counter(
            "coord_relay_upstream_connections_total", "Connections to a server that were made"
        )
        self.pauses = self._counter(
            "coord_relay_pauses_total", "Times this process stood still; beats then do not count"
        )
        self._gauges: dict[str, Gauge] = {}

    def gauge(self, name: str, help_text: str, value: float) -> None:
        """Set a gauge, made on first use."""
        found = self._gauges.get(name)
        if found is None:
            found = self._gauges[name] = Gauge(name, help_text, registry=self.registry)
        found.set(value)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)
