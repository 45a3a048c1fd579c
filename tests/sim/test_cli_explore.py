"""`coordctl sim explore` tells what breaks in another order, and how to see it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from coord_sim.cli import explore as command
from coord_sim.cli.durations import duration_s
from coord_sim.cli.search_line import SearchLine, bar
from coord_sim.explore.exploration import Asked
from coord_sim.explore.found import Found, Progress, StrategyProgress
from coord_sim.explore.incident import Incident

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.store.incident import IncidentFormat
from tests.cli.recordings import TWO_FAILURES, entries_of, quiet_entries, recorded
from tests.conftest import Golden

from .flip_search import FlipSearch
from .planted import execute_orders, planted

__all__ = ["planted"]

GOLDEN = Path(__file__).parent / "golden" / "explore"


def explore(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sim", "explore", *arguments])


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The two failures with digests, in the directory that commands run in."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "incident.log"
    path.write_bytes(recorded(entries_of(TWO_FAILURES)))
    return path


@pytest.fixture
def flips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only flips are searched, and events stay as they are."""

    def searching(incident: Incident, asked: Asked, strategies: tuple[str, ...]) -> FlipSearch:
        return FlipSearch(incident, 1_000 if asked.schedules is None else asked.schedules)

    monkeypatch.setattr(command, "searching", searching)
    monkeypatch.setattr(command, "Executions", lambda: execute_orders)


def test_a_planted_bug_is_found_shrunk_and_told(
    planted: None, flips: None, recording: Path, golden: Golden
) -> None:
    """From the first line to the last."""
    result = explore("incident.log", "--schedules", "120", "--no-confirm")
    assert result.exit_code == Exit.FOUND
    assert result.stderr == ""
    golden(GOLDEN / "whole.txt", result.stdout)


def test_nothing_is_found_in_a_sound_core(flips: None, recording: Path) -> None:
    """And it says how much was tried."""
    result = explore("incident.log", "--schedules", "200")
    assert result.exit_code == Exit.OK
    assert "0 findings" in result.stdout
    assert "single flips" in result.stdout


def test_the_document_is_the_same_every_time(planted: None, flips: None, recording: Path) -> None:
    """To the byte, for the same seed and number of schedules."""
    texts = [explore("incident.log", "--schedules", "110", "-o", "json").stdout for _ in range(2)]
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert document["seed"] == 1
    assert "took_s" not in document
    first = document["findings"][0]
    assert first["status"] == "confirmed"
    assert first["entries"] < first["entries_before"] == 35
    assert first["changes"][0]["needs_ms"] >= 0
    assert [row for row in first["rows"] if row["mark"] == "moved"]


def test_the_command_that_it_prints_shows_it_again(
    planted: None, flips: None, recording: Path
) -> None:
    """On the log itself, and on the files of the finding."""
    result = explore("incident.log", "--schedules", "120", "--out", "found", "-o", "json")
    assert result.exit_code == Exit.FOUND
    report = json.loads(result.stdout)
    assert json.loads(Path("found/report.json").read_bytes()) == report
    for finding in report["findings"]:
        words = finding["repeat"].split()
        assert words[:3] == ["coordctl", "sim", "explore"]
        again = explore(*words[3:], "-o", "json")
        assert again.exit_code == Exit.FOUND
        (found,) = json.loads(again.stdout)["findings"]
        assert found["sentence"] == finding["sentence"]
        assert found["detail"] == finding["detail"]


def test_a_given_schedule_that_breaks_nothing_says_so(flips: None, recording: Path) -> None:
    flip = '{"changes":[{"type":"Flip","first":6,"second":7}]}'
    result = explore("incident.log", "--schedule", flip)
    assert result.exit_code == Exit.OK
    assert "The schedule breaks nothing." in result.stdout


def test_the_page_is_written(planted: None, flips: None, recording: Path) -> None:
    result = explore("incident.log", "--schedules", "120", "--html", "report.html")
    assert result.exit_code == Exit.FOUND
    assert result.stdout.endswith("page: report.html\n")
    assert Path("report.html").read_text().startswith("<!doctype html>")


def test_what_was_found_is_told_though_the_page_cannot_be_written(
    planted: None, flips: None, recording: Path
) -> None:
    result = explore("incident.log", "--schedules", "120", "--html", "/dev/full")
    assert result.exit_code == Exit.FAILED
    assert "1. candidate: " in result.stdout or "1. confirmed: " in result.stdout
    assert "page: " not in result.stdout


def test_an_interrupted_search_tells_what_it_found(
    planted: None, flips: None, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the search, not the report."""
    monkeypatch.setattr(
        command, "searching", lambda incident, *_: FlipSearch(incident, stop_after=110)
    )
    result = explore("incident.log", "--budget", "60s")
    assert result.exit_code == Exit.INTERRUPTED
    assert "interrupted: 110 schedules" in result.stdout
    assert "1. candidate: a task that runs on a plan" in result.stdout


def test_ctrl_c_while_the_file_is_read_says_so(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "read_span", interrupted)
    result = explore("incident.log")
    assert result.exit_code == Exit.INTERRUPTED
    assert result.stderr == "coordctl: interrupted while incident.log was read; nothing was tried\n"


def test_a_search_that_raises_tells_what_it_found(
    planted: None, flips: None, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applying an event may never raise, so it is told as something that was found."""

    class Raising(FlipSearch):
        def run(self, tick: Callable[[], None]) -> Iterator[Found]:
            yield from super().run(tick)
            raise ValueError("not in tuple")

    monkeypatch.setattr(command, "searching", lambda incident, *_: Raising(incident, 110))
    result = explore("incident.log", "--budget", "60s", "--no-confirm")
    assert result.exit_code == Exit.FOUND
    assert "1. candidate: a task that runs on a plan" in result.stdout
    assert "an execution raised ValueError('not in tuple')" in result.stdout


def test_without_a_budget_the_log_is_only_replayed(flips: None, recording: Path) -> None:
    """And it says so."""
    result = explore("incident.log", "--schedules", "0")
    assert result.exit_code == Exit.OK
    assert "no budget" in result.stdout


# Bad input


def refused(path: Path, content: bytes, *arguments: str) -> str:
    path.write_bytes(content)
    result = explore(path.name, *arguments)
    assert result.exit_code == Exit.FAILED, result.output
    assert result.stdout == ""
    return result.stderr


def test_files_that_cannot_be_taken_apart_are_refused(recording: Path) -> None:
    """Each with what is wrong, what would be taken, and what to do."""
    whole = recorded(entries_of(TWO_FAILURES))
    assert "is empty; write an incident file with" in refused(recording, b"")
    assert "no incident file" in refused(recording, b"hello\n")
    assert "single entry" in refused(recording, recorded(entries_of(TWO_FAILURES)[:1]))
    assert "checksum does not match" in refused(
        recording, whole[:400] + bytes([whole[400] ^ 1]) + whole[401:]
    )
    newer = b'{"type":"IncidentHeader","format":99}\n'
    assert "has format 99, this release reads up to 1; upgrade" in refused(recording, newer)


def test_digests_that_differ_stop_it(recording: Path) -> None:
    """With the index and both digests: other orders of another log would say nothing."""
    lines = recorded(entries_of(TWO_FAILURES), IncidentFormat.JSON_LINES).splitlines(True)
    lines[9] = lines[9].replace(b'"wall_ms":1000900', b'"wall_ms":1000901')
    told = refused(recording, b"".join(lines))
    assert "entry 9 at byte" in told
    assert "digest recorded: " in told
    assert "digest derived: " in told


def test_a_file_that_cannot_be_read_is_named(recording: Path) -> None:
    result = explore("absent.log")
    assert result.exit_code == Exit.USAGE
    assert "absent.log" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--budget", "soon"], "'soon' is no duration; write 90, 60s, 5m or 1h30m"),
        (["--budget", "9d"], "'9d' is more than 7d"),
        (["--budget", "1s", "--schedules", "9"], "not both"),
        (["--from", "9", "--until", "3"], "--until 3 is before --from 9"),
        (["--strategy", "guessing"], "guessing"),
        (["--schedule", "{"], "a schedule is"),
        (
            ["--schedule", '{"changes":[{"type":"Drop","at":99}]}'],
            "at of Drop is 99; the log has positions 0 to 34",
        ),
        (["--html", "absent/page.html"], "cannot be written: absent is no directory"),
        (["--out", "incident.log/below"], "--out incident.log/below: Not a directory"),
        (["--out", "."], ". holds files; give another directory, or --force"),
    ],
)
def test_wrong_usage_is_told(flips: None, recording: Path, arguments: list[str], told: str) -> None:
    result = explore("incident.log", *arguments)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr


def test_a_long_log_says_what_of_it_is_taken(flips: None, recording: Path) -> None:
    recording.write_bytes(recorded(quiet_entries(500)))
    result = explore("incident.log", "--schedules", "5", "--span", "100")
    assert result.exit_code == Exit.OK
    assert "502 entries are more than the 100 that are taken apart at once" in result.stdout


# On the way


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("60s", 60), ("1h30m", 5_400)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1x", "1m2", "-5s", "1 s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert duration_s(text) is None


class Terminal:
    """A stream that is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return True


def test_a_line_tells_how_far_the_search_is() -> None:
    """What is tried, how fast, what was found; ten times a second, and gone at the end."""
    terminal: Any = Terminal()
    now_s = 0.0
    line = SearchLine(terminal, 60.0, None, lambda: now_s)
    progress = Progress((StrategyProgress("delays", 100),), 100, 15.0)
    line.searching(progress, 2)
    assert terminal.text == ""
    now_s = 15.0
    line.searching(progress, 2)
    line.searching(progress, 2)
    told = "[######..................]  25%  delays  100 schedules  7/s  2 findings"
    assert terminal.text == f"\r\x1b[K{told}"
    line.clear()
    assert terminal.text.endswith("\r\x1b[K")


def test_the_bar_stays_within_its_ends() -> None:
    assert bar(-1) == f"[{'.' * 24}]   0%"
    assert bar(2) == f"[{'#' * 24}] 100%"
