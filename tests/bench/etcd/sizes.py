"""How much of each kind of work one run does."""

from __future__ import annotations

import msgspec

from coord.model.settings import Settings

NEVER_SHARE_PERMILLE = 1_000
"""No share of a fleet is more: verdicts are never frozen, as etcd freezes none."""


class Sizes(msgspec.Struct, frozen=True):
    """The same for both systems."""

    agents: int = 10_000
    period_ms: int = 3_300
    """Between two heartbeats of an agent."""
    lease_ms: int = 10_000
    windows: int = 2
    """Heartbeat periods that one value is measured over."""
    writers: tuple[int, ...] = (1, 16, 64, 256)
    write_s: float = 2.5
    packers: int = 16
    """Connections that send events packed, `packed` in a message, each waiting for its answers."""
    packed: int = 100
    deaths: int = 5_000
    """At once; at most half of the agents."""
    single_deaths: int = 20
    kills: int = 4
    """Of the leader, in one run."""
    held: int = 1_000
    """Agents that live through the kills."""
    receivers: int = 1_000
    """Agents that a change goes to."""
    changes: int = 5

    def settings(self) -> Settings:
        """What our servers are started with."""
        return Settings(
            lease_ms=self.lease_ms,
            heartbeat_ms=self.period_ms,
            suspect_ms=(self.period_ms + self.lease_ms) // 2,
            breaker_share_permille=NEVER_SHARE_PERMILLE,
        )

    @property
    def window_s(self) -> float:
        return self.windows * self.period_ms / 1_000

    @property
    def dying(self) -> int:
        return min(self.deaths, self.agents // 2)
