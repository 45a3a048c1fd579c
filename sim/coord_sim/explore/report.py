"""An exploration told to people: text for a terminal, and a page that needs nothing but itself."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from importlib import resources

import click

from coord.cli.output import Column, table_text
from coord.cli.timeline_text import TINTS
from coord.cli.wording import clock_text, count_text

from .alignment import Mark
from .findings import Finding, Status
from .telling import MEANING, Coverage, Decided, Entry, FindingTold, Report, Row

UNBOUNDED_WIDTH = 132
"""Columns of what is written into a file or a pipe."""
NARROWEST_BESIDE = 90
"""Below so many columns the two orders are told one under the other."""
INDENT = "  "
GUTTER = {Mark.SAME: " ", Mark.DIFFERS: "*", Mark.MOVED: "~", Mark.GONE: "<", Mark.NEW: ">"}
AS_RECORDED = "Nothing was changed: the log breaks it as it was recorded."
LEGEND = "* other outcome   ~ moved   < only here   > only here"

COVERAGE_COLUMNS = (
    Column("STRATEGY"),
    Column("SCHEDULES", right=True),
    Column("SHARE", right=True),
    Column("BROKE", right=True),
    Column("LOG USED (MEDIAN)", right=True),
    Column("LEAST", right=True),
    Column("REACHED"),
)

Paint = Callable[[str, str], str]


def _plain(text: str, tint: str) -> str:
    return text


def painter(colour: bool) -> Paint:
    """Paints for a terminal, or leaves text as it is."""
    return (lambda text, tint: click.style(text, fg=tint) if tint else text) if colour else _plain


# Text


def finding_text(finding: FindingTold, width: int = 0, colour: bool = False) -> str:
    """A finding for a terminal of `width` columns; 0: for a file. Ends without a newline."""
    paint = painter(colour)
    width = width or UNBOUNDED_WIDTH
    lines = _heading(finding, width, paint)
    if not finding.changes:
        lines += ["", f"{INDENT}{AS_RECORDED}"]
    for change in finding.changes:
        lines += ["", *_wrapped(f"Change: {change.text}.", width)]
        lines += _wrapped(f"It takes {change.needs}.", width)
        for pair in change.pairs:
            lines += ["", f"{INDENT}Why nothing orders {pair.late} before {pair.early}:"]
            for question in pair.questions:
                lines += _wrapped(f"{question.asked} {question.answer}", width, INDENT * 2)
    lines += ["", *_orders(finding, width, paint)]
    if finding.first_good and finding.first_bad:
        lines += ["", f"{INDENT}{step_title(finding)}:"]
        lines += _step("good order", finding.first_good, width, paint)
        lines += _step("bad order", finding.first_bad, width, paint)
    if finding.repeat:
        lines += ["", f"{INDENT}Again: {finding.repeat}"]
    lines += [f"{INDENT}Written: {path}" for path in finding.files]
    return "\n".join(line.rstrip() for line in lines)


def finding_line(finding: Finding, colour: bool = False) -> str:
    """One line of a finding, said as it is found and before it is shrunk."""
    kinds = ", ".join(finding.key.kinds)
    broken = painter(colour)(finding.sentence, "red")
    return f"found by {finding.strategy}: {broken} ({kinds})"


def _heading(finding: FindingTold, width: int, paint: Paint) -> list[str]:
    tint = "red" if finding.status is Status.CONFIRMED else "yellow"
    status = paint(finding.status.value, tint)
    title = f"{finding.number}. {status}: {finding.sentence}"
    after = count_text(finding.found_after, "schedule")
    met = f"found by {finding.strategy} after {after}, met {times_text(finding.count)}"
    if finding.entries < finding.entries_before:
        met += f"; shrunk from {finding.entries_before:,} entries to {finding.entries:,}"
    if not finding.shrunk:
        met += "; not shrunk to the end"
    where = f"{finding.detail}, after entry {finding.broken_at} of the bad order"
    lines = [title, *_wrapped(where, width), *_wrapped(met, width)]
    if finding.tried:
        lines += _wrapped(f"in a simulated cluster: {finding.tried}", width)
    return lines


def _wrapped(text: str, width: int, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _orders(finding: FindingTold, width: int, paint: Paint) -> list[str]:
    if width < NARROWEST_BESIDE:
        return _one_under_the_other(finding, width, paint)
    column = (width - len(INDENT) - 5) // 2
    lines = [
        f"{INDENT}  {'GOOD ORDER'.ljust(column)} | BAD ORDER",
        f"{INDENT}  {'-' * column} | {'-' * column}",
    ]
    for row in finding.rows:
        if row.folded:
            told = _folded_text(row)
            lines.append(f"{INDENT}  {told.ljust(column)} | {told}")
            continue
        left = _cell(row.good, row, column) if row.good else []
        right = _cell(row.bad, row, column) if row.bad else []
        sign = GUTTER[row.mark]
        for at in range(max(len(left), len(right))):
            one = left[at] if at < len(left) else ("", "")
            other = right[at] if at < len(right) else ("", "")
            padded = paint(one[0], one[1]) + " " * (column - len(one[0]))
            lines.append(
                f"{INDENT}{sign if at == 0 else ' '} {padded} | {paint(other[0], other[1])}"
            )
    broken = f"here it breaks: {finding.detail}"
    for at, part in enumerate(textwrap.wrap(broken, column, subsequent_indent="  ")):
        mark = "!" if at == 0 else " "
        lines.append(f"{INDENT}{mark} {' ' * column} | {paint(part, 'red')}")
    return [*lines, "", f"{INDENT}{LEGEND}"]


def _one_under_the_other(finding: FindingTold, width: int, paint: Paint) -> list[str]:
    lines: list[str] = []
    for title, side in (("GOOD ORDER", "good"), ("BAD ORDER", "bad")):
        lines.append(f"{INDENT}{title}")
        for row in finding.rows:
            if row.folded:
                lines.append(f"{INDENT}  {_folded_text(row)}")
            entry: Entry | None = getattr(row, side)
            if entry is None:
                continue
            for at, (text, tint) in enumerate(_cell(entry, row, width - 4)):
                sign = GUTTER[row.mark] if at == 0 else " "
                lines.append(f"{INDENT}{sign} {paint(text, tint)}")
        lines.append("")
    broken = _wrapped(f"here it breaks: {finding.detail}", width)
    return [*lines[:-1], *broken, "", f"{INDENT}{LEGEND}"]


def _folded_text(row: Row) -> str:
    many = count_text(row.folded, "entry", "entries")
    return f"... {many}, {'the same' if row.mark is Mark.SAME else 'not shown'}"


def _cell(entry: Entry, row: Row, width: int) -> list[tuple[str, str]]:
    """Lines of an entry with their tint, none longer than `width`."""
    told = [(f"{entry.index} +{clock_text(entry.at_ms)} {entry.what} {entry.text}", "", "  ")]
    if row.partner:
        side = "right" if row.good else "left"
        told.append((f"(entry {row.partner} on the {side})", "bright_black", ""))
    if entry.refused:
        told.append((f"refused: {entry.refused}", "red", ""))
    if entry.duplicate_of:
        told.append((f"same request as {entry.duplicate_of}", "bright_black", ""))
    told += [(_decided(one), TINTS.get(one.what, ""), "  ") for one in entry.decisions]
    lines: list[tuple[str, str]] = []
    for at, (text, tint, hang) in enumerate(told):
        lead = "" if at == 0 else "  "
        lines += [
            (part, tint)
            for part in textwrap.wrap(
                text, width, initial_indent=lead, subsequent_indent=f"{lead}{hang}  "
            )
        ]
    return lines


def _decided(decided: Decided) -> str:
    return f"-> {decided.what} {decided.text}".rstrip()


def step_title(finding: FindingTold) -> str:
    """What the two steps below it are."""
    if finding.first_differs:
        return "The first step of which something else is made"
    return "The step that breaks it, of which the same is made in both orders"


def _step(title: str, entry: Entry, width: int, paint: Paint) -> list[str]:
    event = f"{title}: entry {entry.index}, {entry.what} {entry.text}"
    lines = _wrapped(event, width, INDENT * 2)
    if entry.refused:
        lines.append(f"{INDENT * 3}refused: {paint(entry.refused, 'red')}")
    if not entry.decisions and not entry.refused:
        lines.append(f"{INDENT * 3}accepted, nothing decided")
    for one in entry.decisions:
        parts = _wrapped(_decided(one), width, INDENT * 3)
        lines += [paint(part, TINTS.get(one.what, "")) for part in parts]
    return lines


def opening_text(report: Report) -> str:
    """What is taken apart, in one line."""
    version = f"coord {report.coord_version}, " if report.coord_version else ""
    cluster = f"cluster {report.cluster}, " if report.cluster else ""
    entries = count_text(report.entries, "entry", "entries")
    return (
        f"{report.file}: {cluster}{version}{entries} from {report.first_index} on over "
        f"{clock_text(report.lasted_ms)}, {_verified_text(report)}; seed {report.seed}, "
        f"budget {report.budget}"
    )


def _verified_text(report: Report) -> str:
    if report.verified == report.entries_in_file:
        return "every digest verified"
    if not report.verified:
        return "not verified: no digests recorded"
    return f"{report.verified:,} of {report.entries_in_file:,} digests verified"


def summary_text(report: Report, width: int = 0, colour: bool = False) -> str:
    """The table of strategies and what all of it came to."""
    lines = []
    if report.coverage:
        rows = [_coverage_row(one) for one in report.coverage]
        lines += [table_text(COVERAGE_COLUMNS, rows, width, colour), ""]
    lines += [line for note in report.notes for line in _wrapped(note, width or 10_000, "")]
    found = count_text(len(report.findings), "finding")
    confirmed = sum(one.status is Status.CONFIRMED for one in report.findings)
    rate = f", {report.schedules / report.took_s:,.0f} a second" if report.took_s else ""
    schedules = count_text(report.schedules, "schedule")
    candidates = count_text(len(report.findings) - confirmed, "candidate")
    how = f" ({confirmed} confirmed, {candidates})"
    lines.append(
        f"{'interrupted: ' if report.interrupted else ''}{schedules}{rate}: {found}"
        f"{how if report.findings else ''}"
    )
    if report.beyond:
        lines.append(f"{count_text(report.beyond, 'more schedule')} broke something else again")
    for status in Status:
        if any(one.status is status for one in report.findings):
            lines += ["", *_wrapped(f"{status.value}: {MEANING[status]}", width or 100, "")]
    return "\n".join(lines)


def _coverage_row(one: Coverage) -> tuple[str, ...]:
    none = not one.schedules
    return (
        one.strategy,
        f"{one.schedules:,}",
        permille_text(one.share),
        f"{one.found:,}",
        "-" if none else permille_text(one.consumed_median),
        "-" if none else permille_text(one.consumed_min),
        one.bound or ("all tried" if one.finished else "not begun" if none else "budget"),
    )


def permille_text(permille: int) -> str:
    """`48.3%` of 483 thousandths."""
    return f"{permille // 10}.{permille % 10}%"


def times_text(count: int) -> str:
    """`once`, `14 times`."""
    return "once" if count == 1 else f"{count:,} times"


# Page


def page(report: Report) -> str:
    """The report as one HTML page: no script, nothing to load."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        clock=clock_text,
        count=count_text,
        permille=permille_text,
        times=times_text,
        step_title=step_title,
        tint=lambda what: TINTS.get(what, "plain"),
        folded=_folded_text,
    )
    template = resources.files(__package__).joinpath("templates", "report.html").read_text()
    return environment.from_string(template).render(
        report=report,
        opening=opening_text(report),
        as_recorded=AS_RECORDED,
        meanings=MEANING,
        confirmed=sum(one.status is Status.CONFIRMED for one in report.findings),
    )
