"""`coordctl sim run`: whole clusters under faults, one for each seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from coord.cli.exits import BadInput, Exit
from coord.cli.output import Column, print_json, print_pairs, print_table
from coord.cli.wording import clock_text, count_text
from coord_sim.cli.parameters import FiniteRange
from coord_sim.world.artefacts import commit_or_version, write_artefacts
from coord_sim.world.campaign import (
    Plan,
    Progress,
    Result,
    available_processors,
    run_campaign,
)
from coord_sim.world.faults import FAULTS
from coord_sim.world.focuses import FOCUSES
from coord_sim.world.options import ALL, WorldOptions, chosen_faults, split_words
from coord_sim.world.outcome import Outcome
from coord_sim.world.run import RULES as KNOWN_RULES
from coord_sim.world.run import record_seed

DEFAULT_SEEDS = 100
LISTED_OUTCOMES = 100
"""With more seeds than this, `-o json` holds the failures and the totals alone."""
ARTEFACTS_LIMIT = 10
"""A campaign that goes on after failures writes files for so many of them."""


class Failed(msgspec.Struct, frozen=True):
    """A seed that broke something. `artefacts` is where its files are, empty for none."""

    seed: int
    broken: str
    detail: str
    repeat: str
    artefacts: str


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints: of the seeds and the code alone, without a time of this machine."""

    ok: bool
    interrupted: bool
    options: str
    commit: str
    first_seed: int
    seeds: int
    failed: int
    digest: str
    virtual_ms: int
    entries: int
    faults: dict[str, int]
    counts: dict[str, int]
    failures: list[Failed]
    outcomes: list[Outcome]


@click.command(
    epilog="""\b
Exit codes:
  0  every seed kept every promise
  1  at least one did not
  2  usage
  130  interrupted with Ctrl-C; what was found so far is printed
"""
)
@click.option("--seeds", type=click.IntRange(min=1), help="How many.  [default: 100]")
@click.option(
    "--seed",
    "first_seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="The first one.",
)
@click.option(
    "--minutes",
    type=FiniteRange(min=0, min_open=True),
    help="Start no seed after so long; alone, as many seeds as there is time for.",
)
@click.option("--nodes", type=int, default=3, show_default=True, help="Servers in each cluster.")
@click.option(
    "--hosts", type=int, default=0, help="Hosts with an agent; 0: each seed draws 2 to 10."
)
@click.option(
    "--jobs",
    type=int,
    default=0,
    help="Jobs at the start of a run (not processes of this machine; that is --workers); "
    "0: each seed draws 1 to 6.",
)
@click.option(
    "--seconds",
    type=int,
    default=60,
    show_default=True,
    help="Virtual seconds of load and faults in each run, before all is healed.",
)
@click.option(
    "--faults",
    default=ALL,
    show_default=True,
    metavar="WORDS",
    help="Which faults may happen: names and families, `all`, `none`, and with - in front "
    "not: `all,-disk`. Each seed draws from these.",
)
@click.option(
    "--membership/--no-membership",
    default=True,
    show_default=True,
    help="Whether servers come and go.",
)
@click.option(
    "--focus",
    default="",
    metavar="NAME",
    help=f"Look only where one kind of hazard comes about: {', '.join(FOCUSES)}.",
)
@click.option(
    "--off",
    multiple=True,
    metavar="RULE",
    help="Switch a rule of the raft guard off, to see what breaks. Repeatable.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Processes of this machine.  [default: one for each processor]",
)
@click.option("--keep-going", is_flag=True, help="Run all seeds, whatever fails.")
@click.option(
    "--artefacts",
    type=click.Path(file_okay=False),
    default=".",
    show_default=True,
    help="Where the files of a seed that failed are put; `-` for no files.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    seeds: int | None,
    first_seed: int,
    minutes: float | None,
    workers: int | None,
    keep_going: bool,
    artefacts: str,
    output: str,
    faults: str,
    off: tuple[str, ...],
    **sizes: Any,
) -> None:
    """Run whole clusters on virtual time, under faults, one for each seed.

    The real servers, agents and client library run on a simulated network, disk, clock and
    processes. Each seed draws its own climate. All promises are checked throughout; then
    everything is healed, and what was promised must come about. The first seed that breaks
    something is printed as one line that repeats it, and sim-failure-SEED/ holds its log, its
    trace and a report. The same seed, options and commit give the same bytes with -o json.
    """
    options = WorldOptions(faults=split_words(faults), off=off, **sizes)
    problems = options.problems(FAULTS, KNOWN_RULES)
    if problems:
        raise BadInput("; ".join(problems))
    if seeds is None and minutes is None:
        seeds = DEFAULT_SEEDS
    plan = Plan(
        first_seed=first_seed,
        seeds=seeds,
        options=options,
        workers=workers or available_processors(),
        minutes=minutes,
        keep_going=keep_going,
    )
    with _Watching(seeds) as watching:
        result = run_campaign(plan, watching.tell)
    failures, interrupted = _examine(result.failures, artefacts)
    result = result._replace(interrupted=result.interrupted or interrupted)
    if output == "json":
        print_json(_document(plan, result, failures))
    else:
        _print(plan, result, failures)
    if result.interrupted:
        ctx.exit(Exit.INTERRUPTED)
    ctx.exit(Exit.FAILED if failures else Exit.OK)


def _examine(outcomes: Sequence[Outcome], under: str) -> tuple[list[Failed], bool]:
    """Each failed seed, and whether Ctrl-C came meanwhile. What was found is told, whatever
    becomes of its files."""
    interrupted = False
    failures = []
    for at, outcome in enumerate(outcomes):
        where = ""
        if under != "-" and outcome.digest and at < ARTEFACTS_LIMIT and not interrupted:
            try:
                where = _recorded(outcome, under)
            except OSError as error:
                click.echo(f"coordctl: seed {outcome.seed} leaves no files: {error}", err=True)
            except KeyboardInterrupt:
                interrupted = True
        repeat = outcome.repeat_line(commit_or_version())
        failures.append(Failed(outcome.seed, outcome.broken, outcome.detail, repeat, where))
    return failures, interrupted


def _recorded(outcome: Outcome, under: str) -> str:
    """Run it again with everything kept, and write that down."""
    recording = record_seed(outcome.seed, outcome.options)
    if recording.outcome.digest != outcome.digest:
        click.echo(
            f"coordctl: seed {outcome.seed} went another way when it was run again for its files: "
            f"digest {recording.outcome.digest}, before {outcome.digest}",
            err=True,
        )
    return str(write_artefacts(recording, Path(under)))


def _document(plan: Plan, result: Result, failures: list[Failed]) -> Document:
    totals = result.totals
    return Document(
        ok=not failures,
        interrupted=result.interrupted,
        options=plan.options.command_line(),
        commit=commit_or_version(),
        first_seed=plan.first_seed,
        seeds=totals.seeds,
        failed=totals.failed,
        digest=result.digest,
        virtual_ms=totals.virtual_ms,
        entries=totals.entries,
        faults=totals.faults,
        counts=totals.counts,
        failures=failures,
        outcomes=result.outcomes if len(result.outcomes) <= LISTED_OUTCOMES else [],
    )


def _print(plan: Plan, result: Result, failures: list[Failed]) -> None:
    totals = result.totals
    for failed in failures:
        click.echo(f"seed {failed.seed} broke a promise: {failed.broken}")
        for line in failed.detail.splitlines():
            click.echo(f"  {line}")
        click.echo(f"  {failed.repeat}")
        if failed.artefacts:
            click.echo(f"  {failed.artefacts}/report.html says more")
    if failures:
        click.echo()
    allowed = chosen_faults(plan.options.faults, FAULTS)
    happened = [(name, f"{totals.faults.get(name, 0):,}") for name in allowed]
    print_table([Column("FAULT"), Column("HAPPENED", right=True)], happened, "no faults")
    click.echo()
    other = [(name, f"{count:,}") for name, count in totals.counts.items()]
    print_table([Column("ALSO"), Column("HAPPENED", right=True)], other, "nothing happened")
    click.echo()
    first, last = plan.first_seed, plan.first_seed + max(totals.seeds - 1, 0)
    print_pairs(
        [
            ("seeds", f"{totals.seeds} ({first} to {last}), {totals.failed} failed"),
            ("options", plan.options.command_line()),
            ("virtual time", clock_text(totals.virtual_ms)),
            ("entries", f"{totals.entries:,}"),
            ("digest", result.digest),
            ("took", _speed_text(result)),
        ]
    )


def _speed_text(result: Result) -> str:
    virtual_s = result.totals.virtual_ms / 1_000
    wall_s, cpu_s = max(result.wall_s, 0.001), max(result.cpu_s, 0.001)
    return (
        f"{result.wall_s:.1f} s, {result.totals.seeds / wall_s:.2f} seeds/s, "
        f"{virtual_s / wall_s:.0f} virtual s/s, {virtual_s / cpu_s:.0f} a processor second"
    )


class _Watching:
    """A progress bar on a terminal, and nothing elsewhere."""

    def __init__(self, seeds: int | None) -> None:
        self._seeds = seeds
        self._bar: Any = None
        self.tell: Callable[[Progress], None] = lambda _: None

    def __enter__(self) -> _Watching:
        if not sys.stderr.isatty():
            return self
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("seeds"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        task = self._bar.add_task("seeds", total=self._seeds, told="")

        def tell(progress: Progress) -> None:
            wall_s = max(progress.wall_s, 0.001)
            told = (
                f"{progress.done / wall_s:.2f} seeds/s, {progress.virtual_s / wall_s:.0f} virtual "
                f"s/s, {count_text(progress.failed, 'failure')}"
            )
            self._bar.update(task, completed=progress.done, told=told)

        self.tell = tell
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
