"""`coordctl incident`: list, export."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from coord.cli.completion import job_names
from coord.cli.job_text import INCIDENT_COLUMNS, incident_row
from coord.cli.output import print_table
from coord.cli.session import Session, session_options
from coord.cli.wording import size_text

if TYPE_CHECKING:
    from coord.client import Client


@click.group()
def incident() -> None:
    """List incidents with their cost; export the log for replay."""


@incident.command("list")
@click.option("--job", default="", help="Only those of this job.", shell_complete=job_names)
@click.option("--open", "only_open", is_flag=True, help="Only those not over yet.")
@session_options
def list_incidents(session: Session, job: str, only_open: bool) -> None:
    """What went wrong and what it cost."""
    found = [
        one
        for one in session.ask(lambda client: client.incidents())
        if (not job or one.job == job) and not (only_open and one.closed_ms >= 0)
    ]
    session.show(
        found,
        lambda _: print_table(
            INCIDENT_COLUMNS, [incident_row(one) for one in found], "no incidents"
        ),
    )


@incident.command("export")
@click.argument("file", default="incident.log", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First index.")
@click.option("--to", "stop", type=click.IntRange(min=0), default=0, help="Last index.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["binary", "jsonl"]),
    default="binary",
    show_default=True,
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@session_options
def export(
    session: Session,
    file: str,
    *,
    start: int,
    stop: int,
    file_format: Literal["binary", "jsonl"],
    force: bool,
) -> None:
    """Write the log to a file for replay.

    FILE may be - for standard output. From the oldest entry kept to the newest, unless --from and
    --to say otherwise. FILE appears when it is whole; an interrupted one stays as FILE.part, which
    replays as far as it goes.
    """
    if file == "-":
        session.ask(lambda client: _export(client, sys.stdout.buffer, start, stop, file_format))
        return
    if os.path.exists(file) and not force:
        raise click.UsageError(f"{file} exists; give another name, or --force to replace it")
    part = f"{file}.part"
    with open(part, "wb") as target:
        size_bytes = session.ask(lambda client: _export(client, target, start, stop, file_format))
    os.replace(part, file)
    session.show(
        {"file": file, "size_bytes": size_bytes},
        lambda _: click.echo(
            f"{file}: {size_text(size_bytes)}; look at it with `coordctl replay {file}`"
        ),
    )


async def _export(
    client: Client, target: BinaryIO, start: int, stop: int, file_format: Literal["binary", "jsonl"]
) -> int:
    return await client.export_incident(target, start=start, stop=stop, format=file_format)
