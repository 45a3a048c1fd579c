"""How many schedules a second an exploration executes, of incidents of some sixty events."""

from __future__ import annotations

import time
from pathlib import Path

from coord_sim.explore.found import Progress
from coord_sim.explore.incident import Incident, load
from coord_sim.explore.search import search

from tests.bench.figures import Figure, reference_s

HISTORIES = Path(__file__).parent.parent / "histories"
INCIDENTS = ("recovery-host-lost-spare", "hang")
BUDGET_S = 10.0
"""CPU seconds. Executions get cheaper: many end where one was before."""


def measure(runs: int) -> list[Figure]:
    """Every strategy with its share, from nothing: to make the log ready counts as well."""
    figures = []
    for name in INCIDENTS:
        incident = load(HISTORIES / f"0.1.0-transcript-{name}.jsonl")
        told = f"explore: {name}, {len(incident.records)} events"
        figure = Figure(told, "schedules/CPU s", 1_000, False, [], [])
        figure.note = f"the first {BUDGET_S:g} CPU s; seeds 1 to {runs}"
        for seed in range(1, runs + 1):
            figure.references.append(reference_s())
            figure.values.append(schedules_per_s(incident, seed))
        figures.append(figure)
    return figures


def schedules_per_s(incident: Incident, seed: int) -> float:
    """With all strategies, within the budget."""
    told: list[Progress] = []
    began_s = time.process_time()
    for _ in search(incident, budget_s=BUDGET_S, seed=seed, on_progress=told.append):
        pass
    return told[-1].schedules / (time.process_time() - began_s)
