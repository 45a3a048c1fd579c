"""`python -m tests.bench.etcd`: coord beside etcd on the same work, in turn, and the ratios."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import time

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from tests.bench.etcd.install import Missing, install
from tests.bench.etcd.sizes import Sizes
from tests.bench.etcd.works import PARTS, Row, row, works
from tests.bench.figures import reference_s

FILES = 65_536
"""A connection each takes one here and one at its server."""
QUICK = Sizes(agents=1_000, write_s=1.5, deaths=400, single_deaths=5, kills=3, changes=3)
FAILOVERS = 20
"""In all runs together, where there are several."""


class Report(msgspec.Struct):
    machine: str
    python: str
    cores: int
    sizes: Sizes
    runs: int
    took_s: float
    reference_s: dict[str, list[float]]
    """Seconds for a fixed piece of work before each measurement, by whose it was."""
    rows: list[Row]


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--agents", type=click.IntRange(min=10), help="[default: 10000; --quick: 1000]")
@click.option("--quick", is_flag=True, help="One run of small sizes: some minutes.")
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="May be repeated.")
@click.option("--ours-only", is_flag=True, help="Without etcd: nothing is compared.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--save", type=click.Path(dir_okay=False), help="Write the JSON to a file as well.")
def bench(
    runs: int,
    agents: int | None,
    quick: bool,
    only: tuple[str, ...],
    ours_only: bool,
    output: str,
    save: str | None,
) -> None:
    """Measure both systems in turn. Exits 0 whether goals are reached or not, and 1 when what
    etcd's side needs is not to be had."""
    sizes = QUICK if quick else replace(Sizes(), kills=-(-FAILOVERS // runs))
    if agents is not None:
        sizes = replace(sizes, agents=agents)
    if not ours_only:
        try:
            install()
        except Missing as missing:
            raise click.ClickException(str(missing)) from missing
    _allow_files(FILES)
    report = measure(sizes, 1 if quick else runs, only or tuple(PARTS), not ours_only)
    encoded = msgspec.json.encode(report)
    if save:
        with open(save, "wb") as file:
            file.write(encoded)
    if output == "json":
        click.echo(encoded)
    else:
        show(report)


def measure(sizes: Sizes, runs: int, parts: tuple[str, ...], both: bool) -> Report:
    """Ours and theirs in turn, part by part, `runs` times."""
    began_s = time.monotonic()
    sides = {"coord": 0, "etcd": 1} if both else {"coord": 0}
    values: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    references: dict[str, list[float]] = {side: [] for side in sides}
    for run in range(runs):
        for part in parts:
            for side, at in sides.items():
                at_s = time.monotonic() - began_s
                _say(f"[{at_s:5.0f} s] run {run + 1} of {runs}: {part}, {side}")
                references[side].append(reference_s())
                for key, measured in PARTS[part][at](sizes).items():
                    values[side].setdefault(key, []).extend(measured)
    rows = [
        row(work, values["coord"].get(work.key, []), values.get("etcd", {}).get(work.key, []))
        for work in works(sizes)
    ]
    return Report(
        platform.processor() or platform.machine(),
        sys.version.split()[0],
        len(os.sched_getaffinity(0)),
        sizes,
        runs,
        time.monotonic() - began_s,
        references,
        [one for one in rows if one is not None],
    )


def show(report: Report) -> None:
    """The table, what it was measured on and how even the machine was."""
    table = Table("work", "coord", "", "etcd", "", "unit", "coord/etcd", "goal", "")
    for one in report.rows:
        table.add_row(
            one.name,
            _number(one.ours),
            _spread(one.ours_spread),
            _number(one.theirs),
            _spread(one.theirs_spread),
            one.unit,
            _number(one.ratio),
            one.goal,
            {None: "", True: "reached", False: "NOT REACHED"}[one.reached],
        )
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False)
    console.print(table)
    sizes = report.sizes
    console.print(
        f"{report.cores} cores, Python {report.python}; {sizes.agents:,} agents, a heartbeat every "
        f"{sizes.period_ms / 1_000:g} s; runs: {report.runs}. Medians [least..most]."
    )
    for side, seconds in report.reference_s.items():
        console.print(
            f"A fixed piece of work before each measurement of {side}: "
            f"{statistics.median(seconds):.3f} s {_spread((min(seconds), max(seconds)))}"
        )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def _spread(values: tuple[float, float] | None) -> str:
    return f"[{_number(values[0])}..{_number(values[1])}]" if values else ""


def _say(text: str) -> None:
    click.echo(text, err=True)


def _allow_files(wanted: int) -> None:
    """For us and for every process that is started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


if __name__ == "__main__":
    bench()
