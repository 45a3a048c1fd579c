"""`coordctl server`: run one server of the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coord.cli import given
from coord.cli.exits import BadInput, Failure
from coord.cli.process_logs import configure_logs, log_options
from coord.model.settings import Settings
from coord.raft.ports import Member

if TYPE_CHECKING:
    from coord.node.ports import Clock
    from coord.node.server import ServerConfig

DEFAULT_API = "127.0.0.1:7101"


@click.command()
@click.option(
    "--node",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    envvar="COORD_NODE",
    show_envvar=True,
    help="Which of the cluster's servers this one is.",
)
@click.option(
    "--data",
    "data_dir",
    envvar="COORD_DATA",
    show_envvar=True,
    metavar="DIRECTORY",
    help="Where its log and state are kept.  [default: .coord/server-NODE]",
)
@click.option(
    "--cluster",
    "members",
    default="",
    envvar="COORD_CLUSTER",
    show_envvar=True,
    metavar="1=PEER/API,2=PEER/API,...",
    help="All servers of the first configuration; what the log says later counts.",
)
@click.option("--join", is_flag=True, help="Wait until `coordctl cluster add` makes it a member.")
@click.option(
    "--api",
    "api_listen",
    default="",
    envvar="COORD_API",
    show_envvar=True,
    metavar="HOST:PORT",
    help=f"Where clients and agents connect.  [default: {DEFAULT_API}]",
)
@click.option(
    "--peer",
    "peer_listen",
    default="",
    envvar="COORD_PEER",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Where other servers connect; needed with --join.",
)
@click.option(
    "--cluster-id",
    default="coord",
    show_default=True,
    envvar="COORD_CLUSTER_ID",
    show_envvar=True,
    help="Servers and agents of another cluster are turned away.",
)
@click.option("--name", default="", help="For logs and metrics.  [default: node-NODE]")
@click.option(
    "--settings",
    multiple=True,
    envvar="COORD_SETTINGS",
    show_envvar=True,
    metavar="NAME=VALUE",
    help="How the cluster judges, such as lease_ms=6000; recorded once, by the first leader.",
)
@click.option(
    "--raft",
    "timings",
    multiple=True,
    envvar="COORD_RAFT",
    show_envvar=True,
    metavar="NAME=VALUE",
    help="Timings of elections, such as election_min_ms=600.",
)
@click.option(
    "--retention",
    multiple=True,
    envvar="COORD_RETENTION",
    show_envvar=True,
    metavar="NAME=VALUE",
    help="What stays readable: max_age_s, max_entries, max_bytes; 0 is for ever.",
)
@click.option(
    "--snapshot-entries",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Shorten the journal after so many commands.",
)
@click.option(
    "--clock-offset",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COORD_CLOCK_OFFSET",
    show_envvar=True,
    metavar="FILE",
    help="For fault tests: milliseconds in FILE are added to the wall clock, read anew at each "
    "look; no file counts as 0.",
)
@log_options
def server(
    *,
    node: int,
    data_dir: str | None,
    members: str,
    join: bool,
    api_listen: str,
    peer_listen: str,
    cluster_id: str,
    name: str,
    settings: tuple[str, ...],
    timings: tuple[str, ...],
    retention: tuple[str, ...],
    snapshot_entries: int,
    clock_offset: Path | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run one server of the cluster until SIGTERM or Ctrl-C.

    Without --cluster it is a cluster of one. A cluster of three on one machine:

    \b
    export COORD_CLUSTER=1=127.0.0.1:7001/127.0.0.1:7101
    COORD_CLUSTER=$COORD_CLUSTER,2=127.0.0.1:7002/127.0.0.1:7102
    COORD_CLUSTER=$COORD_CLUSTER,3=127.0.0.1:7003/127.0.0.1:7103
    coordctl server --node 1      (and --node 2, --node 3)

    Addresses that others can reach are refused as long as there are no certificates.
    """
    api_listen, peer_listen, configured = addresses(node, members, join, api_listen, peer_listen)
    from coord.node.config import Retention
    from coord.node.server import ServerConfig
    from coord.raft.timings import RaftTimings

    config = ServerConfig(
        node=node,
        data_dir=data_dir or f".coord/server-{node}",
        api_listen=api_listen,
        peer_listen=peer_listen,
        members=configured,
        cluster=cluster_id,
        name=name,
        settings=cluster_settings(settings),
        timings=given.numbers("--raft", timings, RaftTimings),
        retention=given.numbers("--retention", retention, Retention),
        snapshot_entries=snapshot_entries,
    )
    configure_logs(log_format, log_level)
    click.get_current_context().exit(_run(config, _clock(clock_offset)))


def addresses(
    node: int, members: str, join: bool, api_listen: str, peer_listen: str
) -> tuple[str, str, tuple[Member, ...]]:
    """(api, peer, members): --api and --peer override what --cluster says of this node."""
    api = given.address("--api", api_listen) if api_listen else ""
    peer = given.address("--peer", peer_listen) if peer_listen else ""
    if join:
        if members:
            raise BadInput("--join and --cluster exclude each other: the leader tells the members")
        if not peer:
            raise BadInput("--join needs --peer, where the other servers will connect")
        return api or DEFAULT_API, peer, ()
    if not members:
        if peer:
            raise BadInput("--peer needs --cluster with all servers, or --join")
        return api or DEFAULT_API, "", ()
    configured = given.members("--cluster", members)
    own = [member for member in configured if member.node == node]
    if not own:
        known = ", ".join(str(member.node) for member in configured)
        raise BadInput(f"--node is {node}, but --cluster names only {known}")
    return api or own[0].api_address, peer or own[0].peer_address, configured


def cluster_settings(texts: tuple[str, ...]) -> Settings:
    """--settings, checked."""
    settings = given.numbers("--settings", texts, Settings)
    problems = settings.problems()
    if problems:
        raise BadInput(f"--settings: {'; '.join(problems)}")
    return settings


def _clock(offset: Path | None) -> Clock:
    """The machine's, unless --clock-offset bends it, which the log must say."""
    import structlog

    from coord.node.ports import OffsetClock, SystemClock

    if offset is None:
        return SystemClock()
    clock = OffsetClock(offset)
    structlog.get_logger().warning(
        "clock_is_bent", file=str(offset), offset_ms=clock.offset_ms(), use="fault tests only"
    )
    return clock


def _run(config: ServerConfig, clock: Clock) -> int:
    from coord.node.server import StartFailed, run_server

    async def serve() -> int:
        return await run_server(config, None, asyncio.Event(), clock=clock)

    try:
        return asyncio.run(serve())
    except StartFailed as error:
        raise Failure(f"the server did not start: {error}") from error
