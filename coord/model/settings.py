"""Cluster-wide settings. They enter the log once (`ClusterConfigured`), so that replay uses the
same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from coord.model.canonical import canonical

LONGEST_MS = 1_000_000_000
"""No duration is longer (11 days), so that sums of them never leave 64 bits."""


class QuarantineSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How hosts leave the fleet on evidence and come back. (`core/care/quarantine.py`.)

    Without a person's approval at most `share_permille` of the fleet and `domain_share_permille` of
    any one failure domain may be in quarantine, but always `free_hosts` of either.
    """

    share_permille: int = 100
    domain_share_permille: int = 500
    free_hosts: int = 2
    evidence_ms: int = 3_600_000
    """After which evidence is too old to be acted upon: a proposal of that age lapses."""
    drain_ms: int = 600_000
    """By when what runs on a quarantined host is moved, if no checkpoint allows it before."""
    test_ms: int = 900_000
    """By when its agent must have told how the test of an empty host went."""
    probation_ms: int = 600_000
    """Limited work after a passed test; twice as long for each earlier quarantine remembered."""
    probation_tasks: int = 1
    """Tasks that a host on probation may have at once."""
    probation_gang: int = 8
    """The largest gang, in tasks, that may use a host on probation, and its job must be
    preemptible: what the host may still break is cheap. 0: any work."""
    memory_ms: int = 604_800_000
    """For how long a quarantine counts against a host."""
    repair_at: int = 3
    """The how-manieth remembered quarantine sends a host to repair without a test."""

    def __post_init__(self) -> None:
        canonical(self)


class SilenceSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Mass silence of one failure domain: at least `breaker_min_hosts` and more than
    `share_permille` of its hosts. They are lost together after another `grace_ms`."""

    share_permille: int = 500
    grace_ms: int = 30_000

    def __post_init__(self) -> None:
        canonical(self)


class EvidenceSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How failures are traced to ranks, programs and hosts. (`core/causes/`)

    A host is blamed when it was where failures began at least `blame_least` times and by chance,
    with as many hosts as were looked at, that would happen to one fleet in `blame_one_in`.
    """

    fault_window_ms: int = 60_000
    """Between a device's fault and an exit on its host that it explains."""
    on_fault: int = 2
    """After a device's fault that needs a reset or more: 1 tell, 2 quarantine the host."""
    on_blame: int = 1
    """When a host is blamed: 1 tell, 2 quarantine it."""
    blame_least: int = 3
    blame_one_in: int = 20
    memory_ms: int = 604_800_000
    """For how long an incident counts."""
    slow_permille: int = 1_200
    """A rank is slow that takes so much of its gang's median time for a step..."""
    slow_steps: int = 32
    """...over so many steps..."""
    slow_times: int = 3
    """...and that so many times in a row."""

    def __post_init__(self) -> None:
        canonical(self)


class IncidentSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many incidents are remembered one by one; of older ones only what each cause cost."""

    kept: int = 1_000

    def __post_init__(self) -> None:
        canonical(self)


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of single concerns: `Settings` itself has no room for more (`canonical`)."""

    quarantine: QuarantineSettings = QuarantineSettings()
    silence: SilenceSettings = SilenceSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    incidents: IncidentSettings = IncidentSettings()

    def __post_init__(self) -> None:
        canonical(self)


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
    policy: Policy = Policy()

    def __post_init__(self) -> None:
        canonical(self)

    def problems(self) -> list[str]:
        """What is wrong with these settings, as sentences; empty when they may be used."""
        found = []
        for name, value in numbers_of(self):
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


def numbers_of(settings: msgspec.Struct, within: str = "") -> Iterator[tuple[str, int]]:
    """Every single setting by its path, such as `policy.silence.grace_ms`, with its value."""
    for name in settings.__struct_fields__:
        value: Any = getattr(settings, name)
        if isinstance(value, msgspec.Struct):
            yield from numbers_of(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def with_numbers(settings: Any, numbers: dict[str, int]) -> Any:
    """The settings with some replaced, given by their paths. Raises KeyError for an unknown one."""
    below: dict[str, dict[str, int]] = {}
    plain: dict[str, Any] = {}
    for path, value in numbers.items():
        name, dot, rest = path.partition(".")
        known = name in settings.__struct_fields__
        if not known or bool(dot) != isinstance(getattr(settings, name), msgspec.Struct):
            raise KeyError(path)
        if dot:
            below.setdefault(name, {})[rest] = value
        else:
            plain[name] = value
    for name, inside in below.items():
        plain[name] = with_numbers(getattr(settings, name), inside)
    return msgspec.structs.replace(settings, **plain)
