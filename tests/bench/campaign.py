"""How many whole clusters a minute `coordctl sim run` gets through on all cores."""

from __future__ import annotations

from coord_sim.world.campaign import Plan, available_processors, run_campaign
from coord_sim.world.options import WorldOptions

from tests.bench.figures import Figure, reference_s

SEEDS = 40


def measure(runs: int) -> list[Figure]:
    """The same seeds in every run, as `coordctl sim run` takes them by default."""
    workers = available_processors()
    figure = Figure("simulation: whole clusters judged", "seeds/min", None, False, [], [])
    for _ in range(runs):
        figure.references.append(reference_s())
        plan = Plan(1, SEEDS, WorldOptions(), workers, keep_going=True)
        result = run_campaign(plan)
        if result.interrupted:
            raise KeyboardInterrupt
        figure.values.append(60 * result.totals.seeds / result.wall_s)
        virtual_s = result.totals.virtual_ms / 1_000
        figure.note = (
            f"on {workers} cores; seeds of {virtual_s / result.totals.seeds:.0f} virtual s and "
            f"{result.totals.entries / result.totals.seeds:.0f} entries in the mean"
        )
        if result.failures:
            failed = ", ".join(str(outcome.seed) for outcome in result.failures)
            figure.note += f"; FAILED: {failed}"
    return [figure]
