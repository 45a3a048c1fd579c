"""`coordctl relay`: run a relay between agents and servers."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import click

from coord.cli import given
from coord.cli.exits import BadInput, Failure
from coord.cli.process_logs import configure_logs, log_options
from coord.cli.session import server_option, split_servers

if TYPE_CHECKING:
    from coord.relay.config import RelayConfig

DEFAULT_LISTEN = "127.0.0.1:7201"


@click.command()
@server_option
@click.option(
    "--name",
    default="",
    envvar="COORD_RELAY_NAME",
    show_envvar=True,
    metavar="NAME",
    help="What it is called; no two relays of a cluster share it.  [default: its hostname]",
)
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    envvar="COORD_RELAY_LISTEN",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Where agents and relays below connect.",
)
@click.option(
    "--cluster-id",
    default="",
    envvar="COORD_CLUSTER_ID",
    show_envvar=True,
    help="Turn away from any other cluster.",
)
@click.option(
    "--agents",
    type=click.IntRange(min=1),
    default=4_096,
    show_default=True,
    help="Connections at once; further agents are sent elsewhere.",
)
@log_options
def relay(
    *,
    servers: tuple[str, ...],
    name: str,
    listen: str,
    cluster_id: str,
    agents: int,
    log_format: str,
    log_level: str,
) -> None:
    """Run a relay until SIGTERM or Ctrl-C: many agents behind one connection to a server.

    Agents are pointed at it with `coordctl agent --relay`. A relay may stand behind another one:
    name that as its --server. When it ends, its agents go to another relay or straight to a server.

    \b
    coordctl relay --name rack-1 --listen 127.0.0.1:7201
    coordctl agent --relay http://127.0.0.1:7201
    """
    from coord.client.servers import base_url
    from coord.node.addresses import address_problem
    from coord.relay.config import RelayConfig, RelayLimits

    try:
        urls = tuple(base_url(server) for server in split_servers(servers))
    except ValueError as error:
        raise BadInput(f"--server: {error}") from error
    config = RelayConfig(
        servers=urls,
        listen=given.address("--listen", listen),
        name=name or socket.gethostname(),
        cluster=cluster_id,
        limits=RelayLimits(agents=agents),
    )
    problems = config.problems()
    problems += filter(None, [address_problem("--listen", config.listen, secured=False)])
    if problems:
        raise BadInput("; ".join(problems))
    configure_logs(log_format, log_level)
    click.get_current_context().exit(_run(config))


def _run(config: RelayConfig) -> int:
    from coord.relay.server import RelayFailed, run_relay

    async def serve() -> int:
        return await run_relay(config, asyncio.Event())

    try:
        return asyncio.run(serve())
    except RelayFailed as error:
        raise Failure(f"the relay did not start: {error}") from error
