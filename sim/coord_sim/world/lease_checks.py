"""What an agent may rely on who was told that its host was heard."""

from __future__ import annotations

from collections.abc import Iterable

from coord.core.state import State
from coord.model.entry import Recorded
from coord.model.events import HeartbeatsSeen, HostRegistered
from coord_sim.world.hosts import SimHost, SimHosts

LEASED = "a lease rests on a beat that stands in the log"

PROPERTIES = (LEASED,)

LOOK_S = 0.5
ROUNDING_S = 1e-6


class LeaseChecks:
    """Watches a fleet. The simulation ends with a Violation as soon as the property is broken."""

    def __init__(self, hosts: SimHosts) -> None:
        self._hosts = hosts
        self._applied = 0
        self._heard_s: dict[str, float] = {}
        """Host to when the log first said, on any node, that it was heard last."""
        hosts.kernel.call_later(LOOK_S, self._look)

    def on_applied(self, node: int, records: Iterable[Recorded], state: State) -> None:
        """Entries took effect on some node; those that did before elsewhere are passed over."""
        now_s = self._hosts.kernel.now_s()
        for record in records:
            event = record.entry.event
            if record.entry.index <= self._applied:
                continue
            self._applied = record.entry.index
            if not record.accepted:
                continue
            if isinstance(event, HeartbeatsSeen):
                for slot in event.slots:
                    self._heard_s[state.slots[slot]] = now_s
            elif isinstance(event, HostRegistered):
                self._heard_s[event.host] = now_s

    def _look(self) -> None:
        for host in self._hosts.hosts.values():
            self._look_at(host)
        self._hosts.kernel.call_later(LOOK_S, self._look)

    def _look_at(self, host: SimHost) -> None:
        channel = host.channel
        if channel is None or channel.lease_deadline is None:
            return
        sent_s = channel.lease_deadline - channel.settings.lease_ms / 1000
        heard_s = self._heard_s.get(host.name, 0.0)
        if sent_s > heard_s + ROUNDING_S:
            told = f"heard in the log until {heard_s:.3f} s, leased from {sent_s:.3f} s"
            self._hosts.violated(LEASED, f"{host.name}: {told}")
