"""Lines broken between words for a terminal, what follows indented under what it belongs to."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import NamedTuple

import click

NARROWEST = 40
"""Below so many columns a terminal breaks lines better than we do."""


class Piece(NamedTuple):
    """Words of one colour; an empty `tint` leaves them as they are."""

    text: str
    tint: str = ""


def terminal_width() -> int:
    """Columns of the terminal that stdout is; 0 when it is none, and nothing is to be broken."""
    if not sys.stdout.isatty():
        return 0
    columns = shutil.get_terminal_size().columns
    return columns if columns >= NARROWEST else 0


def colour_wanted() -> bool:
    """Whether stdout is a terminal that may be painted (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def wrapped(pieces: Iterable[Piece], width: int, indent: str = "", at: int = 0) -> str:
    """The pieces as lines of at most `width` columns, all but the first behind `indent`.

    `at` is the column at which the first line begins, if something stands before it. A word that
    is longer than a line stays whole, to be copied. Width 0: one line, however long.
    """
    if not width:
        return " ".join(click.style(text, fg=tint) if tint else text for text, tint in pieces)
    words = [(word, tint) for text, tint in pieces for word in text.split(" ")]
    lines: list[list[str]] = [[]]
    column = at
    for word, tint in words:
        if lines[-1] and column + 1 + len(word) > width:
            lines.append([])
            column = len(indent)
        if not word and not lines[-1] and len(lines) > 1:
            continue  # of two blanks between words, none begins a line
        column += len(word) + (1 if lines[-1] else 0)
        lines[-1].append(click.style(word, fg=tint) if tint and word else word)
    return f"\n{indent}".join(" ".join(line).rstrip() for line in lines)


def wrapped_line(text: str, width: int, indent: str = "    ") -> str:
    """One line of plain text, as `wrapped`; what it begins with stays its indentation."""
    lead = text[: len(text) - len(text.lstrip())]
    return lead + wrapped([Piece(text.lstrip())], width, lead + indent, len(lead))
