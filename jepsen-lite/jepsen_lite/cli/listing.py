"""`coordctl faults list`: workloads and nemeses, and what this machine can do of them."""

from __future__ import annotations

from typing import Protocol

import click
import msgspec

from coord.cli.output import Column, print_json, print_lines, print_table
from jepsen_lite.nemeses.catalogue import NEMESES
from jepsen_lite.run.abilities import Abilities, abilities_here, network_here
from jepsen_lite.workloads.catalogue import WORKLOADS


class Row(msgspec.Struct, frozen=True):
    """One kind. `lacking` says why it cannot be had here; empty when it can."""

    name: str
    needs: list[str]
    lacking: list[str]
    line: str


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    workloads: list[Row]
    nemeses: list[Row]
    network: str


@click.command(name="list")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def list_(output: str) -> None:
    """Every workload and nemesis in a line, what it needs, and whether this machine has it."""
    abilities = abilities_here()
    document = Document(
        [_row(kind(), abilities) for kind in WORKLOADS.values()],
        [_row(nemesis, abilities) for nemesis in NEMESES.values()],
        network_here(),
    )
    if output == "json":
        print_json(document)
        return
    _print("WORKLOAD", document.workloads)
    click.echo()
    _print("NEMESIS", document.nemeses)
    click.echo()
    print_lines([f"Network: {document.network}."])
    for row in (*document.workloads, *document.nemeses):
        print_lines(f"{row.name} is not possible here: {reason}." for reason in row.lacking)


class _Kind(Protocol):
    """What workloads and nemeses have in common."""

    @property
    def name(self) -> str: ...

    @property
    def line(self) -> str: ...

    @property
    def needs(self) -> frozenset[str]: ...


def _row(kind: _Kind, abilities: Abilities) -> Row:
    return Row(kind.name, sorted(kind.needs), abilities.against(kind.needs), kind.line)


def _print(title: str, rows: list[Row]) -> None:
    columns = [Column(title), Column("NEEDS"), Column("HERE", status=True), Column("WHAT")]
    shown = [
        (row.name, ", ".join(row.needs) or "-", "no" if row.lacking else "yes", row.line)
        for row in rows
    ]
    print_table(columns, shown)
