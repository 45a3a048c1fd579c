"""A run as one page that needs nothing beside it: no script, no style sheet, no network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import msgspec

from jepsen_lite.history.journal import History, read_history
from jepsen_lite.history.operation import Operation
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.report.availability import Silence, silences
from jepsen_lite.report.lanes import BARS, told
from jepsen_lite.report.timeline import draw_timeline, scale_of
from jepsen_lite.report.wording import is_bad, verdict_of, verdict_word, worst_first
from jepsen_lite.run.artefacts import HISTORY, INCIDENT, PAGE
from jepsen_lite.run.figures import Figures, figures_of

if TYPE_CHECKING:
    from jepsen_lite.run.run import Report

TEMPLATE = "run.html"
MOST_OPERATIONS = 300
"""Of a prefix, the last ones; the history holds them all."""
MOST_SILENCES = 10
ACCUSED = 20
"""A verdict about more operations points at the last answer alone."""


class PageInput(msgspec.Struct):
    """Everything that the page shows."""

    title: str
    history: History
    judgements: Sequence[Judgement]
    repeat: str = ""
    facts: Sequence[tuple[str, str]] = ()
    links: Sequence[str] = ()
    """Files beside the page."""
    note: str = ""


def write_page(report: Report, directory: Path) -> Path:
    """Into the folder of the run that the report is about."""
    history = read_history(directory / HISTORY)
    options = report.options
    facts = [
        ("cluster", options.cluster),
        ("load", f"{options.seconds:g} s at {options.rate:g} operations a second"),
        ("seed", str(options.seed)),
        ("coord", report.version),
        ("took", f"{report.seconds:.1f} s, from the first process to the verdict"),
    ]
    page = directory / PAGE
    given = PageInput(
        title=f"{options.workload} under {options.nemesis}",
        history=history,
        judgements=report.judgements,
        repeat=report.repeat,
        facts=facts,
        links=kept_in(directory),
    )
    page.write_text(page_html(given), encoding="utf-8")
    return page


def kept_in(directory: Path) -> list[str]:
    """What a page in this folder can point at."""
    logs = sorted(f"logs/{each.name}" for each in (directory / "logs").glob("*.log"))
    return [*(name for name in (HISTORY, INCIDENT) if (directory / name).exists()), *logs]


def page_html(given: PageInput) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    history = given.history
    scale = scale_of(history)
    timeline = draw_timeline(history, _accused(given.judgements))
    environment.filters["moment"] = scale.moment
    environment.filters["told"] = lambda operation: told(operation, scale)
    environment.filters["word"] = verdict_word
    environment.filters["lasted"] = _lasted
    judgements = worst_first(given.judgements)
    return environment.get_template(TEMPLATE).render(
        title=given.title,
        repeat=given.repeat,
        note=given.note or history.cut_off,
        facts=[*_counted(history), *given.facts],
        links=given.links,
        verdict=verdict_of(judgements),
        judgements=judgements,
        bad=[_Broken.of(one) for one in judgements if is_bad(one)],
        names=timeline.names,
        lanes=timeline.lanes,
        dense=timeline.dense,
        bars=BARS,
        silences=_silences(history),
        faults=history.faults,
    )


class _Broken(msgspec.Struct):
    """A judgement that did not hold, as it is shown."""

    judgement: Judgement
    operations: Sequence[Operation]
    left_out: int

    @classmethod
    def of(cls, judgement: Judgement) -> _Broken:
        operations = judgement.operations[-MOST_OPERATIONS:]
        left_out = len(judgement.operations) - len(operations)
        return cls(judgement, operations, left_out)


def _accused(judgements: Sequence[Judgement]) -> set[int]:
    numbers: set[int] = set()
    for one in judgements:
        if is_bad(one):
            shown = one.operations
            if len(shown) > ACCUSED:  # A prefix, which became wrong with its last answer.
                shown = (max(shown, key=lambda each: each.completed_ns),)
            numbers.update(each.number for each in shown)
    return numbers


def _counted(history: History) -> list[tuple[str, str]]:
    figures = figures_of(history)
    counted = [
        (
            "operations",
            f"{figures.operations:,}: {figures.ok:,} ok, {figures.fail:,} fail, "
            f"{figures.info:,} info",
        )
    ]
    return [*counted, *_of_time(figures)] if history.facts else counted


def _of_time(figures: Figures) -> list[tuple[str, str]]:
    return [
        ("faults", f"{figures.faults:,}"),
        (
            "worst unavailability",
            f"{figures.worst_unavailability_s:.2f} s without an acknowledged write",
        ),
    ]


def _silences(history: History) -> list[Silence]:
    return silences(history)[:MOST_SILENCES] if history.facts else []


def _lasted(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.2f} s"


def _template(name: str) -> str:
    return resources.files("jepsen_lite.report").joinpath("templates", name).read_text()
