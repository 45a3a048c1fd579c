"""`coordctl faults`: the group, and where each of its commands is found once it is called."""

from __future__ import annotations

import click

from coord.cli.lazy import Lazy, LazyGroup

SUBCOMMANDS: dict[str, Lazy] = {
    "run": Lazy("jepsen_lite.cli.run:run", "Load a cluster, break things, heal, and judge."),
    "list": Lazy("jepsen_lite.cli.listing:list_", "Every workload and nemesis, and what it needs."),
    "judge": Lazy("jepsen_lite.cli.judge:judge", "Judge a run, or somebody's history, again."),
    "broken": Lazy("jepsen_lite.cli.broken:broken", "Break the product; see that it is noticed."),
}


@click.group(cls=LazyGroup, lazy=SUBCOMMANDS)
def faults() -> None:
    """Break a cluster of real processes while clients work, and judge what they saw.

    Servers and agents run as processes of their own, on disks and a network that fail on purpose.
    Everything that is started ends with the command, whatever becomes of it.
    """
