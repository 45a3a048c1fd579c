"""One random history from its seed to its outcome, for campaigns over many seeds."""

from __future__ import annotations

import msgspec

from .violation import CoreViolation
from .world import World

TOTAL = "apply never raises"
LIVE = "once all is calm, whatever fits runs to its end"


class Outcome(msgspec.Struct, frozen=True):
    """`property` is empty when all held. `entries` is how far the history came."""

    seed: int
    entries: int
    digest: str
    property: str = ""
    detail: str = ""


def run(seed: int, steps: int, *, twin: bool = True, kind: type[World] = World) -> Outcome:
    """Live through `steps`, calm down, look for what is unmet. The same seed, the same outcome."""
    world: World | None = None
    broken, detail = "", ""
    try:
        world = kind(seed, twin=twin)
        world.live_through(steps)
        world.calm_down()
        unmet = world.unmet()
        if unmet:
            broken, detail = LIVE, "; ".join(unmet)
    except CoreViolation as found:
        broken, detail = found.property, found.detail
    except Exception as error:  # Whatever it is: the machine must take every entry (races.md 42).
        broken, detail = TOTAL, f"{type(error).__name__}: {error}"
    if world is None:
        return Outcome(seed, 0, "", broken, detail)
    meta = world.state.meta
    return Outcome(seed, meta.applied_index, meta.digest, broken, detail)
