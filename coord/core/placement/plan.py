"""What is asked of placement, and what it answers."""

from __future__ import annotations

import msgspec

from coord.model.entities import Gang, Hold, QueueReason
from coord.model.spec import Placing, Resources, RoleSpec


class Place(msgspec.Struct, frozen=True):
    host: str
    devices: tuple[int, ...]
    spare: bool = False
    """It was kept as a spare until now."""


class Plan(msgspec.Struct, frozen=True):
    """Places by index, and the spares to keep beside them."""

    places: tuple[Place, ...]
    spares: tuple[Hold, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no place now."""

    reason: QueueReason
    detail: str


class Wish(msgspec.Struct, frozen=True):
    """What decides whether there is a place for a gang: while room only shrinks, a wish that was
    refused stays refused, whoever has it."""

    need: Resources
    placing: Placing
    smallest: int
    whose: str = ""
    """Empty where it does not matter."""


def wish_of(gang: Gang, role: RoleSpec, smallest: int) -> Wish:
    """Of a gang that holds no places: what it holds counts as free for it alone."""
    whose = "" if role.placement == Placing() else gang.key
    return Wish(role.resources, role.placement, smallest, whose)
