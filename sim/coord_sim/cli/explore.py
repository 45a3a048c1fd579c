"""`coordctl sim explore`: take a recorded incident apart and tell the races in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from coord.cli.exits import BadInput, Exit, Failure
from coord.cli.output import print_json, print_lines
from coord.cli.wording import count_text
from coord.cli.wrapping import colour_wanted, terminal_width
from coord.store.incident_errors import IncidentError
from coord_sim.cli.durations import Duration, duration_text
from coord_sim.cli.parameters import Page
from coord_sim.cli.search_line import SearchLine
from coord_sim.cli.searching import STRATEGIES, Executions, searching
from coord_sim.explore.cluster import in_cluster
from coord_sim.explore.confirm import Confirmer
from coord_sim.explore.exploration import Asked, Exploration, Search
from coord_sim.explore.given import BadSchedule, GivenSchedule, parse_schedule
from coord_sim.explore.incident import IncidentUnfit
from coord_sim.explore.report import finding_line, finding_text, opening_text, page, summary_text
from coord_sim.explore.schedule import Schedule
from coord_sim.explore.span import LONGEST_SPAN, SPAN, Span, read_span
from coord_sim.explore.telling import Report

DEFAULT_BUDGET_S = 60.0
SHRINK_SHARE = 0.25
"""Of the budget, on top of it, that shrinking may take; `SHRINK_LEAST_S` at least."""
SHRINK_LEAST_S = 10.0
SHRINK_INTERRUPTED_S = 2.0
"""Somebody who pressed Ctrl-C is waiting."""
SHRINK_TRIALS = 2_000
SAID = 20
"""Findings that are said as they are found; the report tells all of them, each kind once."""


@click.command(
    epilog="""\b
Exit codes:
  0  nothing was found
  1  the file is damaged, does not replay as it is, or cannot be varied
  2  usage
  6  something was found
  130  interrupted with Ctrl-C; what was found so far is printed
"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--budget", type=Duration(), help="Search for so long; 0: replay only.  [60s]")
@click.option(
    "--schedules",
    type=click.IntRange(min=0),
    help="Search so many orders instead: the same on every machine, to the byte.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice(list(STRATEGIES)),
    help="Only this one; may be given more than once.",
)
@click.option("--schedule", default="", metavar="JSON|@FILE", help="Execute just this one again.")
@click.option("--from", "first", type=click.IntRange(min=1), help="Take apart from this index on.")
@click.option("--until", "last", type=click.IntRange(min=1), help="Up to this index.")
@click.option(
    "--span",
    type=click.IntRange(2, LONGEST_SPAN),
    default=SPAN,
    show_default=True,
    help="Of a longer log, take apart so many entries: those with the most failures.",
)
@click.option("--html", type=Page(), help="Write a page.")
@click.option("--out", type=click.Path(file_okay=False), help="Write each finding's files here.")
@click.option("--force", is_flag=True, help="Write into --out though it is there already.")
@click.option(
    "--confirm/--no-confirm",
    default=True,
    show_default=True,
    help="Lead a whole simulated cluster along each finding.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.pass_context
def explore(
    ctx: click.Context,
    *,
    file: str,
    budget: float | None,
    schedules: int | None,
    seed: int,
    strategies: tuple[str, ...],
    schedule: str,
    first: int | None,
    last: int | None,
    span: int,
    html: str | None,
    out: str | None,
    force: bool,
    confirm: bool,
    output: str,
) -> None:
    """Take the incident FILE apart: which other orders could have been, and what breaks in them.

    The log is replayed as it is. Then events that nothing orders are swapped, delayed and lost,
    agents and leaders crash, and what follows is simulated. Whatever breaks a rule is shrunk to the
    smallest log that shows it and told with both orders side by side.
    """
    if budget is not None and schedules is not None:
        raise click.UsageError("give --budget or --schedules, not both")
    if first and last and last < first:
        raise click.UsageError(f"--until {last} is before --from {first}")
    if schedules is None and budget is None:
        budget = DEFAULT_BUDGET_S
    directory = _directory(out, force)
    given = _given(schedule) if schedule else None
    asked = Asked(
        seed=seed,
        budget_s=budget,
        schedules=schedules,
        budget_text=_budget_text(budget, schedules),
        out=directory,
        repeat_options=_repeat_options(first, last, span),
    )
    line = SearchLine(sys.stderr, budget, schedules)
    chosen = _read(file, span, first or 0, last or 0, line)
    exploration = _exploration(chosen, asked, strategies, given, in_cluster if confirm else None)
    if output == "text":
        click.echo(opening_text(exploration.opening()))
        print_lines(chosen.notes)
    report = _explored(exploration, line, output == "text", shrinks=given is None)
    _tell(report, output, html, directory, chosen.notes)
    if exploration.raised and ctx.find_root().params.get("debug"):
        raise exploration.raised
    if report.interrupted:
        ctx.exit(Exit.INTERRUPTED)
    ctx.exit(Exit.FOUND if report.findings or exploration.raised else Exit.OK)


def _budget_text(budget: float | None, schedules: int | None) -> str:
    if schedules is not None:
        return count_text(schedules, "schedule")
    return duration_text(budget or 0.0)


def _repeat_options(first: int | None, last: int | None, span: int) -> tuple[str, ...]:
    """What chooses the same entries again."""
    options: list[str] = []
    if first:
        options += ("--from", str(first))
    if last:
        options += ("--until", str(last))
    if span != SPAN:
        options += ("--span", str(span))
    return tuple(options)


def _directory(out: str | None, force: bool) -> Path | None:
    if out is None:
        return None
    directory = Path(out)
    if directory.exists() and any(directory.iterdir()) and not force:
        raise BadInput(f"{out} holds files; give another directory, or --force to write into it")
    try:  # Now: what was found must not be lost because it cannot be written.
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from error
    return directory


def _given(text: str) -> Schedule:
    try:
        return parse_schedule(text)
    except BadSchedule as error:
        raise BadInput(f"--schedule: {error}") from error


def _read(file: str, span: int, first: int, last: int, line: SearchLine) -> Span:
    size = Path(file).stat().st_size
    try:
        return read_span(
            file,
            longest=span,
            first=first,
            last=last,
            progress=lambda offset_bytes, entries: line.reading(offset_bytes, size, entries),
        )
    except (IncidentError, IncidentUnfit) as error:
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        raise _NothingTried(f"interrupted while {file} was read; nothing was tried") from None
    finally:
        line.clear()


class _NothingTried(Failure):
    exit_code = int(Exit.INTERRUPTED)


def _exploration(
    chosen: Span,
    asked: Asked,
    strategies: tuple[str, ...],
    given: Schedule | None,
    confirmer: Confirmer | None,
) -> Exploration:
    incident, execute = chosen.incident, Executions()
    search: Search
    if given is None:
        search = searching(incident, asked, strategies)
    else:
        try:
            search = GivenSchedule(incident, given, execute)
        except BadSchedule as error:
            raise BadInput(f"--schedule: {error}") from error
    return Exploration(chosen, asked, search, execute, confirmer)


def _explored(exploration: Exploration, line: SearchLine, told: bool, shrinks: bool) -> Report:
    """Search, saying what is found as it is found, then shrink."""

    def tick() -> None:
        line.searching(exploration.progress(), len(exploration.findings))

    for said, finding in enumerate(exploration.search(tick)):
        line.clear()
        if told and said < SAID:
            click.echo(finding_line(finding, colour_wanted()))
    line.clear()
    try:
        go_on = _shrinking_time(exploration)
        return exploration.report(SHRINK_TRIALS if shrinks else 0, go_on, line.shrinking)
    finally:
        line.clear()


def _shrinking_time(exploration: Exploration) -> Callable[[], bool]:
    """Whether there is time left to shrink. Where the budget is a number of schedules, always:
    the same seed then gives the same bytes."""
    budget_s = exploration.asked.budget_s
    allowed_s = max(SHRINK_SHARE * (budget_s or 0.0), SHRINK_LEAST_S)
    if exploration.interrupted:
        allowed_s = SHRINK_INTERRUPTED_S
    elif budget_s is None:
        return lambda: True
    end_s = time.monotonic() + allowed_s
    return lambda: time.monotonic() < end_s


def _tell(
    report: Report, output: str, html: str | None, directory: Path | None, said: tuple[str, ...]
) -> None:
    """The report in every form asked for, first the one that nothing can keep from being told;
    notes that were `said` before are not said again."""
    if output == "json":
        print_json(report)
    else:
        _print(report, said)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_bytes(msgspec.json.encode(report) + b"\n")
    if html is not None:
        Path(html).write_text(page(report), encoding="utf-8")
        if output == "text":
            click.echo(f"page: {html}")


def _print(report: Report, said: tuple[str, ...]) -> None:
    width, colour = terminal_width(), colour_wanted()
    for finding in report.findings:
        click.echo()
        click.echo(finding_text(finding, width, colour))
    click.echo()
    notes = tuple(note for note in report.notes if note not in said)
    click.echo(summary_text(msgspec.structs.replace(report, notes=notes), width, colour))
