"""What is remembered of a host's health, and of where failures began."""

from __future__ import annotations

import msgspec

from coord.model.entities import FailureCause


class SeenFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device's fault, as remembered of its host. `at_ms` is log time, `index` its entry."""

    kind: str
    code: int
    device: str
    at_ms: int
    index: int
    text: str = ""
    numbers: tuple[int, ...] = ()
    """Of the device, as tasks are given it; empty: not known, it may be any."""

    def may_concern(self, devices: tuple[int, ...]) -> bool:
        """Whether it may be a fault of one of these devices."""
        return not self.numbers or any(number in self.numbers for number in devices)


class SeenHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest outcome of one health check. `at_ms` is log time, `index` its entry."""

    check: str
    outcome: str
    occasion: str
    at_ms: int
    index: int
    exit_code: int = 0
    detail: str = ""


class HostEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a host's health. A repaired host starts clean (`blame.forget`)."""

    host: str
    faults: tuple[SeenFault, ...] = ()
    """The newest ones, the newest last."""
    health: tuple[SeenHealth, ...] = ()
    """By name of the check."""
    clean_since: int = 0
    """Incidents up to this number do not count against it."""
    blamed: int = 0
    """The incident after which it was last blamed; 0: never since it was clean."""
    worked_ms: int = 0
    """Time that its tasks ran, all added up, since `worked_since_ms`."""
    worked_before_ms: int = 0
    """The same in the window before that."""
    worked_since_ms: int = 0


class Attribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the failures of one generation began, among the hosts that took part in it."""

    incident: int
    job: str
    gang: str
    cause: FailureCause
    at_ms: int
    hosts: tuple[str, ...]
    """All that had a task of it, ascending."""
    tasks: tuple[int, ...]
    """How many each."""
    host: str = ""
    """Where it began; empty where that cannot be said."""
    rank: int = -1
