"""`coordctl events` and `coordctl note`."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import click

from coord.cli.completion import host_names, job_names
from coord.cli.output import print_json, print_json_line
from coord.cli.session import Session, session_options
from coord.cli.timeline import Narrowing, Timeline
from coord.cli.timeline_text import item_text
from coord.cli.wrapping import colour_wanted, terminal_width

if TYPE_CHECKING:
    from coord.client import Client, Unavailable
    from coord.model.entry import Recorded

PAGE = 1_000
PAGES_BACK = 50
"""How far back the newest lines are looked for, so that an idle log is not read to its start."""


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option("--from", "first", type=click.IntRange(min=1), help="Start at this index.")
@click.option("--to", "last", type=click.IntRange(min=1), help="End with this index.")
@click.option(
    "--last",
    "count",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Without --from: so many.",
)
@click.option("--job", default="", help="Only what is about this job.", shell_complete=job_names)
@click.option("--host", default="", help="Only what is about this host.", shell_complete=host_names)
@click.option("--all", "everything", is_flag=True, help="Heartbeats, ticks and progress too.")
@session_options
def events(
    session: Session,
    *,
    follow: bool,
    first: int | None,
    last: int | None,
    count: int,
    job: str,
    host: str,
    everything: bool,
) -> None:
    """What happened and what was decided, with causes. Times are UTC.

    With -o json: the entries as recorded, as one array, or with -f one a line.
    """
    if follow and last:
        raise click.UsageError("--follow has no end; leave --to away")
    if first and last and last < first:
        raise click.UsageError(f"--to {last} stands before --from {first}")
    narrowing = Narrowing(job, host, first or 0, last or 0, everything)
    told = _Telling(narrowing, session.json, follow)

    async def read(client: Client) -> None:
        start = first
        if start is None:
            found, start = await _newest(client, narrowing, count)
            for recorded in found:
                told.tell(recorded)
        if follow:
            async for recorded in client.watch(
                start, patience_s=math.inf, on_trouble=_tell_trouble
            ):
                told.tell(recorded)
        else:
            await _read_on(client, start, last or 0, told)

    session.ask(read)
    told.finish()


def _tell_trouble(error: Unavailable) -> None:
    click.echo(f"coordctl: {error}; trying on, Ctrl-C ends it", err=True)


async def _read_on(client: Client, start: int, last: int, told: _Telling) -> None:
    """From `start` to `last`, or to the newest entry when that is 0."""
    while not last or start <= last:
        page = await client.events(start, PAGE)
        for recorded in page.events:
            if last and recorded.entry.index > last:
                return
            told.tell(recorded)
        if not page.events:
            return
        start = page.next


async def _newest(client: Client, narrowing: Narrowing, count: int) -> tuple[list[Recorded], int]:
    """The newest `count` entries worth telling, and the index after the newest of all."""
    head = await client.events(1 << 62, 1)
    found: list[Recorded] = []
    stop = head.applied_index + 1
    for _ in range(PAGES_BACK):
        start = max(stop - PAGE, head.first_index, 1)
        if start >= stop or len(found) >= count:
            break
        page = await client.events(start, stop - start)
        worth = [
            recorded
            for recorded in page.events
            if _wanted(recorded, narrowing) and recorded.entry.index < stop
        ]
        found = worth + found
        stop = start
    return found[-count:] if count else [], head.applied_index + 1


def _wanted(recorded: Recorded, narrowing: Narrowing) -> bool:
    return bool(Timeline(narrowing, start_ms=0).add(recorded))


class _Telling:
    """Prints entries as they come: text, JSON lines, or gathered for one document."""

    def __init__(self, narrowing: Narrowing, json: bool, follow: bool) -> None:
        self._timeline = Timeline(narrowing, start_ms=0)
        self._json = json
        self._follow = follow
        self._gathered: list[Recorded] = []
        self._told = False

    def tell(self, recorded: Recorded) -> None:
        items = self._timeline.add(recorded)
        if not items:
            return
        self._told = True
        if not self._json:
            colour = colour_wanted()
            width = terminal_width()
            text = "\n".join(item_text(item, colour, True, width) for item in items)
            sys.stdout.write(text + "\n")
            if self._follow:
                sys.stdout.flush()
        elif self._follow:
            print_json_line(recorded)
        else:
            self._gathered.append(recorded)

    def finish(self) -> None:
        if self._json and not self._follow:
            print_json(self._gathered)
        elif not self._told:
            click.echo("no events to tell of; --all tells of heartbeats and the like", err=True)


@click.command()
@click.argument("subject")
@click.argument("text")
@session_options
def note(session: Session, subject: str, text: str) -> None:
    """Write TEXT about SUBJECT (a job, a host, anything) into the log, to be read with it."""
    if not text.strip():
        raise click.UsageError("TEXT is empty; write what is to be noted")
    decided = session.ask(lambda client: client.note(subject, text))
    session.show(decided, lambda _: click.echo(f"noted at index {decided.index}"))
