"""`coordctl sim mutants`: take out one guard after the other and see what finds it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from coord.cli.exits import BadInput, Exit
from coord.cli.output import Column, print_json, print_table
from coord_sim.cli.durations import Duration
from coord_sim.mutants.catalogue import GROUPS, MUTANTS
from coord_sim.mutants.finders import FINDERS
from coord_sim.mutants.hunting import (
    Campaign,
    Hunted,
    Plan,
    newest,
    read_results,
    run_campaign,
)
from coord_sim.mutants.mutant import Reach
from coord_sim.mutants.scores import Score, Total, Verdict, totals, verdicts
from coord_sim.world.artefacts import commit_or_version
from coord_sim.world.campaign import available_processors

RESULTS = Path("build/mutants.jsonl")
SEEDS, QUICK_SEEDS = 10, 1
LIMIT_S, QUICK_LIMIT_S = 60.0, 20.0
COLUMNS = (
    Column("mutant"),
    Column("by"),
    Column("seeds"),
    Column("schedules", right=True),
    Column("CPU s", right=True),
    Column("random walk"),
    Column("what broke"),
)
TOTALS = (
    Column("group"),
    Column("hunted", right=True),
    Column("found", right=True),
    Column("from most seeds", right=True),
    Column("makes no difference", right=True),
    Column("share", right=True),
)


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    commit: str
    seeds: list[int]
    limits_s: list[float]
    interrupted: bool
    hunts: int
    codes: int
    """How many versions of the code they were hunted in."""
    hunted: int
    found: int
    survivors: list[str]
    totals: list[Total]
    mutants: list[Verdict]


@click.command(
    epilog="""\b
Exit codes:
  0  every mutant was found, or is known not to be reachable
  1  some survived
  2  usage
  130  interrupted with Ctrl-C; what was found so far is printed
"""
)
@click.option("--mutant", "names", multiple=True, metavar="NAME", help="Only these; repeat it.")
@click.option("--seeds", type=click.IntRange(min=1), help="[default: 10, or 1 with --quick]")
@click.option(
    "--limit",
    type=Duration(),
    help="CPU time of one hunt.  [default: 60s, or 20s with --quick]",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Ask whoever is known to find a mutant first, and nobody after it was found.",
)
@click.option(
    "--finder",
    "finders",
    multiple=True,
    type=click.Choice([str(finder) for finder in FINDERS]),
    help="Only these; repeat it. By default every one that may reach the mutant.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: all processors]")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS,
    show_default=True,
    help="Every hunt is written there as it ends. What was hunted with the same code, seed and "
    "limit is not hunted again.",
)
@click.option(
    "--known",
    is_flag=True,
    help="Hunt nothing; show the newest of what --results holds, of whatever code.",
)
@click.option("--list", "listing", is_flag=True, help="Show the catalogue and hunt nothing.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "markdown"]), default="table")
def mutants(
    names: tuple[str, ...],
    seeds: int | None,
    limit: float | None,
    quick: bool,
    finders: tuple[str, ...],
    workers: int | None,
    results: Path,
    known: bool,
    listing: bool,
    output: str,
) -> None:
    """Proof of power: remove one guard of the product at a time, and see what finds it.

    Each mutant lacks one guard of the core, the agent, the servers or the raft guard. It is hunted
    from several seeds by every way of searching that may reach it, for so much CPU time each.
    """
    wrong = [name for name in names if name not in MUTANTS]
    if wrong:
        raise BadInput(f"no mutant {', '.join(wrong)}; `coordctl sim mutants --list` names all")
    chosen = names or tuple(MUTANTS)
    if listing:
        _print_catalogue(chosen, output)
        return
    if limit == 0:
        raise BadInput("--limit is 0; a hunt takes CPU time, give it some as 60s or 2m")
    plan = Plan(
        mutants=chosen,
        finders=tuple(Reach(finder) for finder in finders),
        seeds=seeds or (QUICK_SEEDS if quick else SEEDS),
        limit_s=limit or (QUICK_LIMIT_S if quick else LIMIT_S),
        workers=workers or available_processors(),
        results=results,
        quick=quick,
    )
    try:
        campaign = _known(plan) if known else run_campaign(plan, _tell)
    except ValueError as error:
        raise BadInput(f"{error}; move the file away, or name another with --results") from None
    if campaign.known and not known:
        click.echo(f"{campaign.known} hunts with the same code were known from {results}", err=True)
    document = _document(campaign)
    {"json": print_json, "table": _print_verdicts, "markdown": _print_markdown}[output](document)
    if campaign.interrupted:
        sys.exit(130)
    if any(not verdict.found and not MUTANTS[verdict.mutant].survives
           for verdict in document.mutants):  # fmt: skip
        sys.exit(Exit.FAILED)


def _known(plan: Plan) -> Campaign:
    """What the file tells of these mutants and finders."""
    hunts = [
        one
        for one in newest(read_results(plan.results))
        if one.assignment.mutant in plan.mutants
        and (not plan.finders or one.assignment.finder in plan.finders)
    ]
    return Campaign(hunts, len(hunts), interrupted=False)


def _tell(hunted: Hunted, done: int, whole: int) -> None:
    what = hunted.assignment
    said = f"found after {hunted.schedules}" if hunted.broken else f"not in {hunted.schedules}"
    line = f"{done}/{whole} {what.mutant}, {what.finder}, seed {what.seed}: {said}"
    click.echo(f"{line}, {hunted.cpu_s:.1f} s", err=True)


def _document(campaign: Campaign) -> Document:
    found = verdicts(campaign.hunts)
    survivors = [verdict.mutant for verdict in found if not verdict.found]
    return Document(
        commit=commit_or_version(),
        seeds=sorted({hunted.assignment.seed for hunted in campaign.hunts}),
        limits_s=sorted({hunted.assignment.limit_s for hunted in campaign.hunts}),
        interrupted=campaign.interrupted,
        hunts=len(campaign.hunts),
        codes=len({hunted.code for hunted in campaign.hunts}),
        hunted=len(found),
        found=len(found) - len(survivors),
        survivors=survivors,
        totals=totals(found),
        mutants=found,
    )


def _print_verdicts(document: Document) -> None:
    print_table(COLUMNS, [_row(verdict) for verdict in document.mutants if verdict.best])
    click.echo()
    print_table(TOTALS, [_total_row(total) for total in document.totals])
    click.echo(f"\n{_told(document)}")
    for verdict in document.mutants:
        if not verdict.best:
            click.echo(f"not found: {verdict.mutant}, {_effort(verdict)}: {verdict.reason}")


def _print_markdown(document: Document) -> None:
    """The same for a README."""
    click.echo(f"{_told(document)}\n")
    _print_markdown_table(TOTALS, [_total_row(total) for total in document.totals])
    for group in GROUPS:
        rows = [_row(one) for one in document.mutants if one.group == group and one.best]
        if rows:
            click.echo(f"\n### {group.capitalize()}\n")
            _print_markdown_table(COLUMNS, rows)
    missed = [verdict for verdict in document.mutants if not verdict.best]
    if missed:
        click.echo("\n### Not found\n")
    for verdict in missed:
        click.echo(f"- `{verdict.mutant}`, {_effort(verdict)}: {verdict.reason}")


def _print_markdown_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    click.echo(f"| {' | '.join(column.title for column in columns)} |")
    click.echo(f"|{'|'.join('---:' if column.right else '---' for column in columns)}|")
    for row in rows:
        click.echo(f"| {' | '.join(row)} |")


def _told(document: Document) -> str:
    seeds, limits = document.seeds, [f"{limit:g}" for limit in document.limits_s]
    versions = "one version" if document.codes == 1 else f"{document.codes} versions"
    return (
        f"{document.found} of {document.hunted} mutants found, in {document.hunts} hunts of "
        f"{versions} of the code. Seeds {min(seeds, default=0)} to {max(seeds, default=0)}, at "
        f"most {' or '.join(limits)} CPU s a hunt. Schedules and CPU seconds are medians over all "
        "seeds, those that found nothing with all they spent."
    )


def _row(verdict: Verdict) -> list[str]:
    best = verdict.best
    assert best is not None, f"{verdict.mutant} was not found"
    return [
        verdict.mutant,
        str(best.finder),
        f"{best.found}/{best.seeds}",
        f"{best.schedules:g}",
        f"{best.cpu_s:.1f}",
        _baseline(verdict.baseline),
        best.broken,
    ]


def _total_row(total: Total) -> list[str]:
    due = total.hunted - total.excused
    share = f"{100 * total.found / due:.0f} %" if due else "-"
    return [
        total.group,
        str(total.hunted),
        str(total.found),
        str(total.reliable),
        str(total.excused),
        share,
    ]


def _effort(verdict: Verdict) -> str:
    """By whom it was hunted, in vain."""
    return ", ".join(
        f"{score.finder} {score.seeds} seeds of {score.cpu_s:.0f} s" for score in verdict.scores
    )


def _baseline(score: Score | None) -> str:
    if score is None:
        return "-"
    return f"{score.found}/{score.seeds}, {score.schedules:g}, {score.cpu_s:.1f} s"


def _print_catalogue(names: tuple[str, ...], output: str) -> None:
    if output == "json":
        print_json([MUTANTS[name] for name in names])
        return
    columns = [Column("mutant"), Column("races"), Column("where"), Column("the guard")]
    rows = [
        [name, " ".join(map(str, MUTANTS[name].races)), MUTANTS[name].where, MUTANTS[name].guard]
        for name in names
    ]
    print_table(columns, rows)
