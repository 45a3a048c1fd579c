"""Where a gang goes: all of it or nothing.

`rooms_of` counts what is free, `place` takes places there for one gang, `refusal` says why it found
none. Integer arithmetic and total order throughout, so that the same fleet and the same wish always
give the same places, whatever order they arrived in.
"""

from coord.core.placement.plain import place, refusal
from coord.core.placement.plan import Place, Plan, Refusal, Wish, wish_of
from coord.core.placement.rooms import Room, Rooms, rooms_of

__all__ = [
    "Place",
    "Plan",
    "Refusal",
    "Room",
    "Rooms",
    "Wish",
    "place",
    "refusal",
    "rooms_of",
    "wish_of",
]
