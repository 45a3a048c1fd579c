"""`coordctl sim fleet`: a large fleet over weeks, under one policy or two."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from coord.cli.exits import BadInput, Exit
from coord.cli.output import Column, print_json, print_table
from coord_sim.cli.parameters import FiniteRange, Page

DEFAULT_HOSTS = 2_048
DEFAULT_DAYS = 54.0
HOSTS_LIMIT = 16_384
CHECK_HOSTS = 64


@click.command(
    epilog="""\b
Exit codes:
  0  done
  1  --check: the model and the closed form differ by more than 5 %
  2  usage, or a policy that cannot be used; the message names its line
  130  interrupted with Ctrl-C; what was found so far is printed
"""
)
@click.option("--hosts", type=click.IntRange(1, HOSTS_LIMIT), help="Spares included.  [2048]")
@click.option(
    "--gpus", type=click.IntRange(1, 64), default=8, show_default=True, help="Devices of a host."
)
@click.option("--days", type=FiniteRange(0.01, 3_650), help="Of log time.  [54]")
@click.option("--policy", type=click.Path(), help="A policy file; without one, the defaults.")
@click.option("--compare", type=click.Path(), help="Another policy, on the same failures.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1_000),
    help="So many seeds from --seed on.  [1; with --check, 3]",
)
@click.option("--check", is_flag=True, help="Compare the model with the closed form instead.")
@click.option("--keys", is_flag=True, help="List the keys of a policy file, and end.")
@click.option("--html", type=Page(), help="Write a page as well.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def fleet(
    ctx: click.Context,
    *,
    hosts: int | None,
    gpus: int,
    days: float | None,
    policy: str | None,
    compare: str | None,
    seed: int,
    seeds: int | None,
    check: bool,
    keys: bool,
    html: str | None,
    output: str,
) -> None:
    """Model a fleet that trains one large job for weeks, with the real core deciding.

    Hosts, links and the job fail as published fleets do; agents obey, launch and report; the core
    suspects, declares lost, stops, places and restarts. Told are effective training time, what was
    lost to what, spares, and verdicts that were wrong. Everything comes from the seed: --compare
    runs both policies on the very same failures. The time it took is told on stderr.

    --check runs the worked points of the closed form instead, each on at most --hosts hosts [64]
    at a failure rate raised to match: only the product enters the formula.
    """
    if keys:
        _print_keys(output)
        return
    days = DEFAULT_DAYS if days is None else days
    started_s = time.monotonic()
    if check:
        if policy or compare or html:
            raise click.UsageError("--check has policies of its own, and no page")
        code = _check(hosts or CHECK_HOSTS, days, range(seed, seed + (seeds or 3)), output)
    else:
        from coord_sim.fleet.comparing import Fleet

        plan = Fleet(hosts or DEFAULT_HOSTS, gpus, days, tuple(range(seed, seed + (seeds or 1))))
        code = _run(plan, policy, compare, html, output)
    click.echo(f"simulated in {time.monotonic() - started_s:.1f} s", err=True)
    ctx.exit(code)


def _run(plan: Any, policy: str | None, compare: str | None, html: str | None, output: str) -> int:
    from coord_sim.fleet.comparing import Named, UnlikeFailures, check_comparable, run_fleet
    from coord_sim.fleet.policy import Policy
    from coord_sim.fleet.telling import document, page, print_comparison

    policies = [_load(policy) if policy else Named("defaults", Policy())]
    if compare:
        policies.append(_load(compare))
        if policies[0].name == policies[1].name and policy:
            policies = [Named(policy, policies[0].policy), Named(compare, policies[1].policy)]
        try:
            check_comparable(*policies)
        except UnlikeFailures as error:
            raise BadInput(str(error)) from error
    for named in policies:
        _check_size(named, plan.hosts)
    with _progress("days") as show:
        comparison = run_fleet(plan, policies, show)
    if output == "json":
        print_json(document(comparison))
    else:
        print_comparison(comparison)
    if html:
        Path(html).write_text(page(comparison), encoding="utf-8")
    if comparison.interrupted:
        done = sum(one.days for runs in comparison.runs for one in runs.results)
        whole = plan.days * len(plan.seeds) * len(policies)
        click.echo(f"interrupted: {done:.1f} of {whole:g} days were run", err=True)
        return Exit.INTERRUPTED
    return Exit.OK


def _load(path: str) -> Any:
    from coord_sim.fleet.comparing import Named
    from coord_sim.fleet.policy_file import PolicyError, load_policy

    try:
        return Named(Path(path).name, load_policy(path))
    except PolicyError as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def _check_size(named: Any, hosts: int) -> None:
    job = named.policy.job
    needed = job.spares + max(job.min_replicas, 1)
    if hosts < needed:
        raise BadInput(
            f"{named.name}: --hosts is {hosts}, but job.spares {job.spares} and "
            f"job.min_replicas {job.min_replicas} need at least {needed}"
        )


def _check(hosts: int, days: float, seeds: range, output: str) -> int:
    from coord_sim.fleet.checking import check_points
    from coord_sim.fleet.telling import print_checked

    points = []
    interrupted = False
    with _progress("%") as show:
        try:
            for point in check_points(
                hosts_limit=hosts,
                days=days,
                seeds=seeds,
                progress=lambda share, doing: show(100 * share, 100, doing),
            ):
                points.append(point)
        except KeyboardInterrupt:
            interrupted = True
    if output == "json":
        print_json(
            [{"mean": round(one.mean, 6), "agrees": one.agrees, "checked": one} for one in points]
        )
    else:
        print_checked(points)
    if interrupted:
        click.echo(f"interrupted: {len(points)} of 3 points were run", err=True)
        return Exit.INTERRUPTED
    return Exit.OK if all(one.agrees for one in points) else Exit.FAILED


@contextmanager
def _progress(unit: str) -> Any:
    """Hands out `show(done, whole, what)`: a bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.completed:.1f} of {task.total:g} " + unit),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task("", total=None)

        def show(done: float, whole: float, what: str) -> None:
            bar.update(task, completed=done, total=whole, description=what)

        shown: Callable[[float, float, str], None] = show
        yield shown


def _print_keys(output: str) -> None:
    from coord_sim.fleet.policy_file import policy_keys

    found = list(policy_keys())
    if output == "json":
        print_json(
            [
                {
                    "section": one.section,
                    "key": one.name,
                    "default": one.default,
                    "meaning": one.meaning,
                }
                for one in found
            ]
        )
        return
    columns = [Column("SECTION"), Column("KEY"), Column("DEFAULT", right=True), Column("MEANING")]
    print_table(
        columns, [(one.section, one.name, _default(one.default), one.meaning) for one in found]
    )


def _default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"
