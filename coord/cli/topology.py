"""`coordctl topology`: import, show."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coord.cli.completion import host_names
from coord.cli.exits import BadInput
from coord.cli.output import print_json_line
from coord.cli.session import Session, session_options
from coord.model.place import LEVELS
from coord.model.rejections import Rejection

if TYPE_CHECKING:
    from coord.client import Client
    from coord.client.views import TopologyView
    from coord.topology.topology import Topology

REFRESH_S = 2.0
FORMATS = ("slurm", "ibnetdiscover", "nccl", "nvidia-smi", "kubernetes", "netq", "topograph")
READ_LIMIT_BYTES = (64 << 20) + 1


@click.group()
def topology() -> None:
    """Where hosts stand: import it from files; see each domain's health and use."""


@topology.command("import", short_help="Tell the cluster where hosts stand.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="What the file is.  [default: told from its content]",
)
@click.option(
    "--host",
    default="",
    metavar="NAME",
    shell_complete=host_names,
    help="Whom it describes, for nccl and nvidia-smi, which describe one host.",
)
@click.option("--merge", is_flag=True, help="Keep what earlier imports said beside it.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@session_options
def import_file(
    session: Session,
    file: str,
    format_name: str | None,
    host: str,
    merge: bool,
    dry_run: bool,
) -> None:
    """Tell the cluster where hosts stand, from a FILE ("-": standard input).

    It reads Slurm's topology.conf, the output of ibnetdiscover and of `nvidia-smi topo -m`, NCCL's
    topology XML, `kubectl get nodes -o json` (or yaml), NetQ's JSON and topograph's models; packed
    by gzip too. What it says counts over what agents announce, for hosts that register later as
    well. It takes the place of earlier imports; one of a single host (--host) is always merged.
    """
    from coord.cli.topology_text import Changes, changes, tell_changes
    from coord.client.errors import Rejected

    name = "standard input" if file == "-" else Path(file).name
    read = _read(file, name, format_name or "", host)
    merge = merge or read.local

    async def compare(client: Client) -> Changes:
        return changes(await client.topology(), read, merge)

    async def send(client: Client) -> Changes:
        found = await compare(client)
        source = f"{name} ({read.format})"
        try:
            done = await client.import_topology(
                read.hosts, read.switches, source=source, merge=merge
            )
        except Rejected as rejected:
            if rejected.rejection != Rejection.NOTHING_TO_DO:
                raise
        else:
            found.index = done.index
        return found

    found = session.ask(compare if dry_run else send)
    session.show(found, lambda _: tell_changes(name, read, found, dry_run))


def _read(file: str, name: str, format_name: str, host: str) -> Topology:
    from coord.topology.reading import read
    from coord.topology.topology import TopologyError

    try:
        if file == "-":
            content = sys.stdin.buffer.read(READ_LIMIT_BYTES)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(READ_LIMIT_BYTES)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror or error}; nothing was imported") from error
    try:
        return read(content, name, format_name, host)
    except TopologyError as error:
        raise BadInput(f"{error}; nothing was imported") from error


@topology.command("show", short_help="The tree of domains with health and use.")
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="How far down.  [default: as far as fits on a screen]",
)
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes.")
@session_options
def show(session: Session, level: str | None, watch: bool) -> None:
    """The tree of domains with health and use, and the hosts that have no place.

    RAILS counts the ports that hosts have, of as many as most hosts with such devices have.
    """
    from coord.cli.topology_text import document, tell_tree

    if not watch:
        view = session.ask(lambda client: client.topology())
        session.show(document(view, level or ""), lambda _: tell_tree(view, level or ""))
        return

    def tell(view: TopologyView) -> None:
        if session.json:
            print_json_line(document(view, level or ""))
        else:
            click.clear()
            tell_tree(view, level or "")

    session.follow(_versions, tell)


async def _versions(client: Client) -> AsyncIterator[TopologyView]:
    """As it is now, and again whenever something of it has changed."""
    from msgspec.structs import replace

    shown: TopologyView | None = None
    while True:
        view = await client.topology()
        if shown is None or replace(view, applied_index=shown.applied_index) != shown:
            shown = view
            yield view
        await asyncio.sleep(REFRESH_S)
