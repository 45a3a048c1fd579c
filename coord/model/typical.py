"""What roles that were submitted lately ask for."""

from __future__ import annotations

import msgspec

from coord.model.spec import Resources


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one replica takes, and how much of it was seen."""

    need: Resources
    weight: int


class Typical(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which shapes of replicas jobs had: the room that placement tries to leave is for these."""

    seen: tuple[Shape, ...] = ()
    """Bounded; by weight descending, then by what they need."""
    drawn: tuple[Shape, ...] = ()
    """The heaviest of them when they were last looked at: what placement goes by."""
    since: int = 0
    """Submitted roles since then."""
