"""`coordctl cluster`: status, add, remove, transfer, snapshot, allow-evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coord.cli.exits import Exit
from coord.cli.output import Column, print_pairs, print_table
from coord.cli.session import Session, session_options
from coord.cli.wording import clock_text, size_text

if TYPE_CHECKING:
    from coord.client.views import ClusterView

FROZEN = (
    "frozen: so many hosts are silent at once that none is declared lost; if they are really gone, "
    "`coordctl cluster allow-evictions`"
)
RELAYS_TOLD = 8
MEMBER_COLUMNS = (
    Column("NODE", right=True),
    Column("ROLE", status=True),
    Column("API"),
    Column("PEERS"),
)


@click.group()
def cluster() -> None:
    """Look at the servers; add and remove them; hand over leadership."""


@cluster.command("status")
@session_options
@click.pass_context
def status(ctx: click.Context, session: Session) -> None:
    """The servers, who leads, how far the log is.

    Exits with 3 while nobody leads.
    """
    view = session.ask(lambda client: client.cluster(stale=True))
    session.show(view, lambda _: _print_status(view))
    if not _leader_reached(view):
        click.echo("coordctl: no leader: a majority of the servers must be up", err=True)
        ctx.exit(int(Exit.UNAVAILABLE))


def _print_status(view: ClusterView) -> None:
    leader = f"node {view.leader}, {view.leader_api}" if view.leader else "none"
    if view.leader and not _leader_reached(view):
        leader = f"none; node {view.leader} led last, and is away"
    print_pairs(
        [
            ("cluster", view.cluster or "not configured yet"),
            ("leader", leader),
            ("term", str(view.term)),
            ("log index", f"{view.applied_index:,} at node {view.node}, which answered"),
            ("log time", clock_text(view.now_ms)),
            ("kept", f"from index {view.first_index:,} on, {size_text(view.size_bytes)}"),
            ("sessions", f"{view.sessions} at node {view.node}"),
            ("relays", relays_text(view)),
            ("read only", view.read_only),
            ("evictions", FROZEN if view.frozen else ""),
        ]
    )
    click.echo()
    print_table(MEMBER_COLUMNS, member_rows(view))


def relays_text(view: ClusterView) -> str:
    """Each with how many hosts live by its beats; of many the largest."""
    largest = sorted(view.relays, key=lambda one: (-one.hosts, one.relay))
    said = [f"{one.relay} {one.hosts:,}" for one in largest[:RELAYS_TOLD]]
    hosts = sum(one.hosts for one in largest)
    more = f", {len(largest) - len(said):,} more" if len(largest) > len(said) else ""
    return f"{', '.join(said)}{more}; {hosts:,} hosts behind {len(largest):,}" if said else ""


def member_rows(view: ClusterView) -> list[tuple[str, ...]]:
    return [
        (
            str(member.node),
            _role(view, member.node),
            member.api_address,
            member.peer_address,
        )
        for member in sorted(view.members, key=lambda member: member.node)
    ]


def _role(view: ClusterView, node: int) -> str:
    """As the server that answered sees it; one without a connection to it is away."""
    if node != view.node and node not in view.connected:
        return "away"
    return "leader" if node == view.leader else "follower"


def _leader_reached(view: ClusterView) -> bool:
    """A server that hears of no new leader goes on to name the last one."""
    return view.leader in (view.node, *view.connected) if view.leader else False


@cluster.command("add")
@click.argument("node", type=click.IntRange(min=1))
@click.argument("peer_address", metavar="PEER")
@click.argument("api_address", metavar="API")
@session_options
def add(session: Session, node: int, peer_address: str, api_address: str) -> None:
    """Make a server a member.

    PEER and API are the addresses of NODE, host:port. It must run already, with an
    empty data directory and `coordctl server --join`.
    """
    session.ask(lambda client: client.add_member(node, peer_address, api_address))
    _say(session, f"node {node} is a member")


@cluster.command("remove")
@click.argument("node", type=click.IntRange(min=1))
@session_options
def remove(session: Session, node: int) -> None:
    """Go on without a server.

    Stop it afterwards; its data directory is of no more use.
    """
    session.ask(lambda client: client.remove_member(node))
    _say(session, f"node {node} is no member any more")


@cluster.command("transfer")
@click.argument("node", type=click.IntRange(min=0), default=0)
@session_options
def transfer(session: Session, node: int) -> None:
    """Let another server lead.

    NODE, or the most advanced one.
    """
    session.ask(lambda client: client.transfer(node))
    _say(session, f"node {node} leads" if node else "another node leads")


@cluster.command("snapshot")
@session_options
def snapshot(session: Session) -> None:
    """Write a snapshot and shorten the journal.

    Of the server that answers.
    """
    session.ask(lambda client: client.snapshot())
    _say(session, "snapshot written")


@cluster.command("allow-evictions")
@click.option("--reason", required=True, help="What you found; recorded in the log.")
@session_options
def allow_evictions(session: Session, reason: str) -> None:
    """Let silent hosts be declared lost.

    For when so many are silent at once that none is, in the fleet or in one failure domain. Do it
    when they are really gone, and not when only the network is.
    """
    decided = session.ask(lambda client: client.allow_evictions(reason=reason))
    session.show(decided, lambda _: click.echo(f"allowed at index {decided.index}"))


def _say(session: Session, message: str) -> None:
    session.show({"done": message}, lambda _: click.echo(message))
