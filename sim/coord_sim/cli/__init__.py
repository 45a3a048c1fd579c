"""`coordctl sim`: the group, and where each of its commands is found once it is called."""

from __future__ import annotations

import click

from coord.cli.lazy import Lazy, LazyGroup

SUBCOMMANDS: dict[str, Lazy] = {
    "run": Lazy("coord_sim.cli.run:run", "Run whole clusters, one for each seed, under faults."),
    "explore": Lazy("coord_sim.cli.explore:explore", "Take an incident apart: find its races."),
    "fleet": Lazy("coord_sim.cli.fleet:fleet", "Model a large fleet over weeks; compare policies."),
    "mutants": Lazy("coord_sim.cli.mutants:mutants", "Remove guards by name; see what finds it."),
}


@click.group(cls=LazyGroup, lazy=SUBCOMMANDS)
def sim() -> None:
    """Simulate: run whole clusters on virtual time, take incidents apart, model fleets.

    Everything comes from a seed, so whatever is found can be repeated to the byte.
    """
