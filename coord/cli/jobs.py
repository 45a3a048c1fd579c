"""`coordctl job`: submit, list, show, why, logs, cancel, resize, rollback."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coord.cli.completion import job_names
from coord.cli.exits import BadInput, Failure
from coord.cli.job_text import (
    INCIDENT_COLUMNS,
    JOB_COLUMNS,
    TASK_COLUMNS,
    gang_lines,
    incident_row,
    job_pairs,
    job_row,
    job_why,
    rollback_lines,
    task_row,
)
from coord.cli.jobfile import read_job
from coord.cli.joblogs import TaskOutput
from coord.cli.output import print_json, print_lines, print_pairs, print_table
from coord.cli.session import Session, log_time_ms, session_options
from coord.cli.why_text import (
    SIEVE_COLUMNS,
    STANDING_COLUMNS,
    gang_why_lines,
    sieve_row,
    standing_rows,
    why_lines,
)
from coord.model.entities import JobStatus
from coord.model.rejections import Rejection

if TYPE_CHECKING:
    from coord.client import Client
    from coord.client.views import IncidentView, JobView

POLL_S = 0.5


@click.group()
def job() -> None:
    """Submit, look at, resize, roll back and cancel jobs; read what their tasks print."""


@job.command("submit")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Only check the file; no server is asked.")
@click.option("--wait", is_flag=True, help="Follow the job to its end; exit 1 unless it completed.")
@session_options
def submit(session: Session, file: str, dry_run: bool, wait: bool) -> None:
    """Submit the job in a file.

    FILE is YAML or JSON; - reads standard input. All mistakes in it are told at once.
    """
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    spec = read_job(content, "stdin" if file == "-" else file)
    if dry_run:
        if session.json:
            print_json(spec)
        else:
            click.echo(f"{file} is a valid job; without --dry-run it would be submitted")
        return

    async def submit_it(client: Client) -> JobView:
        submitted = await client.submit_job(spec)
        click.echo(f"submitted {spec.name} at index {submitted.submitted}", err=True)
        for problem in submitted.warnings:
            click.echo(f"warning: {problem.path} {problem.message}", err=True)
        if submitted.warnings:
            click.echo(f"{spec.name} waits until the fleet has grown so far", err=True)
        return await _until_ended(client, spec.name) if wait else submitted

    view = session.ask(submit_it)
    if session.json:
        print_json(view)
    elif not wait:
        click.echo(f"{view.name}  {view.status}{f'  {job_why(view)}' if job_why(view) else ''}")
    if wait and view.status != JobStatus.COMPLETED:
        raise Failure(
            f"job {view.name} ended as {view.status}: {job_why(view) or 'no reason recorded'}; "
            f"see `coordctl job show {view.name}` and `coordctl job logs {view.name}`"
        )


async def _until_ended(client: Client, name: str) -> JobView:
    """Say on stderr how the job goes until it has ended."""
    told = ""
    while True:
        view = await client.job(name)
        step = max((gang.step for gang in view.gangs), default=-1)
        why = job_why(view)
        now = f"{view.status}, generation {view.generation}{f', {why}' if why else ''}"
        if now != told:
            click.echo(f"{name}: {now}{f', at step {step}' if step >= 0 else ''}", err=True)
            told = now
        if view.finished:
            return view
        await asyncio.sleep(POLL_S)


@job.command("list")
@click.option("--all", "everything", is_flag=True, help="Ended jobs too.")
@session_options
def list_jobs(session: Session, everything: bool) -> None:
    """Jobs that have not ended, oldest first."""

    async def question(client: Client) -> tuple[list[JobView], int]:
        return list(await client.jobs()), await log_time_ms(client)

    jobs, now_ms = session.ask(question)
    shown = [view for view in jobs if everything or not view.finished]
    ended = len(jobs) - len(shown)
    hint = f"no jobs run or wait; {ended} ended, shown with --all" if ended else "no jobs"
    session.show(
        shown,
        lambda _: print_table(JOB_COLUMNS, [job_row(view, now_ms) for view in shown], hint),
    )


@job.command("show")
@click.argument("name", shell_complete=job_names)
@session_options
def show_job(session: Session, name: str) -> None:
    """Everything about one job.

    Its gangs and tasks, the restore point, why it waits, and what its incidents cost.
    """

    async def question(client: Client) -> tuple[JobView, list[IncidentView], int]:
        view = await client.job(name)
        incidents = [found for found in await client.incidents() if found.job == name]
        return view, incidents, await log_time_ms(client)

    view, incidents, now_ms = session.ask(question)
    if session.json:
        print_json({"job": view, "incidents": incidents, "applied_index": view.applied_index})
        return
    print_pairs(job_pairs(view, now_ms))
    for gang in view.gangs:
        click.echo()
        print_lines(gang_lines(gang, now_ms))
        if gang.tasks:
            print_table(TASK_COLUMNS, [task_row(task) for task in gang.tasks])
    if incidents:
        click.echo()
        print_table(INCIDENT_COLUMNS, [incident_row(found) for found in incidents])


@job.command("why")
@click.argument("name", shell_complete=job_names)
@session_options
def why(session: Session, name: str) -> None:
    """Why a job waits, or where it went.

    For each of its gangs: what was asked of the hosts one after the other, how many were left and
    what excluded the others, and how those that it has compare with the best of those it has not.
    """
    found = session.ask(lambda client: client.why(name))

    def told(_: object) -> None:
        print_lines(why_lines(found))
        for gang in found.gangs:
            click.echo()
            print_lines(gang_why_lines(gang))
            if gang.sieves:
                print_table(SIEVE_COLUMNS, [sieve_row(sieve) for sieve in gang.sieves])
            if gang.chosen:
                print_table(STANDING_COLUMNS, standing_rows(gang))

    session.show(found, told)


@job.command("cancel")
@click.argument("name", shell_complete=job_names)
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def cancel(session: Session, name: str, reason: str) -> None:
    """End a job now.

    Its tasks get SIGTERM, and SIGKILL after their role's grace_ms.
    """
    view = session.ask(lambda client: client.cancel_job(name, reason=reason))
    session.show(view, lambda _: click.echo(f"cancelling {name}"))


@job.command("resize")
@click.argument("name", shell_complete=job_names)
@click.argument("role")
@click.argument("replicas", type=click.IntRange(min=1))
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def resize(session: Session, name: str, role: str, replicas: int, reason: str) -> None:
    """Run a role with another number of replicas.

    REPLICAS must be within the role's min_replicas and max_replicas.
    """

    async def resize_it(client: Client) -> JobView:
        from coord.client import Rejected

        try:
            return await client.resize_job(name, role, replicas, reason=reason)
        except Rejected as refused:
            if refused.rejection != Rejection.OUT_OF_RANGE:
                raise
            wanted = (await client.job(name)).spec.role(role)
            if wanted is None:
                raise
            bounds = f"{wanted.smallest} to {wanted.largest}"
            only = wanted.smallest == wanted.largest
            raise Failure(
                f"{name}/{role} takes {wanted.smallest if only else bounds} replicas, "
                f"not {replicas}: min_replicas and max_replicas in its job file; "
                f"nothing was changed"
            ) from refused

    view = session.ask(resize_it)
    session.show(view, lambda _: click.echo(f"{name}/{role} wants {replicas} replicas"))


@job.command("rollback")
@click.argument("name", shell_complete=job_names)
@click.option("--to", type=click.IntRange(min=0), metavar="STEP", help="The checkpoint's step.")
@click.option(
    "--back", type=click.IntRange(min=1), metavar="N", help="How many before the newest one."
)
@click.option("--role", default="", help="Only this role; else all that have a checkpoint.")
@click.option("--reason", required=True, help="Recorded in the log.")
@session_options
def rollback(
    session: Session, name: str, *, to: int | None, back: int | None, role: str, reason: str
) -> None:
    """Go on from an older checkpoint.

    What runs is restarted there. Newer checkpoints are set aside, and nothing deletes their files:
    --to one of them brings it back. `coordctl job show` lists them all.
    """
    if (to is None) == (back is None):
        raise BadInput("give either --to STEP or --back N")
    step = -1 if to is None else to

    def ask(client: Client) -> Coroutine[Any, Any, JobView]:
        return client.roll_back_job(name, step=step, back=back or 0, role=role, reason=reason)

    view = session.ask(ask)
    session.show(view, lambda _: print_lines(rollback_lines(view, role)))


@job.command("logs")
@click.argument("name", shell_complete=job_names)
@click.option("--role", default="", help="Which role; the first one when not given.")
@click.option("--index", default=0, show_default=True, help="Which of its tasks.")
@click.option("--generation", default=0, help="Which run; the newest when not given.")
@click.option(
    "--stream", type=click.Choice(["stdout", "stderr"]), default="stdout", show_default=True
)
@click.option("-f", "--follow", is_flag=True, help="Go on, also into later generations.")
@click.option("--offset", default=0, show_default=True, help="Bytes to skip from the start.")
@session_options
def logs(
    session: Session,
    name: str,
    *,
    role: str,
    index: int,
    generation: int,
    stream: str,
    follow: bool,
    offset: int,
) -> None:
    """What a task printed, from its start.

    With -o json: a document for each line of it, with the task that printed it.
    """

    async def copy(client: Client) -> None:
        output = TaskOutput(client, name, role, index, stream, session.json)
        await output.copy(generation, offset, follow)

    session.ask(copy)
