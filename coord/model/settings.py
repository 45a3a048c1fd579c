"""Cluster-wide settings. They enter the log once (`ClusterConfigured`), so that replay uses the
same."""

import msgspec

from coord.model.canonical import canonical

LONGEST_MS = 1_000_000_000
"""No duration is longer (11 days), so that sums of them never leave 64 bits."""


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every duration is in milliseconds of log time; shares are in thousandths.

    A host is suspected after `suspect_ms` of silence and lost after `lease_ms`. Its agent ends
    `exclusive` tasks by itself within `lease_ms` of its last acknowledged beat, so that after a
    further `fence_ms` the host counts as fenced. When at least `breaker_min_hosts` hosts and more
    than `breaker_share_permille` of the fleet would be lost within `breaker_window_ms`, no host is
    declared lost until enough of them return or an operator allows it.
    """

    lease_ms: int = 6_000
    heartbeat_ms: int = 1_000
    suspect_ms: int = 3_000
    fence_ms: int = 2_000
    max_step_ms: int = 1_000
    """The most that log time may advance from one entry to the next."""
    breaker_share_permille: int = 500
    breaker_min_hosts: int = 3
    breaker_window_ms: int = 6_000
    launch_timeout_ms: int = 60_000
    """From placement to `TaskStarted`; after that the launch counts as failed."""
    unkillable_ms: int = 10_000
    """From the end of a task's grace to its being called unkillable, if its agent is silent."""
    hold_ms: int = 600_000
    """How long a started gang keeps its place while it cannot run."""
    request_window: int = 256
    """Outcomes remembered per client for exactly-once requests."""
    request_clients: int = 4_096
    """Clients whose outcomes are remembered; the one idle for longest is forgotten first."""
    finished_jobs_kept: int = 1_000
    """Ended jobs that stay visible; the one that ended first is forgotten first."""

    def __post_init__(self) -> None:
        canonical(self)

    def problems(self) -> list[str]:
        """What is wrong with these settings, as sentences; empty when they may be used."""
        found = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 1:
                found.append(f"{name} is {value}; it must be at least 1")
            if value > LONGEST_MS:
                found.append(f"{name} is {value}; it must be at most {LONGEST_MS}")
        if not self.heartbeat_ms < self.suspect_ms < self.lease_ms:
            found.append(
                f"heartbeat_ms {self.heartbeat_ms}, suspect_ms {self.suspect_ms} and lease_ms "
                f"{self.lease_ms} must grow in this order"
            )
        return found
