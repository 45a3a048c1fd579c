"""Entities of a fleet's care: who is out of it or on the way back, which domains are silent, and
which hosts a maintenance takes out."""

from __future__ import annotations

import enum

import msgspec


class QuarantineState(enum.StrEnum):
    """How far a host is on its way out of the fleet and back."""

    NONE = ""
    """In the fleet; only remembered to have been out."""
    PROPOSED = "proposed"
    """An operator is asked; until then it works on, but takes nothing new if it is known to be
    broken (`Evidence.proven`)."""
    QUARANTINED = "quarantined"
    """No new work; what runs there moves away."""
    TESTING = "testing"
    PROBATION = "probation"
    """It takes limited work."""
    REPAIR = "repair"
    """Out until an operator returns it."""


OUT_OF_FLEET = (QuarantineState.QUARANTINED, QuarantineState.TESTING, QuarantineState.REPAIR)


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What spoke against a host, when, and the event or decision that says so."""

    cause: str
    reason: str
    at_ms: int
    proven: bool = False
    """No work can go there before somebody has done something about it; else a suspicion."""


class Quarantine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host's way out of the fleet and back, and what is remembered of earlier ones."""

    host: str
    state: QuarantineState
    reason: str = ""
    since: int = 0
    """Log index at which it came into this state."""
    since_ms: int = 0
    evidence: tuple[Evidence, ...] = ()
    strikes_ms: tuple[int, ...] = ()
    """When it was taken out, within the memory's time; this time included."""
    due_ms: int = 0
    """Log time at which the state ends by itself; 0: it does not."""
    version: int = 0
    """Of a proposal: the log index at which it was worked out."""
    level: str = ""
    domain: str = ""
    quarantined: int = 0
    """Of a proposal: how many of this domain (empty: of the fleet) were out then."""
    allowed: int = 0
    """How many might be out without approval then; 0: this one is by a person's word."""
    actor: str = ""
    """Who asked for or approved it; empty: nobody had to."""


class Silence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure domain that fell silent as a whole, while it is not known to be dead."""

    level: str
    domain: str
    hosts: tuple[str, ...]
    """Those that are silent now."""
    members: int
    began_ms: int
    due_ms: int
    cause: str
    """The decision that opened it."""
    postponed: int = 0


class MaintainedHost(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host that is out. It is back with another boot id, or once it is undrained."""

    host: str
    boot: str
    since_ms: int


class Maintenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hosts of a domain taken out in turn (`MaintenanceRequested`)."""

    maintenance: int
    level: str
    domain: str
    limit: int
    actor: str
    reason: str
    since: int
    """Log index of the request."""
    since_ms: int
    within_ms: int = 0
    safe: bool = False
    waiting: tuple[str, ...] = ()
    out: tuple[MaintainedHost, ...] = ()
    done: tuple[str, ...] = ()
    stalled: str = ""
    """Why the next host must wait, besides the limit."""
    retry_ms: int = 0
    """Log time at which it is tried again."""
    ending: str = ""
    """`done` or `cancelled`; empty while it goes on."""
    ended_ms: int = 0
