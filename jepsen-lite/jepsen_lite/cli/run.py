"""`coordctl faults run`: load, misfortunes, healing, judgement; once or many times."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from coord.cli.exits import BadInput, Exit, NoServer
from coord.cli.output import print_json, print_lines
from coord.cli.wording import count_text
from jepsen_lite.cli.logs import logs_to_stderr
from jepsen_lite.cli.telling import print_many, print_one
from jepsen_lite.cli.watching import Watching
from jepsen_lite.cluster.attached import Unreachable
from jepsen_lite.history.journal import HistoryError
from jepsen_lite.network.choice import KINDS, which_network
from jepsen_lite.network.port import NetworkFailed
from jepsen_lite.run.abilities import Abilities, abilities_here
from jepsen_lite.run.artefacts import history_in
from jepsen_lite.run.attached import abilities_there
from jepsen_lite.run.campaign import Campaign, Done, Planned, every_pair, plan
from jepsen_lite.run.figures import Figures
from jepsen_lite.run.options import RunOptions

DEFAULT_MINUTES = 0.5
DEFAULT = RunOptions()


class RunDocument(msgspec.Struct, frozen=True):
    """A run in what `-o json` prints. The folder holds the whole report as verdict.json."""

    workload: str
    nemesis: str
    seed: int
    verdict: str
    figures: Figures | None
    broken: list[str]
    """Checks that did not hold or are not decided."""
    told: str
    """Why it was skipped or broke off."""
    from_before: bool
    directory: str
    repeat: str


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints. `not_run` counts what was planned and did not begin."""

    ok: bool
    interrupted: bool
    runs: list[RunDocument]
    not_run: int


@click.command(
    epilog="""\b
Exit codes:
  0  everything that was judged holds
  1  a violation, a verdict that is not known, or a run that broke off
  2  usage, or something that this machine cannot do and nothing else was asked for
  3  no server of the cluster given with --attach answers
  130  interrupted with Ctrl-C; everything has ended, and what was recorded is kept
"""
)
@click.option(
    "--workload",
    default="registers",
    show_default=True,
    metavar="W[,W..]",
    help="What clients do, from `coordctl faults list`; + puts several into one run, `all` is "
    "each of them in a run of its own.",
)
@click.option(
    "--nemesis",
    required=True,
    metavar="N[,N..]",
    help="What goes wrong, likewise; `none` is nothing.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True, max=24 * 60),
    default=DEFAULT_MINUTES,
    show_default=True,
    help="Of load and misfortunes in each run; start, healing and judging come on top.",
)
@click.option("--seed", type=click.IntRange(min=0), default=DEFAULT.seed, show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="So many seeds, from --seed on.",
)
@click.option(
    "--servers", type=click.Choice(["3", "5"]), default=str(DEFAULT.servers), show_default=True
)
@click.option("--hosts", type=click.IntRange(0, 20), default=DEFAULT.hosts, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True, max=10_000),
    default=DEFAULT.rate,
    show_default=True,
    help="Operations a second of a workload's clients together.",
)
@click.option("--network", type=click.Choice(KINDS), default=DEFAULT.network, show_default=True)
@click.option(
    "--attach",
    default=None,
    metavar="URL[,URL..]",
    help="Of servers of a cluster that runs already: use it in place of one of our own. What "
    "breaks it must have a command in --hooks; its own jobs and hosts are left alone.",
)
@click.option(
    "--hooks",
    default="",
    metavar="FILE",
    help="YAML with the commands by which that cluster lets itself be broken; "
    "jepsen_lite.cluster.hooks describes it.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    default="faults",
    show_default=True,
    help="Each run gets a folder in it. One that was judged before is not run again.",
)
@click.option("--keep-going", is_flag=True, help="Make all runs, whatever fails.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def run(
    ctx: click.Context,
    *,
    workload: str,
    nemesis: str,
    minutes: float,
    seed: int,
    seeds: int,
    servers: str,
    hosts: int,
    rate: float,
    network: str,
    attach: str | None,
    hooks: str,
    directory: str,
    keep_going: bool,
    output: str,
) -> None:
    """Start a cluster, let clients work while things go wrong, heal it, and judge.

    `--workload registers,jobs --nemesis kill-leader,slow` makes four runs, one after the other;
    `--nemesis kill-leader+slow` lets both happen in one. The folder of a run holds its history,
    its log, the logs of all processes and report.html. The same options and seed draw the same
    operations and misfortunes; when each of them happens is up to real processes.
    """
    urls = tuple(url.strip() for url in (attach or "").split(",") if url.strip())
    if attach is not None and not urls:
        # A variable of a shell that is not set must not make this a run on this machine.
        raise BadInput(f"--attach is {attach!r}; give the URLs of that cluster's servers")
    options = RunOptions(
        seconds=round(minutes * 60, 3),
        servers=int(servers),
        hosts=hosts,
        rate=rate,
        network=network,
        attach=urls,
        hooks=hooks,
    )
    runs = every_pair(workload, nemesis, range(seed, seed + seeds), options)
    with _terminated_as_interrupted():
        planned = _planned(runs, Path(directory))
        _make(Path(directory))
        with Watching(planned) as watching:
            logs_to_stderr()
            campaign = Campaign(
                planned, keep_going=keep_going, tell=watching.tell, ended=watching.ended
            )
            interrupted = not _completes(campaign)
    _tell(campaign, interrupted, output)
    if interrupted:
        ctx.exit(Exit.INTERRUPTED)
    ctx.exit(Exit.FAILED if any(done.bad for done in campaign.done) else Exit.OK)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does, so that what is being tried out is taken back as well."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _planned(runs: list[RunOptions], base: Path) -> list[Planned]:
    problems = dict.fromkeys(problem for options in runs for problem in options.problems())
    if problems:
        raise BadInput("; ".join(problems))
    planned = plan(runs, base, _abilities(runs[0]))
    if all(one.skipped for one in planned):
        reasons = dict.fromkeys(
            f"{one.options.workload} under {one.options.nemesis} is not possible here: "
            f"{one.skipped}"
            for one in planned
        )
        raise BadInput("\n".join(reasons))
    return planned


def _make(directory: Path) -> None:
    """So that a folder that cannot be written is no matter of a run."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--directory {directory} cannot be made: {error.strerror}; name another one"
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BadInput(f"--directory {directory} cannot be written to by you; name another one")


def _abilities(options: RunOptions) -> Abilities:
    """Of this machine, or of the cluster that is attached."""
    if options.attached:
        try:
            return asyncio.run(abilities_there(options))
        except Unreachable as error:
            raise NoServer(f"--attach: {error}") from error
    try:
        which_network(options.network, "", tell=lambda _: None)
    except NetworkFailed as error:
        raise BadInput(f"--network {options.network}: {error}") from error
    return abilities_here(options.network, options.hosts)


def _completes(campaign: Campaign) -> bool:
    """False when it was interrupted, by Ctrl-C or SIGTERM; everything has ended in any case."""
    try:
        with asyncio.Runner() as runner:
            runner.run(_until_terminated(campaign))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return False
    return True


async def _until_terminated(campaign: Campaign) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await campaign.run()


def _tell(campaign: Campaign, interrupted: bool, output: str) -> None:
    left = campaign.planned[len(campaign.done) :]
    if output == "json":
        print_json(
            Document(
                ok=not interrupted and not any(done.bad for done in campaign.done),
                interrupted=interrupted,
                runs=[_document(done) for done in campaign.done],
                not_run=len(left),
            )
        )
    elif len(campaign.planned) == 1 and campaign.done:
        print_one(campaign.done[0])
    elif campaign.done:
        print_many(campaign.done)
    if interrupted:
        _tell_interrupted(campaign)
    elif left:
        print_lines([f"{count_text(len(left), 'run')} did not begin; --keep-going makes all."])


def _tell_interrupted(campaign: Campaign) -> None:
    """On stderr, what became of the run that was under way."""
    planned = campaign.under_way
    left = len(campaign.planned) - len(campaign.done)
    again = "the same command goes on with it" if left > 1 else "the same command begins it anew"
    click.echo(f"interrupted: {count_text(left, 'run')} not judged; {again}", err=True)
    if planned is None:
        return
    try:
        history = history_in(planned.directory)
    except HistoryError:
        history = None  # Interrupted before its first line.
    if history is not None and history.operations:
        click.echo(
            f"{count_text(len(history.operations), 'operation')} of {planned.name} are recorded; "
            f"`coordctl faults judge {planned.directory}` judges them",
            err=True,
        )


def _document(done: Done) -> RunDocument:
    options, report = done.planned.options, done.report
    return RunDocument(
        workload=options.workload,
        nemesis=options.nemesis,
        seed=options.seed,
        verdict=done.verdict,
        figures=report.figures if report else None,
        broken=[one.check for one in report.broken] if report else [],
        told=done.planned.skipped or done.trouble,
        from_before=done.before,
        directory=str(done.planned.directory),
        repeat=options.command(),
    )
