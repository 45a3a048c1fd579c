"""Stand-ins for the simulation of a seed, which worker processes find by name."""

from __future__ import annotations

import os
import signal
import time

from coord_sim.world.options import WorldOptions
from coord_sim.world.outcome import Outcome

HERE = "tests.sim.fake_runs"


def uneventful(seed: int, options: WorldOptions) -> Outcome:
    """Nothing breaks."""
    return Outcome(
        seed,
        options,
        climate="fair",
        digest=f"{seed:032x}",
        virtual_ms=60_000,
        entries=seed,
        faults={"server.crash": 1, **({"disk.full": 2} if seed % 2 else {})},
        counts={"elections": seed},
    )


def broken_from_seven(seed: int, options: WorldOptions) -> Outcome:
    """Every seed from 7 on breaks something; the lower ones take longer."""
    if seed < 7:
        deadline_s = time.monotonic() + 0.05
        while time.monotonic() < deadline_s:
            continue
        return uneventful(seed, options)
    return Outcome(seed, options, "", "d", broken="all is well", detail=f"seed {seed} is not")


def deadly(seed: int, options: WorldOptions) -> Outcome:
    """The process of seed 3 dies."""
    if seed == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return uneventful(seed, options)


def endless(seed: int, options: WorldOptions) -> Outcome:
    """Seed 2 never ends."""
    while seed == 2:
        continue
    return uneventful(seed, options)
