"""`python -m tests.bench`: measure, print a table of targets reached and missed, or JSON."""

from __future__ import annotations

import importlib
import os
import platform
import sys

import click
import msgspec
from rich.console import Console
from rich.table import Table

from tests.bench.figures import Row, row

PARTS = (
    "core",
    "placement",
    "writes",
    "failures",
    "memory",
    "simulation",
    "campaign",
    "explore",
    "growth",
)
LONG_PARTS = ("fleet", "recorded")


class Report(msgspec.Struct):
    machine: str
    python: str
    cores: int
    rows: list[Row]


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--only",
    type=click.Choice(PARTS + LONG_PARTS),
    multiple=True,
    help="Measure these parts alone; may be given more than once.",
)
@click.option(
    "--long", is_flag=True, help="The fleet model of 54 days and recorded failures as well."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def bench(runs: int, only: tuple[str, ...], long: bool, output: str) -> None:
    """Measure every figure, `--runs` times each. Takes half an hour or so.

    Exits 0 whether targets are reached or not: a busy machine is no defect.
    """
    rows = []
    for part in only or (PARTS + LONG_PARTS if long else PARTS):
        click.echo(f"measuring: {part} ...", err=True)
        module = importlib.import_module(f"tests.bench.{part}")
        rows += [row(figure) for figure in module.measure(runs)]
    cores = len(os.sched_getaffinity(0))
    report = Report(platform.processor() or platform.machine(), sys.version.split()[0], cores, rows)
    if output == "json":
        click.echo(msgspec.json.encode(report))
    else:
        show(report)


def show(report: Report) -> None:
    """The table, and what it was measured on."""
    table = Table("figure", "median", "least", "most", "unit", "target", "", "work s", "note")
    for one in report.rows:
        table.add_row(
            one.figure,
            f"{one.median:,.4g}" if one.median < 1_000 else f"{one.median:,.0f}",
            f"{one.least:,.4g}" if one.least < 1_000 else f"{one.least:,.0f}",
            f"{one.most:,.4g}" if one.most < 1_000 else f"{one.most:,.0f}",
            one.unit,
            one.target,
            verdict(one),
            f"{one.reference_s:.3f}",
            one.note,
        )
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print(
        f"{report.cores} cores, Python {report.python}. "
        "'work s': seconds for a fixed piece of work, measured beside each value."
    )


def verdict(one: Row) -> str:
    """Nothing where nothing was promised."""
    if not one.target:
        return ""
    return "reached" if one.reached else "NOT REACHED"


if __name__ == "__main__":
    bench()
