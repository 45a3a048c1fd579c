"""`coordctl up`: a whole cluster with local agents, for as long as this terminal lives."""

from __future__ import annotations

import contextlib
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from coord.cli.exits import Exit, Failure
from coord.cli.local import LocalCluster
from coord.cli.processes import Child

DEFAULT_FIRST_PORT = 7101
WATCH_S = 0.2


@click.command(short_help="Run a whole cluster with local agents in this terminal.")
@click.option(
    "--nodes",
    type=click.Choice(["1", "3", "5"]),
    default="3",
    show_default=True,
    help="Servers. Three keep working when one dies.",
)
@click.option(
    "--agents",
    type=click.IntRange(0, 64),
    default=5,
    show_default=True,
    help="Agents, each of which counts as a host of its own.",
)
@click.option(
    "--devices",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    help="Devices that each agent offers. They need not exist.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".coord"),
    show_default=True,
    help="Where everything is kept. The next `up` there goes on where this one ended.",
)
@click.option(
    "--first-port",
    type=click.IntRange(1024, 65_000),
    default=DEFAULT_FIRST_PORT,
    show_default=True,
    help="Servers answer here and on the ports that follow, and talk to each other 100 above.",
)
def up(nodes: str, agents: int, devices: int, data: Path, first_port: int) -> int:
    """Run servers and agents on this machine until Ctrl-C.

    Everything listens on 127.0.0.1 only. Nothing that ends is started again by itself, so that you
    can kill a process and watch what the others make of it. Whatever way this command ends, all its
    processes and all tasks end with it; the jobs stay in the data directory.
    """
    with _stop_requests() as stop:
        cluster = LocalCluster(
            data, nodes=int(nodes), agents=agents, devices=devices, first_port=first_port
        )
        try:
            with cluster:
                click.echo(f"starting, in {data}: servers {nodes}, agents {agents} ...")
                cluster.start()
                cluster.wait_ready(give_up=stop.is_set)
                if not stop.is_set():
                    click.echo(_welcome(cluster))
                    _watch(cluster, stop)
                _say("ending everything ...")
        except Failure:
            if not stop.is_set():
                raise
    again = f"coordctl up --nodes {nodes} --data {shlex.quote(str(data))}"
    _say(f"ended. `{again}` goes on from here.")
    return Exit.OK


@contextlib.contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Set by Ctrl-C, by SIGTERM, and by the death of the terminal."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _watch(cluster: LocalCluster, stop: threading.Event) -> None:
    """Until asked to stop, tell of every process that ends."""
    told: list[Child] = []
    while not stop.wait(WATCH_S):
        for child in cluster.children:
            if child.ended and child not in told:
                told.append(child)
                _say(f"{child.epitaph()}\nto start it again: {shlex.join(child.command)}")


def _welcome(cluster: LocalCluster) -> str:
    lines = [f"running; the logs are in {cluster.directory / 'logs'}"]
    for (node, server), url in zip(cluster.servers.items(), cluster.urls, strict=True):
        lines.append(f"  server {node}  {url}  pid {server.pid}")
    lines += [f"  {host}    pid {agent.pid}" for host, agent in cluster.agents.items()]
    lines += ["", "next, in another terminal:"]
    if cluster.layout.api_ports[0] != DEFAULT_FIRST_PORT:
        lines.append(f"  export COORD_SERVER={','.join(cluster.urls)}")
    lines += [
        "  coordctl host list",
        "  coordctl job submit examples/digits.yaml",
        "  coordctl events -f",
        "Ctrl-C ends everything.",
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be what has ended
        click.echo(text)
