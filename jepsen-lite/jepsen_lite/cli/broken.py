"""`coordctl faults broken`: break the product on purpose, and see that the suite notices."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from coord.cli.exits import BadInput, Exit, Failure
from coord.cli.output import Column, print_json, print_lines, print_table
from jepsen_lite.broken.breakage import Breakage
from jepsen_lite.broken.build import DoesNotFit, edited
from jepsen_lite.broken.catalogue import breakages_named
from jepsen_lite.broken.hunt import RUN_S, UNMODIFIED, Hunt, Hunted, Try
from jepsen_lite.cli.logs import logs_to_stderr
from jepsen_lite.report.wording import CHECK_OF_ORDER
from jepsen_lite.run.abilities import abilities_here, needs_of
from jepsen_lite.run.options import RunOptions, Stage

COLUMNS = (
    Column("MUTATION"),
    Column("WORKLOAD x NEMESIS"),
    Column("SEED", right=True),
    Column("SECONDS", right=True),
    Column("REPORTED"),
)
CATALOGUE = (Column("MUTATION"), Column("WORKLOAD x NEMESIS"), Column("WHAT IS BROKEN"))
DETAIL_LENGTH = 160
FORMATS = ("table", "json", "markdown")


class Found(msgspec.Struct, frozen=True):
    """A build in what is printed. `seconds` are those from the first process of its first run to
    the verdict; of the unmodified build, those of the one run."""

    name: str
    what: str
    workload: str
    nemesis: str
    seed: int
    """Of the run that reported it, or of the last one."""
    runs: int
    seconds: float
    verdict: str
    """`caught`, `missed`; of the unmodified build `holds`, `violation`, `unknown`, `broke off`."""
    checks: list[str]
    """That were violated."""
    detail: str
    """What the first of them says."""

    @property
    def good(self) -> bool:
        return self.verdict in ("caught", "holds")


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    ok: bool
    interrupted: bool
    builds: list[Found]


class Progress:
    """Keeps what is over, for whoever interrupts, and says it on stderr."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self._told: tuple[str, RunOptions] | None = None

    def tell(self, name: str, options: RunOptions, stage: Stage) -> None:
        if (name, options) != self._told:
            self._told = (name, options)
            run = f"{options.workload} x {options.nemesis}, seed {options.seed}"
            click.echo(f"{name}: {run}", err=True)

    def ended(self, found: Found) -> None:
        self.found.append(found)
        checks = f": {'; '.join(found.checks)}" if found.checks else ""
        click.echo(f"{found.name}: {found.verdict}, {found.seconds:.0f} s{checks}", err=True)


@click.command(
    epilog="""\b
Exit codes:
  0  every broken build was caught, and the unmodified one passed the same runs
  1  some were not, or it did not
  2  usage, or something that this machine cannot do
  130  interrupted with Ctrl-C; what was found so far is printed
"""
)
@click.option("--mutation", "names", multiple=True, metavar="NAME", help="Only these; repeat it.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True, max=24 * 60),
    default=5.0,
    show_default=True,
    help="For each build; no run begins later.",
)
@click.option(
    "--run-seconds",
    type=click.FloatRange(min=1, max=3_600),
    default=RUN_S,
    show_default=True,
    help="Load of one run; start, healing and judging come on top.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The first.")
@click.option("--no-control", is_flag=True, help="Do not run the unmodified build as well.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("faults/broken"),
    show_default=True,
    help="Where builds and the folders of runs go.",
)
@click.option("--list", "listing", is_flag=True, help="Show what can be broken, and run nothing.")
@click.option("-o", "--output", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
@click.pass_context
def broken(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    minutes: float,
    run_seconds: float,
    seed: int,
    no_control: bool,
    directory: Path,
    listing: bool,
    output: str,
) -> None:
    """Break the product on purpose, one way after the other, and see that the suite notices.

    Each mutation is an edit in a copy of the product, or a disk or network that misbehaves. Its
    runs go from seed to seed until one reports a violation. Then the unmodified build has the same
    runs, which must hold.
    """
    logs_to_stderr()
    try:
        chosen = breakages_named(names)
    except ValueError as error:
        raise BadInput(f"--mutation: {error}") from error
    if listing:
        _print_catalogue(chosen, output)
        return
    _refuse_impossible(chosen)
    progress = Progress()
    hunt = Hunt(directory, run_s=run_seconds, first_seed=seed, tell=progress.tell)
    interrupted = not _completes(_all(hunt, chosen, minutes * 60, not no_control, progress))
    print_found(progress.found, interrupted, output)
    if interrupted:
        ctx.exit(Exit.INTERRUPTED)
    ctx.exit(Exit.OK if all(one.good for one in progress.found) else Exit.FAILED)


async def _all(
    hunt: Hunt, chosen: Sequence[Breakage], limit_s: float, control: bool, progress: Progress
) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    hunted: list[Hunted] = []
    for breakage in chosen:
        hunted.append(await hunt.hunt(breakage, limit_s))
        progress.ended(found_in(hunted[-1]))
    if control:
        async for tried in hunt.control(hunted):
            progress.ended(unmodified_in(tried))


def _completes(work: Coroutine[Any, Any, None]) -> bool:
    """False when it was interrupted, by Ctrl-C or SIGTERM; everything has ended in any case."""
    try:
        with asyncio.Runner() as runner:
            runner.run(work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return False
    except DoesNotFit as error:
        raise Failure(str(error)) from error
    return True


def _refuse_impossible(chosen: Sequence[Breakage]) -> None:
    """Before anything runs: edits that do not fit, and runs that this machine cannot make."""
    abilities = abilities_here()
    for one in chosen:
        try:
            edited(one.name, one.edits)
        except DoesNotFit as error:
            raise Failure(str(error)) from error
        if lacking := abilities.against(needs_of(one.workload, one.nemesis)):
            raise BadInput(f"{one.name} cannot be run here: {'; '.join(lacking)}")


def found_in(hunted: Hunted) -> Found:
    breakage, last = hunted.breakage, hunted.tries[-1]
    return Found(
        name=breakage.name,
        what=breakage.what,
        workload=breakage.workload,
        nemesis=breakage.nemesis,
        seed=last.options.seed,
        runs=len(hunted.tries),
        seconds=round(hunted.seconds, 1),
        verdict="caught" if hunted.caught else "missed",
        checks=_checks(last),
        detail=_detail(last),
    )


def unmodified_in(tried: Try) -> Found:
    options, report = tried.options, tried.report
    if report is None:
        verdict = "broke off"
    elif tried.violations:
        verdict = "violation"
    else:
        verdict = "holds" if tried.holds else "unknown"
    return Found(
        name=UNMODIFIED,
        what="nothing",
        workload=options.workload,
        nemesis=options.nemesis,
        seed=options.seed,
        runs=1,
        seconds=round(report.seconds, 1) if report else 0.0,
        verdict=verdict,
        checks=_checks(tried),
        detail=_detail(tried),
    )


def _checks(tried: Try) -> list[str]:
    """Those of order count as one, whatever the key."""
    named = (
        CHECK_OF_ORDER if one.check.startswith(CHECK_OF_ORDER) else one.check
        for one in tried.violations
    )
    return list(dict.fromkeys(named))


def _detail(tried: Try) -> str:
    said = [one.detail for one in tried.violations if one.detail]
    text = said[0] if said else tried.trouble
    line = " ".join(text.split())
    return line if len(line) <= DETAIL_LENGTH else line[: DETAIL_LENGTH - 3] + "..."


def print_found(found: Sequence[Found], interrupted: bool, output: str) -> None:
    if output == "json":
        ok = not interrupted and all(one.good for one in found)
        print_json(Document(ok, interrupted, list(found)))
    elif output == "markdown":
        _print_markdown(COLUMNS, [_row(one) for one in found])
    else:
        print_table(COLUMNS, [_row(one) for one in found], "nothing was run")
    missed = [one for one in found if not one.good]
    if output == "table" and found:
        good = len(found) - len(missed)
        print_lines(["", f"{good} of {len(found)} as they should be."])


def _row(one: Found) -> tuple[str, ...]:
    checks = "; ".join(one.checks)
    reported = checks if one.good and checks else f"{one.verdict} {checks or one.detail}".rstrip()
    pair = f"{one.workload} x {one.nemesis}"
    return (one.name, pair, str(one.seed), f"{one.seconds:.0f}", reported)


def _print_catalogue(chosen: Sequence[Breakage], output: str) -> None:
    rows = [(one.name, f"{one.workload} x {one.nemesis}", one.what) for one in chosen]
    if output == "json":
        print_json(list(chosen))
    elif output == "markdown":
        _print_markdown(CATALOGUE, rows)
    else:
        print_table(CATALOGUE, rows)


def _print_markdown(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> None:
    click.echo(f"| {' | '.join(column.title.lower() for column in columns)} |")
    click.echo(f"| {' | '.join('--:' if column.right else '---' for column in columns)} |")
    for row in rows:
        click.echo(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")
