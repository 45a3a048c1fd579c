"""A finding is told with both orders side by side, on a terminal and on a page of its own."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from coord_sim.explore.change_words import change_told
from coord_sim.explore.exploration import Asked, Exploration
from coord_sim.explore.found import Found, Progress, StrategyProgress
from coord_sim.explore.given import GivenSchedule
from coord_sim.explore.order import PartialOrder
from coord_sim.explore.report import finding_text, page, summary_text
from coord_sim.explore.schedule import (
    AgentCrash,
    ClockJump,
    Delay,
    Drop,
    Duplicate,
    Flip,
    InFlight,
    LeaderChange,
    LoseHosts,
    Pause,
    Reorder,
    Schedule,
    SnapshotRestore,
)
from coord_sim.explore.span import Span
from coord_sim.explore.telling import Report, coverage_told

from tests.conftest import Golden

from .planted import execute_orders, planted, two_failures

__all__ = ["planted"]

GOLDEN = Path(__file__).parent / "golden" / "explore"

BREAKS = Schedule((Flip(18, 28),))


def report_of(schedule: Schedule, **asked: object) -> Report:
    """The report of an exploration that tried this one schedule."""
    incident = two_failures()
    search = GivenSchedule(incident, schedule, execute_orders)
    span = Span(incident, len(incident.records), 0, ())
    exploration = Exploration(
        span,
        Asked(schedules=1, budget_text="1 schedule", **asked),  # type: ignore[arg-type]
        search,
        execute_orders,
    )
    list(exploration.search())
    return exploration.report()


@pytest.mark.parametrize("width", [0, 120, 70])
def test_a_finding_is_told(planted: None, golden: Golden, width: int) -> None:
    """Into a file, on a wide terminal with both orders side by side, on a narrow one below."""
    (finding,) = report_of(BREAKS).findings
    text = finding_text(finding, width)
    assert max(map(len, text.splitlines())) <= max(width, 132) + 60  # the command is not broken
    golden(GOLDEN / f"finding_{width}.txt", text + "\n")


def test_the_summary_tells_how_far_the_search_came(golden: Golden) -> None:
    """What each strategy tried, how much of the log it used, and where it stopped."""
    progress = (
        StrategyProgress("single flips", 214, 3, 0.5, 1.0, 810, 120, "all 214 tried", True),
        StrategyProgress("random walk", 1_000, 0, 0.5, 1.0, 420, 12),
        StrategyProgress("window"),
    )
    found = report_of(BREAKS)
    report = msgspec.structs.replace(
        found,
        findings=(),
        schedules=1_214,
        coverage=coverage_told(Progress(progress, 1_214), timed=False),
        notes=("1,000,000 entries are more than the 5,000 that are taken apart at once.",),
    )
    golden(GOLDEN / "summary.txt", summary_text(report) + "\n")


CHANGES = {
    "flip": Flip(6, 14),
    "delay": Delay(6, 14),
    "reorder": Reorder(6, (7, 8, 6)),
    "drop": Drop(6),
    "duplicate": Duplicate(6, 14),
    "crash": AgentCrash("host-1", 6),
    "crash_without": AgentCrash("host-1", 6, keeps_unsent=False),
    "pause": Pause("host-1", 6, 9_000),
    "leader": LeaderChange(6),
    "leader_lost": LeaderChange(6, InFlight.LOST),
    "leader_unanswered": LeaderChange(6, InFlight.COMMITTED_UNANSWERED),
    "snapshot": SnapshotRestore(6),
    "jump": ClockJump(6, 3_600_000),
    "jump_back": ClockJump(6, -3_600_000),
    "loss": LoseHosts(("host-1", "host-2"), 6),
}


def test_every_change_is_told_in_words(golden: Golden) -> None:
    """What happens, and what it takes."""
    incident = two_failures()
    order = PartialOrder(incident)
    lines = []
    for name, change in CHANGES.items():
        told = change_told(incident, order, change)
        lines += [f"{name}: {told.text}.", f"    It takes {told.needs} ({told.needs_ms})."]
    golden(GOLDEN / "changes.txt", "\n".join(lines) + "\n")


def test_the_delay_is_what_the_log_says(planted: None) -> None:
    """The milliseconds between the two as they were accepted."""
    incident = two_failures()
    told = change_told(incident, PartialOrder(incident), Flip(6, 14))
    walls = [incident.records[at].entry.wall_ms for at in (6, 14)]
    assert told.needs_ms == walls[1] - walls[0] == 880


def test_the_edge_is_named_where_there_is_one() -> None:
    """Nobody is told that nothing orders two events that something orders."""
    incident = two_failures()
    told = change_told(incident, PartialOrder(incident), Flip(5, 6))
    (question,) = told.pairs[0].questions
    assert question.answer.startswith("yes: speaks of digits/trainer/0#1")


class Balance(HTMLParser):
    """Which tags are open, and what the text says."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []  # type: ignore[list-item]
        self.targets += [given["href"][1:]] if given.get("href") else []  # type: ignore[index]
        self.loads += [name for name in ("src", "srcset") if name in given]
        if tag in ("script", "link", "iframe", "img"):
            self.loads.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(planted: None) -> None:
    """Every tag is closed, every link leads somewhere on the page, nothing comes from elsewhere."""
    report = report_of(BREAKS)
    (one,) = report.findings
    again = msgspec.structs.replace(one, number=2)
    text = page(msgspec.structs.replace(report, findings=(one, again)))
    parsed = Balance()
    parsed.feed(text)
    assert parsed.open == []
    assert parsed.loads == []
    assert set(parsed.targets) == {"finding-1", "finding-2"} == set(parsed.ids)
    assert "http" not in text.replace("HTTP", "")
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"candidate.*whole cluster", text, re.DOTALL)


def test_what_the_log_says_is_not_markup(planted: None) -> None:
    """Names and messages come from anywhere."""
    report = report_of(BREAKS)
    (one,) = report.findings
    hostile = "<script>alert(1)</script>"
    text = page(
        msgspec.structs.replace(
            report, file=hostile, findings=(msgspec.structs.replace(one, detail=hostile),)
        )
    )
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_nothing_found_makes_a_page_too() -> None:
    """That says so."""
    report = report_of(Schedule((Flip(6, 7),)))
    assert report.findings == ()
    text = page(report)
    assert "Nothing found in" in text
    assert "The schedule breaks nothing." in text


def test_a_report_is_one_json_document(planted: None) -> None:
    """The same bytes every time."""
    first, second = (msgspec.json.encode(report_of(BREAKS)) for _ in range(2))
    assert first == second
    assert msgspec.json.decode(first, type=Report) == report_of(BREAKS)


def test_a_found_schedule_is_counted() -> None:
    """The search that tries one schedule says what it did."""
    search = GivenSchedule(two_failures(), Schedule((Flip(6, 7),)), execute_orders)
    found: list[Found] = list(search.run(lambda: None))
    assert found == []
    assert search.progress().schedules == 1
    assert search.progress().strategies[0].finished
