"""Every fault at every index, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from coord.model.events import ClockAdvanced, HeartbeatsSeen, LeaderElected
from coord_sim.explore.schedule import (
    AgentCrash,
    AnyChange,
    ClockJump,
    Drop,
    Duplicate,
    InFlight,
    LeaderChange,
    LoseHosts,
    Pause,
    SnapshotRestore,
)

from .base import Strategy

HOUR_MS = 3_600_000
HOSTS_LIMIT = 4
"""Hosts a position that are paused or lost one at a time, in turn, where a fleet has more."""


class SingleFaults(Strategy):
    """In random order, so that a short budget sees every kind and every part of the log."""

    name = "single faults"
    share = 0.25

    def choose(self) -> Iterator[tuple[AnyChange, ...]]:
        changes = list(self.faults())
        self.all = len(changes)
        self.rng.shuffle(changes)
        for change in changes:
            yield (change,)

    all = 0

    def faults(self) -> Iterator[AnyChange]:
        """Position by position."""
        for position in range(self.explored.recording.size):
            yield from self.at(position)

    def at(self, position: int) -> Iterator[AnyChange]:
        """Every fault at this position."""
        yield from self._messages(position)
        yield from self._servers(position)
        yield from self._hosts(position)

    def _messages(self, position: int) -> Iterator[AnyChange]:
        recording = self.explored.recording
        event = recording.records[position].entry.event
        if not isinstance(event, LeaderElected):
            yield Drop(position)
        yield Duplicate(position, position)
        for later in (position + 2, position + 7):
            if later < recording.size and not isinstance(event, ClockAdvanced):
                yield Duplicate(position, later)

    def _servers(self, position: int) -> Iterator[AnyChange]:
        event = self.explored.recording.records[position].entry.event
        lease_ms = self.explored.baseline.end.state.meta.settings.lease_ms
        yield SnapshotRestore(position)
        yield LeaderChange(position)
        if not isinstance(event, ClockAdvanced | HeartbeatsSeen | LeaderElected):
            yield LeaderChange(position, InFlight.LOST)
            yield LeaderChange(position, InFlight.COMMITTED_UNANSWERED)
        for ms in (HOUR_MS, -HOUR_MS, lease_ms):
            yield ClockJump(position, ms)

    def _hosts(self, position: int) -> Iterator[AnyChange]:
        explored = self.explored
        settings = explored.baseline.end.state.meta.settings
        concerned = self._concerned(position)
        for host in concerned:
            yield AgentCrash(host, position, keeps_unsent=True)
            yield AgentCrash(host, position, keeps_unsent=False)
        everybody = sorted(explored.baseline.end.agents)
        turn = position % max(len(everybody), 1)
        others = [*everybody[turn:], *everybody[:turn]]
        chosen = list(dict.fromkeys([*concerned, *others]))[:HOSTS_LIMIT]
        for host in chosen:
            yield Pause(host, position, settings.lease_ms + settings.fence_ms)
            yield Pause(host, position, settings.suspect_ms)
            yield LoseHosts((host,), position)
        if len(others) > 1:
            yield LoseHosts(tuple(sorted(others[:2])), position)
        if len(others) > 2:
            yield LoseHosts(tuple(everybody), position)

    def _concerned(self, position: int) -> list[str]:
        """Hosts that the event is about, or whose plan it may have changed."""
        event = self.explored.recording.records[position].entry.event
        rows = self.explored.baseline.changed
        written = [key for table, key in rows[position] if table == "hosts"]
        before = rows[position - 1] if position else []
        written += [key for table, key in before if table == "hosts"]
        host = getattr(event, "host", "")
        return list(dict.fromkeys([host, *written] if host else written))[:HOSTS_LIMIT]

    def bound(self, finished: bool) -> str:
        if finished:
            return f"single faults: all {self.tried} tried"
        return f"single faults: {self.tried} of {self.all} tried"
