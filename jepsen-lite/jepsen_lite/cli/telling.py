"""What `coordctl faults` prints: verdicts of a run, a line for each of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from coord.cli.output import Column, print_lines, print_table
from coord.cli.wording import count_text
from jepsen_lite.judge.verdict import Judgement, Verdict
from jepsen_lite.report.wording import is_bad, verdict_word, worst_first
from jepsen_lite.run.artefacts import PAGE
from jepsen_lite.run.campaign import Done
from jepsen_lite.run.figures import Figures

VERDICTS = (Column("CHECK"), Column("VERDICT", status=True), Column("BY"), Column("DETAIL"))
RUNS = (
    Column("WORKLOAD"),
    Column("NEMESIS"),
    Column("SEED", right=True),
    Column("OPERATIONS", right=True),
    Column("FAULTS", right=True),
    Column("WORST UNAVAILABILITY", right=True),
    Column("VERDICT", status=True),
    Column(""),
)


def print_verdicts(judgements: Iterable[Judgement]) -> None:
    """The table, below it how many checks had nothing to check, and the picture of each violation
    that has one."""
    listed = list(judgements)
    ordered = worst_first(one for one in listed if one.verdict is not Verdict.NOTHING)
    print_table(
        VERDICTS,
        [
            (one.check, verdict_word(one), one.by or "run", "; ".join(one.detail.splitlines()))
            for one in ordered
        ],
        "nothing was judged",
    )
    if idle := len(listed) - len(ordered):
        print_lines([f"{count_text(idle, 'more check')} had nothing to check."])
    for one in ordered:
        if is_bad(one) and one.picture:
            click.echo(f"\n{one.picture}")


def figures_text(figures: Figures) -> str:
    """In a line."""
    return (
        f"{count_text(figures.operations, 'operation')}: {figures.ok:,} ok, {figures.fail:,} fail, "
        f"{figures.info:,} info; {count_text(figures.faults, 'fault')}; "
        f"at worst {figures.worst_unavailability_s:.2f} s without an acknowledged write"
    )


def print_one(done: Done) -> None:
    """All that is to be said of a single run."""
    report = done.report
    if report is None:
        _print_broken_off(done)
        return
    print_verdicts(report.judgements)
    click.echo()
    print_lines([figures_text(report.figures)])
    if done.before:
        print_lines([f"It was judged before, with the same options; {_again(done)}"])
    click.echo(f"  {report.repeat}")
    click.echo(f"  {done.planned.directory / PAGE}")


def print_many(runs: Sequence[Done]) -> None:
    """A line for each, then what did not hold in those that are not good."""
    print_table(RUNS, [_row(done) for done in runs], "nothing was run")
    for done in runs:
        if not done.bad:
            continue
        click.echo()
        if done.report is None:
            _print_broken_off(done)
            continue
        click.echo(f"{done.planned.name}: {done.verdict}")
        print_verdicts(done.report.broken)
        click.echo(f"  {done.report.repeat}")
        click.echo(f"  {done.planned.directory / PAGE}")


def line_of(done: Done) -> str:
    """For whoever watches."""
    told = f"{done.planned.name}: {done.verdict}"
    if done.planned.skipped:
        return f"{told}: {done.planned.skipped}"
    if done.report is None:
        return f"{told}: {done.trouble}"
    before = ", from before" if done.before else f", {done.report.seconds:.0f} s"
    aside = f"; what was there is kept in {done.aside}" if done.aside else ""
    return f"{told}; {figures_text(done.report.figures)}{before}{aside}"


def _print_broken_off(done: Done) -> None:
    planned = done.planned
    print_lines(
        [
            f"{planned.name} broke off: {done.trouble}",
            f"What was recorded is in {planned.directory}; what happened, in its trouble.txt and "
            "logs.",
        ]
    )
    click.echo(f"  {planned.options.command()}")


def _row(done: Done) -> tuple[str, ...]:
    options, report = done.planned.options, done.report
    told = done.planned.skipped or done.trouble
    if report is None:
        return (options.workload, options.nemesis, str(options.seed), "-", "-", "-",
                done.verdict, told)  # fmt: skip
    figures = report.figures
    return (
        options.workload,
        options.nemesis,
        str(options.seed),
        f"{figures.operations:,}",
        f"{figures.faults:,}",
        f"{figures.worst_unavailability_s:.2f} s",
        done.verdict,
        "from before" if done.before else "",
    )


def _again(done: Done) -> str:
    return f"take {done.planned.directory} away to run it again."
