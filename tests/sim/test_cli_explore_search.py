"""The whole of `coordctl sim explore`, with the real search and what follows a change simulated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coord.cli.exits import Exit
from coord.cli.main import cli
from tests.cli.recordings import TWO_FAILURES, entries_of, quiet_entries, recorded
from tests.conftest import Golden

from .planted import SENTENCE, planted

__all__ = ["planted"]

GOLDEN = Path(__file__).parent / "golden" / "explore"


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "incident.log"
    path.write_bytes(recorded(entries_of(TWO_FAILURES)))
    return path


def explore(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sim", "explore", *arguments])


def test_a_planted_bug_is_found_shrunk_and_told(
    planted: None, recording: Path, golden: Golden
) -> None:
    """Single flips are enough; what is left of the log is what it takes."""
    result = explore("incident.log", "--schedules", "40", "--strategy", "single-flips")
    assert result.exit_code == Exit.FOUND, result.output
    told = result.stdout.partition("\n\n1. ")[2].partition("\n\nSTRATEGY")[0]
    told = re.sub(r"after \d+ schedules?, met (once|\d+ times)", "after N, met M times", told)
    told = re.sub(r"seed \d+, late by [\d,]+ ms", "seed N, late by M ms", told)
    golden(GOLDEN / "searched.txt", f"1. {told}\n")


def test_every_strategy_is_told(recording: Path) -> None:
    """What each tried, and its share of the budget, in a core without the bug."""
    result = explore("incident.log", "--schedules", "70", "-o", "json")
    assert result.exit_code == Exit.OK, result.output
    report = json.loads(result.stdout)
    assert [one["strategy"] for one in report["coverage"]] == [
        "single flips",
        "single faults",
        "delays",
        "partial-order sampling",
        "pct",
        "random walk",
        "windows around faults",
    ]
    tried = [one["schedules"] for one in report["coverage"]]
    assert min(tried) > 0
    assert 70 <= sum(tried) <= 80


def test_a_strategy_can_be_chosen(planted: None, recording: Path) -> None:
    result = explore("incident.log", "--schedules", "30", "--strategy", "pct", "-o", "json")
    (coverage,) = json.loads(result.stdout)["coverage"]
    assert coverage["strategy"] == "pct"


def test_what_is_found_is_found_again(planted: None, recording: Path) -> None:
    """From its files, by the command that was printed."""
    flips = ["--schedules", "40", "--strategy", "single-flips"]
    found = explore("incident.log", *flips, "--out", "found", "-o", "json")
    first = json.loads(found.stdout)["findings"][0]
    again = explore(*first["repeat"].split()[3:], "-o", "json")
    assert again.exit_code == Exit.FOUND
    (same,) = json.loads(again.stdout)["findings"]
    assert (same["sentence"], same["detail"]) == (SENTENCE, first["detail"])


def test_without_a_budget_the_log_is_only_replayed(recording: Path) -> None:
    """And it says so, whichever way the budget is given."""
    for budget in (["--budget", "0"], ["--schedules", "0"]):
        result = explore("incident.log", *budget)
        assert result.exit_code == Exit.OK
        assert "no budget: the log was replayed as it is" in result.stdout


def test_a_budget_in_time_ends_in_time(recording: Path) -> None:
    """And tells how fast it was."""
    result = explore("incident.log", "--budget", "500ms", "-o", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == Exit.OK
    assert 0 < report["took_s"] < 30


@pytest.mark.parametrize("hash_seed", ["1", "31337"])
def test_the_bytes_are_those_of_the_seed(recording: Path, hash_seed: str) -> None:
    """In another process, under another hash seed."""

    def document(value: str) -> bytes:
        words = ["sim", "explore", "incident.log", "--schedules", "60", "-o", "json"]
        return subprocess.run(
            [sys.executable, "-m", "coord.cli.main", *words],
            env={**os.environ, "PYTHONHASHSEED": value},
            capture_output=True,
            timeout=120,
            check=True,
        ).stdout

    assert document(hash_seed) == document("0")


def test_a_log_without_another_order_ends_too(recording: Path) -> None:
    """One leader's own entries have one order; it says so, and faults are all that is tried."""
    recording.write_bytes(recorded(quiet_entries(300)))
    result = explore("incident.log", "--schedules", "20")
    assert result.exit_code == Exit.OK
    assert "No two neighbours could have come the other way round" in result.stdout
    assert "random walk" not in result.stdout
