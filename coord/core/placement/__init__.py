"""Where a gang goes: all of it or nothing.

`rooms_of` counts what is free, `place` takes places there for one gang, `refusal` says why it found
none. Integer arithmetic and total order throughout, so that the same fleet and the same wish always
give the same places, whatever order they arrived in.
"""

from coord.core.placement.beside import keep_beside
from coord.core.placement.explain import explain, explain_job
from coord.core.placement.fragmentation import remember_shapes
from coord.core.placement.free import rooms_of
from coord.core.placement.never import never_fits
from coord.core.placement.placing import place
from coord.core.placement.plan import Place, Plan, Refusal, Wish, wish_of
from coord.core.placement.refusal import refusal
from coord.core.placement.room import Room
from coord.core.placement.rooms import Rooms

__all__ = [
    "Place",
    "Plan",
    "Refusal",
    "Room",
    "Rooms",
    "Wish",
    "explain",
    "explain_job",
    "keep_beside",
    "never_fits",
    "place",
    "refusal",
    "remember_shapes",
    "rooms_of",
    "wish_of",
]
