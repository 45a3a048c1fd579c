"""How fast virtual time passes in a simulated cluster: three servers, ten agents, under load."""

from __future__ import annotations

import time

from coord_sim.kernel import Trace
from coord_sim.world.options import ALL, NONE, WorldOptions
from coord_sim.world.run import climate_of, logs_to, no_collector
from coord_sim.world.scratch import scratch_directory
from coord_sim.world.world import World

from tests.bench.figures import Figure, reference_s

NODES, HOSTS, JOBS = 3, 10, 6
SECONDS = 120
"""Virtual seconds of load in a run."""
GOAL = 300


def measure(runs: int) -> list[Figure]:
    """Without misfortunes, and with those that seeds draw; every run has a seed of its own."""
    calm = Figure("simulation: no faults", "virtual s/CPU s", GOAL, False, [], [])
    swarm = Figure("simulation: faults as drawn", "virtual s/CPU s", GOAL, False, [], [])
    calm.note = f"{NODES} servers, {HOSTS} agents, {JOBS} jobs; seeds 1 to {runs}"
    swarm.note = "the same seeds with their faults"
    for seed in range(1, runs + 1):
        for figure, faults in ((calm, NONE), (swarm, ALL)):
            options = WorldOptions(
                nodes=NODES, hosts=HOSTS, jobs=JOBS, seconds=SECONDS, faults=(faults,)
            )
            figure.references.append(reference_s())
            figure.values.append(virtual_s_per_cpu_s(seed, options))
    return [calm, swarm]


def virtual_s_per_cpu_s(seed: int, options: WorldOptions) -> float:
    """Of the load alone: what comes after it, until all is quiet, passes faster."""
    trace = LoadTrace()
    with scratch_directory(seed) as directory, logs_to(trace, directory), no_collector():
        world = World(seed, options, climate_of(seed, options), directory, trace)
        try:
            world.live()
        finally:
            world.close()
    return options.seconds / trace.load_cpu_s


class LoadTrace(Trace):
    """Takes the CPU time from the start of the cluster to the moment at which all is healed."""

    def __init__(self) -> None:
        super().__init__(keep=1)
        self._begun_s = time.process_time()
        self.load_cpu_s = 0.0

    def note(self, kind: str, **facts: object) -> None:
        if kind == "healing":
            self.load_cpu_s = time.process_time() - self._begun_s
        super().note(kind, **facts)
