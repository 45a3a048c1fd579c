"""What a terminal shows: lines end between words, and no column but the last is broken."""

from __future__ import annotations

import io

import click
import pytest

from coord.cli.output import Column, table_text
from coord.cli.timeline import Timeline
from coord.cli.timeline_text import item_text
from coord.cli.wrapping import Piece, colour_wanted, terminal_width, wrapped, wrapped_line
from coord.core.machine import apply
from coord.core.state import new_state
from tests.cli.recordings import TWO_FAILURES, entries_of

WIDTH = 80
INCIDENTS = (Column("ID", right=True), Column("STATUS", status=True), Column("ABOUT"))
ROWS = [("1", "resolved", "infrastructure, host-3: host lost"), ("2", "open", "")]


def told(width: int, colour: bool = False) -> list[str]:
    """A whole recording as lines."""
    state, timeline = new_state(), Timeline()
    items = [
        item for entry in entries_of(TWO_FAILURES) for item in timeline.add(apply(state, entry))
    ]
    return "\n".join(item_text(item, colour, True, width) for item in items).splitlines()


def test_a_timeline_fits_the_terminal_and_keeps_every_word() -> None:
    """What goes on in the next line stands further in than a decision's name."""
    narrow, wide = told(WIDTH), told(0)
    assert max(map(len, narrow)) <= WIDTH < max(map(len, wide))
    without_bars = [word for word in " ".join(narrow).split() if word != "|"]
    assert without_bars == [word for word in " ".join(wide).split() if word != "|"]
    assert [line for line in narrow if line.startswith(" " * 29)]


def test_colours_change_no_break() -> None:
    assert [click.unstyle(line) for line in told(WIDTH, colour=True)] == told(WIDTH)


def test_a_word_that_is_longer_than_a_line_stays_whole() -> None:
    """A path is there to be copied."""
    path = "/shared/" + "x" * WIDTH
    assert wrapped([Piece(f"step 5 in {path}  <- 7")], WIDTH, "  ").splitlines() == [
        "step 5 in",
        f"  {path}",
        "  <- 7",
    ]


def test_a_line_keeps_its_own_indentation() -> None:
    assert wrapped_line("  one two three", 11).splitlines() == ["  one two", "      three"]


def test_into_a_pipe_nothing_is_broken() -> None:
    line = "word " * 100 + "end"
    assert (terminal_width(), wrapped_line(line, 0)) == (0, line)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (0, ["ID  STATUS    ABOUT", " 1  resolved  infrastructure, host-3: host lost", " 2  open"]),
        (
            40,
            [
                "ID  STATUS    ABOUT",
                " 1  resolved  infrastructure, host-3:",
                "              host lost",
                " 2  open",
            ],
        ),
        (
            34,
            [
                "ID  STATUS",
                " 1  resolved",
                "    infrastructure, host-3: host",
                "    lost",
                " 2  open",
            ],
        ),
    ],
)
def test_only_the_last_column_of_a_table_is_broken(width: int, expected: list[str]) -> None:
    """Beside the others where it has room, else below its row."""
    assert table_text(INCIDENTS, ROWS, width).splitlines() == expected


def test_a_table_in_colour_is_as_wide_as_one_without() -> None:
    plain = table_text(INCIDENTS, ROWS, 40)
    painted = table_text(INCIDENTS, ROWS, 40, colour=True)
    assert painted != plain
    assert [line.rstrip() for line in click.unstyle(painted).splitlines()] == plain.splitlines()


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_only_a_terminal_that_may_be_is_painted(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environment: dict[str, str], expected: bool
) -> None:
    class Output(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Output())
    assert colour_wanted() is expected
