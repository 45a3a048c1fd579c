"""`coordctl incident`: list, show, export."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from coord.cli.completion import host_names, job_names
from coord.cli.durations import DURATION
from coord.cli.exits import Failure
from coord.cli.incident_story import Story, read_story, why_text
from coord.cli.incident_text import (
    COST_COLUMNS,
    TOTAL_COLUMNS,
    cost_rows,
    durations_of,
    incident_pairs,
    total_rows,
    totals_of,
)
from coord.cli.job_text import INCIDENT_COLUMNS, incident_row
from coord.cli.output import print_json, print_pairs, print_table
from coord.cli.session import Session, log_time_ms, session_options
from coord.cli.timeline_text import item_text
from coord.cli.wording import size_text
from coord.cli.wrapping import colour_wanted, terminal_width
from coord.model.entities import FailureCause

if TYPE_CHECKING:
    from coord.client import Client
    from coord.client.views import IncidentView
    from coord.model.cost import IncidentTotal

CAUSES = [cause.value for cause in FailureCause if cause]


@click.group()
def incident() -> None:
    """What went wrong, why, and what it cost; export the log for replay."""


@incident.command("list")
@click.option("--job", default="", help="Only those of this job.", shell_complete=job_names)
@click.option(
    "--host", default="", help="Only those that began on this host.", shell_complete=host_names
)
@click.option("--cause", type=click.Choice(CAUSES), help="Only those that this one pays for.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only of the last 2h, 30m, ...")
@click.option("--open", "only_open", is_flag=True, help="Only those not over yet.")
@click.option("--totals", "only_totals", is_flag=True, help="Only what each cause cost.")
@session_options
def list_incidents(
    session: Session,
    *,
    job: str,
    host: str,
    cause: str | None,
    since: int | None,
    only_open: bool,
    only_totals: bool,
) -> None:
    """What went wrong and what it cost, and at the end what each cause cost.

    DEVICE TIME is time times devices: 8 devices that stand still for a minute are 8 minutes.
    Without a choice the totals are of all incidents that ever closed, forgotten ones too.
    """

    async def question(client: Client) -> tuple[list[IncidentView], list[IncidentTotal], int]:
        now_ms = await log_time_ms(client) if since else 0
        return await client.incidents(), await client.incident_totals(), now_ms

    kept, totals, now_ms = session.ask(question)
    found = [
        one
        for one in kept
        if (not job or one.job == job)
        and (not host or host in (one.host, one.subject))
        and (not cause or one.cause == cause)
        and (not since or one.opened_ms >= now_ms - since)
        and not (only_open and one.closed_ms >= 0)
    ]
    chosen = bool(job or host or cause or since or only_open)
    totals = totals_of(found) if chosen or not totals else totals
    if only_totals:
        session.show(totals, lambda _: _print_totals(totals))
    else:
        session.show(found, lambda _: _print_list(found, totals))


def _print_list(found: list[IncidentView], totals: list[IncidentTotal]) -> None:
    print_table(INCIDENT_COLUMNS, [incident_row(one) for one in found], "no incidents")
    if totals:
        click.echo()
        _print_totals(totals)


def _print_totals(totals: list[IncidentTotal]) -> None:
    print_table(TOTAL_COLUMNS, total_rows(totals), "no incident has closed")


@incident.command("show")
@click.argument("number", type=click.IntRange(min=1))
@session_options
def show_incident(session: Session, number: int) -> None:
    """What led to incident NUMBER, what was decided when, who pays, and the cost of each phase.

    Times are log time since the last sign of life; `<- 17, 12.0` names causes, as in `replay`.
    """

    async def question(client: Client) -> tuple[IncidentView, Story]:
        found = next((one for one in await client.incidents() if one.incident == number), None)
        if found is None:
            raise Failure(
                f"no incident {number} is kept; see `coordctl incident list`, or `coordctl replay` "
                "of an exported log"
            )
        return found, await read_story(client, found)

    found, story = session.ask(question)
    if session.json:
        print_json({"incident": found, "phases_ms": durations_of(found), "story": story})
        return
    print_pairs([*incident_pairs(found, story.hosts), ("why", why_text(story))])
    click.echo()
    print_table(COST_COLUMNS, cost_rows(found))
    for title, items in (("what led to it", story.led_to_it), ("what followed", story.followed)):
        if items:
            click.echo(f"\n{title}")
            for item in items:
                click.echo(item_text(item, colour_wanted(), False, terminal_width()))
    if story.note:
        click.echo(story.note, err=True)


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
