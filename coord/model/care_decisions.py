"""Decisions about hosts that leave the fleet and come back, and about silent domains."""

from __future__ import annotations

from coord.model.decision import Decision


class QuarantineProposed(Decision, frozen=True):
    """The evidence asks for a quarantine beyond the share that needs no approval: of the fleet, or
    of one of the host's domains. An operator answers to this `version` (`QuarantineAnswered`)."""

    host: str
    reason: str
    version: int
    level: str = ""
    """Of the domain whose share is used up; empty: the fleet's."""
    domain: str = ""
    quarantined: int = 0
    """Hosts there that are in quarantine."""
    allowed: int = 0


class QuarantineDropped(Decision, frozen=True):
    """A proposal came to nothing."""

    host: str
    why: str


class HostTesting(Decision, frozen=True):
    """Nothing runs on the quarantined host any more; its agent is asked to test it."""

    host: str


class HostOnProbation(Decision, frozen=True):
    """The test passed. Until `until_ms` of log time it has at most so many tasks at once."""

    host: str
    until_ms: int
    tasks: int


class HostOutForRepair(Decision, frozen=True):
    """Only an operator returns it."""

    host: str
    reason: str


class HostReleased(Decision, frozen=True):
    """An operator ended the quarantine. `clean`: nothing is held against the host any more."""

    host: str
    clean: bool = False


class DomainSilent(Decision, frozen=True):
    """So much of one failure domain fell silent that this is one incident of the domain: none of
    its hosts is judged by itself."""

    level: str
    domain: str
    hosts: tuple[str, ...]
    members: int
    """Hosts of the domain that lived when it fell silent."""
    until_ms: int
    """Log time at which those that stay silent are lost."""


class DomainHeard(Decision, frozen=True):
    """Enough of the domain was heard again; who is still silent is judged alone."""

    level: str
    domain: str
    silent: tuple[str, ...] = ()


class DomainLost(Decision, frozen=True):
    """The domain was not heard again in time: these hosts are lost, all at once."""

    level: str
    domain: str
    hosts: tuple[str, ...]


class MovesDue(Decision, frozen=True):
    """No checkpoint allowed the move before its deadline: what runs on the host stops now."""

    host: str


class MaintenanceStarted(Decision, frozen=True):
    """These hosts will be taken out, in this order, at most `limit` at a time."""

    maintenance: int
    level: str
    domain: str
    hosts: tuple[str, ...]
    limit: int


class MaintenanceHostOut(Decision, frozen=True):
    """The maintenance takes this host out."""

    maintenance: int
    host: str


class MaintenanceHostBack(Decision, frozen=True):
    """The maintenance has done with this host: the next may go."""

    maintenance: int
    host: str
    why: str


class MaintenanceStalled(Decision, frozen=True):
    """The next host must wait, for a running gang would find no place without it."""

    maintenance: int
    host: str
    why: str


class MaintenanceEnded(Decision, frozen=True):
    """`ending` is `done` or `cancelled`."""

    maintenance: int
    ending: str
