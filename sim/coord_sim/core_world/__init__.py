"""Random histories over the pure core: a fleet that obeys, and all that goes wrong with it.

`World(seed)` holds machines, clients, a leader and its clock; `live_through` lets things happen
and checks at every entry, `calm_down` ends the faults, `unmet` names what should be done by then.
`run(seed, steps)` does all of it and returns an `Outcome` instead of raising.
"""

from .driver import Driver, travelled
from .hostile import hostile_event
from .machines import Machine, Process
from .run import Outcome, run
from .violation import CoreViolation
from .world import SETTINGS, World

__all__ = [
    "SETTINGS",
    "CoreViolation",
    "Driver",
    "Machine",
    "Outcome",
    "Process",
    "World",
    "hostile_event",
    "run",
    "travelled",
]
