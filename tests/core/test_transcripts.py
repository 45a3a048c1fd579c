"""Golden transcripts: the behaviour of the core, one file a family and case."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coord.core.step import HANDLERS
from coord.model.decisions import DECISION_TYPES
from tests.conftest import Golden

from .transcript import Transcript, run_file

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_reads_as_it_was_reviewed(path: Path, golden: Golden) -> None:
    """Decisions, causes, rejections and state are what was accepted; a reloaded twin agrees."""
    golden(path, run_file(path))


def test_transcripts_show_every_event_and_every_decision() -> None:
    """A new event or decision comes with a transcript."""
    shown: dict[str, None] = {}
    for path in TRANSCRIPTS:
        transcript = Transcript()
        transcript.run(path.read_text())
        for record in transcript.driver.records:
            shown[type(record.entry.event).__name__] = None
            shown.update({type(decision).__name__: None for decision in record.decisions})
    expected = [kind.__name__ for kind in (*HANDLERS, *DECISION_TYPES)]
    assert sorted(name for name in expected if name not in shown) == []


def test_the_readme_says_where_each_race_is_shown() -> None:
    """Races 1 to 44, and every transcript it names is there."""
    text = (Path(__file__).parent / "README.md").read_text()
    rows = re.findall(r"^\| ([0-9, ]+) [^|]*\| ([^|]*) \|$", text, re.MULTILINE)
    numbers = [int(number) for numbers, _ in rows for number in numbers.split(",")]
    assert numbers == list(range(1, 45))
    there = [path.stem for path in TRANSCRIPTS]
    named = [name for _, shown in rows for name in re.findall(r"`([a-z-]+)`", shown)]
    assert [name for name in named if name not in there] == []
