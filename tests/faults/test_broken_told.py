"""What `coordctl faults broken` says of what it found."""

from __future__ import annotations

import msgspec
import pytest
from jepsen_lite.broken.catalogue import BREAKAGES
from jepsen_lite.broken.hunt import Hunted, Try
from jepsen_lite.cli.broken import found_in, print_found, unmodified_in
from jepsen_lite.judge.verdict import Judgement, Verdict
from jepsen_lite.run.figures import Figures
from jepsen_lite.run.options import RunOptions
from jepsen_lite.run.run import Report

OPTIONS = RunOptions(workload="registers", nemesis="isolate-leader", seed=3)
HOLDS = Judgement("indexes follow real time", Verdict.LINEARIZABLE)
STALE = [
    Judgement("linearizable: replicas r-1", Verdict.VIOLATION, "the state is 4,\nread -> 3"),
    Judgement("linearizable: replicas r-2", Verdict.VIOLATION, "read -> 9"),
    msgspec.structs.replace(HOLDS, verdict=Verdict.VIOLATION, detail="operation 7"),
]
UNSURE = Judgement("every job comes to an end", Verdict.UNKNOWN, "job j is queued")


def _tried(*judgements: Judgement) -> Try:
    figures = Figures(1, 1, 0, 0, 1, 0.5, 12.0)
    return Try(OPTIONS, Report(OPTIONS, "", "", figures, list(judgements), "", 21.34))


def _hunted(*tries: Try) -> Hunted:
    return Hunted(BREAKAGES["stale-reads"], list(tries), 42.06)


def test_a_caught_mutation_tells_run_time_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks of order count once, whatever the key."""
    found = found_in(_hunted(_tried(HOLDS), _tried(HOLDS, *STALE)))

    print_found([found], False, "markdown")

    assert (found.verdict, found.runs, found.good) == ("caught", 2, True)
    assert found.detail == "the state is 4, read -> 3"
    assert capsys.readouterr().out.splitlines() == [
        "| mutation | workload x nemesis | seed | seconds | reported |",
        "| --- | --- | --: | --: | --- |",
        "| stale-reads | registers x isolate-leader | 3 | 42 "
        "| linearizable; indexes follow real time |",
    ]


def test_what_is_not_known_catches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """It fails a run of the product, but does not say that something broke."""
    found = found_in(_hunted(_tried(HOLDS, UNSURE)))

    print_found([found], False, "table")

    assert (found.verdict, found.good) == ("missed", False)
    assert "missed" in capsys.readouterr().out


def test_a_run_that_broke_off_catches_nothing() -> None:
    """Why it did is told."""
    found = found_in(_hunted(Try(OPTIONS, None, "ClusterFailed: s1 is not up")))

    assert (found.verdict, found.detail) == ("missed", "ClusterFailed: s1 is not up")


@pytest.mark.parametrize(
    ("tried", "verdict"),
    [
        (_tried(HOLDS), "holds"),
        (_tried(HOLDS, UNSURE), "unknown"),
        (_tried(UNSURE, *STALE), "violation"),
        (Try(OPTIONS, None, "ClusterFailed: s1 is not up"), "broke off"),
    ],
)
def test_the_unmodified_build_has_to_hold(tried: Try, verdict: str) -> None:
    """Nothing less than that every check of its run holds."""
    found = unmodified_in(tried)

    assert (found.name, found.verdict, found.good) == ("unmodified", verdict, verdict == "holds")


def test_the_document_says_whether_all_is_as_it_should_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For programs."""
    good, bad = found_in(_hunted(_tried(*STALE))), unmodified_in(_tried(UNSURE))

    print_found([good], False, "json")
    assert msgspec.json.decode(capsys.readouterr().out)["ok"] is True
    print_found([good, bad], False, "json")
    assert msgspec.json.decode(capsys.readouterr().out)["ok"] is False
    print_found([good], True, "json")
    assert msgspec.json.decode(capsys.readouterr().out)["ok"] is False
