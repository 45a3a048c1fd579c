"""Every breakage, by name, each with the run that shows it soonest."""

from __future__ import annotations

from jepsen_lite.broken.breakage import Breakage
from jepsen_lite.broken.of_core import CORE
from jepsen_lite.broken.of_guard import GUARD
from jepsen_lite.broken.of_machines import MACHINES
from jepsen_lite.broken.of_servers import SERVERS

ALL: tuple[Breakage, ...] = (*SERVERS, *GUARD, *CORE, *MACHINES)
BREAKAGES: dict[str, Breakage] = {one.name: one for one in ALL}
if len(BREAKAGES) != len(ALL):
    raise ValueError("two breakages of one name")


def breakages_named(names: tuple[str, ...]) -> tuple[Breakage, ...]:
    """Those of these names; without names, all. Raises ValueError for one that is none."""
    for name in names:
        if name not in BREAKAGES:
            raise ValueError(f"there is no mutation {name!r}; there are {', '.join(BREAKAGES)}")
    return tuple(BREAKAGES[name] for name in dict.fromkeys(names)) or ALL
