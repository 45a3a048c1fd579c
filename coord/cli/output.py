"""What commands print: a table for people or one JSON document for programs, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

STATUS_COLOURS = {
    "up": "green",
    "running": "green",
    "completed": "green",
    "succeeded": "green",
    "leader": "green",
    "resolved": "green",
    "suspect": "yellow",
    "queued": "yellow",
    "waiting": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "placed": "yellow",
    "draining": "yellow",
    "open": "yellow",
    "lost": "red",
    "failed": "red",
    "stopped": "red",
    "unkillable": "red",
    "quarantined": "red",
    "away": "red",
}
UNLIMITED_WIDTH = 10_000


class Column(NamedTuple):
    """`right` for numbers. `status` paints known words of state on a terminal."""

    title: str
    right: bool = False
    status: bool = False


def print_json(value: Any) -> None:
    """One indented document. Structs are written as the API writes them."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_json_line(value: Any) -> None:
    """One line, written at once, for whoever follows."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], empty: str = "none"
) -> None:
    """Rows in aligned columns. Into a pipe nothing is wrapped or cut off.

    `empty` is said on stderr when there are no rows, so that a pipe reads nothing.
    """
    found = list(rows)
    if not found:
        click.echo(empty, err=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if terminal else UNLIMITED_WIDTH)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify: Any = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, overflow="fold", no_wrap=column.right)
    for row in found:
        table.add_row(
            *(
                Text(cell, style=_style(cell) if column.status else "")
                for column, cell in zip(columns, row, strict=True)
            )
        )
    if terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _style(cell: str) -> str:
    return STATUS_COLOURS.get(cell.partition(" ")[0].rstrip(","), "")


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """`name   value` lines, values aligned; pairs without a value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {_painted(value)}")


def _painted(value: str) -> str:
    colour = _style(value)
    return click.style(value, fg=colour) if colour and sys.stdout.isatty() else value


def show(output: str, value: Any, table: Callable[[Any], None]) -> None:
    """The value as `-o` asks: as JSON, or by the function that prints its table."""
    if output == "json":
        print_json(value)
    else:
        table(value)
