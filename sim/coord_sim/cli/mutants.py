"""`coordctl sim mutants`: take out one guard after the other and see what finds it."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from coord.cli.exits import BadInput, Exit
from coord.cli.output import Column, print_json, print_table
from coord_sim.cli.durations import Duration
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.finders import FINDERS
from coord_sim.mutants.hunting import Hunted, Plan, run_campaign
from coord_sim.mutants.mutant import Reach
from coord_sim.mutants.scores import Score, Verdict, verdicts
from coord_sim.world.artefacts import commit_or_version
from coord_sim.world.campaign import available_processors

RESULTS = Path("build/mutants.jsonl")


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    commit: str
    seeds: int
    limit_s: float
    interrupted: bool
    hunted: int
    found: int
    survivors: list[str]
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
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--limit", type=Duration(), default="60s", show_default=True, help="CPU time of one hunt."
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
@click.option("--list", "listing", is_flag=True, help="Show the catalogue and hunt nothing.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def mutants(
    names: tuple[str, ...],
    seeds: int,
    limit: float,
    finders: tuple[str, ...],
    workers: int | None,
    results: Path,
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
    if not limit:
        raise BadInput("--limit is 0; a hunt takes CPU time, give it some as 60s or 2m")
    plan = Plan(
        mutants=chosen,
        finders=tuple(Reach(finder) for finder in finders),
        seeds=seeds,
        limit_s=limit,
        workers=workers or available_processors(),
        results=results,
    )
    try:
        campaign = run_campaign(plan, _tell)
    except ValueError as error:
        raise BadInput(f"{error}; move the file away, or name another with --results") from None
    if campaign.known:
        click.echo(f"{campaign.known} hunts with the same code were known from {results}", err=True)
    document = _document(verdicts(campaign.hunts), plan, campaign.interrupted)
    if output == "json":
        print_json(document)
    else:
        _print_verdicts(document)
    if campaign.interrupted:
        sys.exit(130)
    if any(not verdict.found and not MUTANTS[verdict.mutant].survives
           for verdict in document.mutants):  # fmt: skip
        sys.exit(Exit.FAILED)


def _tell(hunted: Hunted, done: int, whole: int) -> None:
    what = hunted.assignment
    said = f"found after {hunted.schedules}" if hunted.broken else f"not in {hunted.schedules}"
    line = f"{done}/{whole} {what.mutant}, {what.finder}, seed {what.seed}: {said}"
    click.echo(f"{line}, {hunted.cpu_s:.1f} s", err=True)


def _document(found: list[Verdict], plan: Plan, interrupted: bool) -> Document:
    survivors = [verdict.mutant for verdict in found if not verdict.found]
    return Document(
        commit=commit_or_version(),
        seeds=plan.seeds,
        limit_s=plan.limit_s,
        interrupted=interrupted,
        hunted=len(found),
        found=len(found) - len(survivors),
        survivors=survivors,
        mutants=found,
    )


def _print_verdicts(document: Document) -> None:
    columns = [
        Column("mutant"),
        Column("found"),
        Column("by"),
        Column("schedules", right=True),
        Column("CPU s", right=True),
        Column("random walk"),
        Column("what broke, or why it survives"),
    ]
    print_table(columns, [_row(verdict) for verdict in document.mutants])
    click.echo(
        f"\n{document.found} of {document.hunted} mutants found; schedules and CPU seconds are "
        f"medians over {document.seeds} seeds, at most {document.limit_s:g} s each"
    )
    if document.survivors:
        click.echo(f"survivors: {', '.join(document.survivors)}")


def _row(verdict: Verdict) -> list[str]:
    best = verdict.best
    cost = best or min(verdict.scores, key=lambda score: score.cpu_s)
    return [
        verdict.mutant,
        f"{cost.found}/{cost.seeds}",
        str(best.finder) if best else "-",
        f"{cost.schedules:g}",
        f"{cost.cpu_s:.2f}",
        _baseline(verdict.baseline),
        best.broken if best else verdict.reason,
    ]


def _baseline(score: Score | None) -> str:
    if score is None:
        return "-"
    return f"{score.found}/{score.seeds} in {score.schedules:g}, {score.cpu_s:.2f} s"


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
