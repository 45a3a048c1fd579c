"""How long a fleet of 2,048 hosts of 8 devices takes for 54 days: one run, of some minutes."""

from __future__ import annotations

import time

from coord_sim.fleet.model import FleetModel
from coord_sim.fleet.policy import Policy

from tests.bench.figures import Figure, reference_s

HOSTS, GPUS, DAYS = 2_048, 8, 54.0
GOAL_S = 300


def measure(runs: int) -> list[Figure]:
    """Once, however many runs are asked for."""
    name = f"fleet model: {HOSTS:,} hosts of {GPUS}, {DAYS:g} days"
    figure = Figure(name, "s", GOAL_S, True, [], [])
    figure.references.append(reference_s())
    began_s = time.perf_counter()
    model = FleetModel(Policy(), hosts=HOSTS, gpus=GPUS, days=DAYS, seed=1)
    model.run()
    figure.values.append(time.perf_counter() - began_s)
    result = model.result()
    figure.note = f"one run; {result.entries:,} entries, {result.restarts:,} restarts"
    if result.job_failed:
        figure.note += f"; the job failed: {result.job_failed}"
    return [figure]
