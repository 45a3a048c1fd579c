"""Recorded incidents to take apart: what small fleets lived through, told as logs.

They are recorded with the product whole. With a guard taken out the same entries are applied again:
what the log then says is what a product without the guard would have written.
"""

from __future__ import annotations

import functools

from coord import __version__
from coord.core.machine import apply
from coord.core.state import encode_state, new_state
from coord.model.entry import Entry
from coord.model.incident import IncidentHeader
from coord_sim.core_world import World
from coord_sim.explore.incident import Incident, replayed

INCIDENTS = (0, 1, 5)
STEPS = 45
FAULT_RATE = 0.1
"""One thing goes wrong now and then, and the rest is recovery."""


@functools.cache
def recorded(number: int) -> tuple[Entry, ...]:
    """The entries of one incident. Call it while the product is whole."""
    world = World(number, twin=False)
    world.fault_rate = FAULT_RATE
    world.live_through(STEPS)
    return tuple(world.driver.entries)


def rewritten(number: int) -> Incident:
    """The incident as the product of this moment writes it."""
    state = new_state()
    records = [apply(state, entry) for entry in recorded(number)]
    header = IncidentHeader("c", 1, coord_version=__version__, logic_version=1)
    return replayed(header, encode_state(new_state()), records, f"incident {number}")
