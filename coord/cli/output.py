"""What commands print: a table for people or one JSON document for programs, on stdout."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from coord.cli.wrapping import Piece, colour_wanted, terminal_width, wrapped, wrapped_line

STATUS_COLOURS = {
    "up": "green",
    "running": "green",
    "completed": "green",
    "succeeded": "green",
    "leader": "green",
    "resolved": "green",
    "holds": "green",
    "linearizable": "green",
    "unknown": "yellow",
    "skipped": "yellow",
    "violation": "red",
    "broke": "red",
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
UNLIMITED_WIDTH = 1_000_000
GAP = "  "
BELOW = "    "
PROSE_WIDTH = 24
"""A last column with less room than this is easier to read on a line of its own."""


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
    """Rows in aligned columns. Only the last column is broken for a terminal; into a pipe nothing.

    `empty` is said on stderr when there are no rows, so that a pipe reads nothing.
    """
    found = list(rows)
    if found:
        click.echo(table_text(columns, found, terminal_width(), colour_wanted()))
    else:
        click.echo(empty, err=True)


def table_text(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, colour: bool = False
) -> str:
    """The table in lines of `width` columns if its last column can be broken so; 0: unbroken.

    A last column that would have no room is put below its row instead, without a title.
    """
    widths = [
        max(len(cell) for cell in cells)
        for cells in zip([column.title for column in columns], *rows, strict=True)
    ]
    start = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    if not width or columns[-1].right or start + widths[-1] <= width:
        return "\n".join(_rendered(columns, rows, colour))
    lines = _rendered(columns[:-1], [row[:-1] for row in rows], colour, start)
    beside = width - start >= PROSE_WIDTH
    title = columns[-1].title if beside else ""
    told = [lines[0] + title]
    for line, row in zip(lines[1:], rows, strict=True):
        if beside:
            told.append(line + wrapped([Piece(row[-1])], width, " " * start, start))
        else:
            below = wrapped([Piece(row[-1])], width, BELOW, len(BELOW))
            told += [line, *([BELOW + below] if below else [])]
    return "\n".join(line.rstrip() for line in told)


def _rendered(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], colour: bool, width: int = 0
) -> list[str]:
    """One line for the titles and one for each row, filled with blanks to `width` if given."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(
        file=io.StringIO(),
        width=UNLIMITED_WIDTH,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for column in columns:
        justify: Any = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(
            *(
                Text(cell, style=_style(cell) if column.status else "")
                for column, cell in zip(columns, row, strict=True)
            )
        )
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return [line + " " * (width - len(click.unstyle(line))) for line in lines]


def _style(cell: str) -> str:
    return STATUS_COLOURS.get(cell.partition(" ")[0].rstrip(","), "")


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """`name   value` lines, values aligned; pairs without a value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    start = max((len(name) for name, _ in shown), default=0) + len(GAP)
    for name, value in shown:
        tint = _style(value) if colour_wanted() else ""
        told = wrapped([Piece(value, tint)], terminal_width(), " " * start, start)
        click.echo(f"{name.ljust(start)}{told}")


def print_lines(lines: Iterable[str]) -> None:
    """Lines of prose, broken between words when they are longer than the terminal is wide."""
    width = terminal_width()
    for line in lines:
        click.echo(wrapped_line(line, width))


def show(output: str, value: Any, table: Callable[[Any], None]) -> None:
    """The value as `-o` asks: as JSON, or by the function that prints its table."""
    if output == "json":
        print_json(value)
    else:
        table(value)
