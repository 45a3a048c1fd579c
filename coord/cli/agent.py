"""`coordctl agent`: run the agent of this host."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coord.cli import given
from coord.cli.exits import BadInput, Failure
from coord.cli.process_logs import configure_logs, log_options
from coord.cli.session import server_option, split_servers
from coord.model.place import Place, Rail, is_name

if TYPE_CHECKING:
    from coord.agent.config import AgentConfig


@click.command()
@server_option
@click.option(
    "--relay",
    "relays",
    multiple=True,
    envvar="COORD_RELAY",
    show_envvar=True,
    metavar="URL[,URL...]",
    help="Relays to connect through; without one that answers, straight to a server.",
)
@click.option(
    "--host-id",
    "host",
    default="",
    envvar="COORD_HOST_ID",
    show_envvar=True,
    metavar="NAME",
    help="What this machine is called; its own for ever.  [default: its hostname]",
)
@click.option(
    "--data",
    "data_dir",
    envvar="COORD_DATA",
    show_envvar=True,
    metavar="DIRECTORY",
    help="Records and output of tasks.  [default: .coord/agent-NAME]",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    envvar="COORD_ADDRESS",
    show_envvar=True,
    help="Where tasks on other hosts reach tasks here.",
)
@click.option(
    "--devices",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Accelerators offered, numbered from 0.",
)
@click.option("--device-type", default="", help="What they are, such as h100.")
@click.option(
    "--cpus", type=click.FloatRange(min=0), default=0.0, help="CPUs offered.  [default: all]"
)
@click.option(
    "--memory-mib", type=click.IntRange(min=0), default=0, help="Memory offered.  [default: all]"
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="What else is known of it, such as model=dgx.",
)
@click.option("--zone", default="", envvar="COORD_ZONE", help="The zone the host stands in.")
@click.option("--pod", default="", envvar="COORD_POD", help="The pod within the zone.")
@click.option("--rack", default="", envvar="COORD_RACK", help="The rack within the pod.")
@click.option(
    "--nvlink",
    default="",
    envvar="COORD_NVLINK",
    help="The domain within which devices of several hosts share NVLink.",
)
@click.option(
    "--rail",
    "rails",
    multiple=True,
    metavar="NAME[=SWITCH]",
    help="A port on the network, and the leaf switch it is connected to. Repeatable.",
)
@click.option(
    "--ports",
    default="",
    metavar="FIRST-LAST",
    help="TCP ports for rendezvous, from which a block is kept.",
)
@click.option(
    "--health-check",
    default="",
    envvar="COORD_HEALTH_CHECK",
    show_envvar=True,
    metavar="COMMAND",
    help="Run before work starts here; 0 when the host is fit.  [default: unchecked]",
)
@click.option(
    "--health-check-timeout",
    type=click.FloatRange(min=0, min_open=True, max=3_600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="After which a health check is killed, and has failed.",
)
@click.option(
    "--health-check-every",
    type=click.FloatRange(min=0, max=604_800),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Check again and again, beside whatever runs, so long after the last time; 0: do not.",
)
@click.option(
    "--kernel-log",
    default="auto",
    show_default=True,
    metavar="auto|kmsg|journal|none|FILE",
    help="Where faults of devices are told.",
)
@click.option(
    "--cluster-id",
    default="",
    envvar="COORD_CLUSTER_ID",
    show_envvar=True,
    help="Turn away from any other cluster.",
)
@click.option(
    "--stop-tasks",
    is_flag=True,
    help="End all tasks with the agent, instead of letting them run on.",
)
@log_options
def agent(
    *,
    servers: tuple[str, ...],
    relays: tuple[str, ...],
    host: str,
    data_dir: str | None,
    address: str,
    devices: int,
    device_type: str,
    cpus: float,
    memory_mib: int,
    labels: tuple[str, ...],
    zone: str,
    pod: str,
    rack: str,
    nvlink: str,
    rails: tuple[str, ...],
    ports: str,
    health_check: str,
    health_check_timeout: float,
    health_check_every: float,
    kernel_log: str,
    cluster_id: str,
    stop_tasks: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Run the agent of this host until SIGTERM or Ctrl-C.

    It launches what the coordinator places here, watches it and reports. Tasks run on when the
    agent ends, and are found again by the next one with the same --data. Where the host stands is
    announced by --zone, --pod, --rack, --nvlink and --rail; what `coordctl topology import` says
    of it counts over that.
    """
    from coord.agent.config import AgentConfig

    name = host or socket.gethostname()
    config = AgentConfig(
        servers=_checked_urls("--server", split_servers(servers)),
        relays=_checked_urls("--relay", split_servers(relays) if relays else ()),
        data_dir=Path(data_dir or f".coord/agent-{name}"),
        host=name,
        address=address,
        cluster=cluster_id,
        devices=devices,
        cpu_millis=round(cpus * 1000),
        memory_mib=memory_mib,
        device_type=device_type,
        labels=given.pairs("--label", labels),
        place=_checked_place(zone, pod, rack, nvlink),
        rails=tuple(_checked_rails(rails)),
        stop_tasks=stop_tasks,
        health_check=health_check,
        health_check_timeout_s=health_check_timeout,
        health_check_every_s=health_check_every,
        kernel_log="" if kernel_log == "none" else kernel_log,
    )
    if ports:
        config = _with_ports(config, given.port_range("--ports", ports))
    configure_logs(log_format, log_level)
    click.get_current_context().exit(_run(config))


def _checked_urls(flag: str, addresses: tuple[str, ...]) -> tuple[str, ...]:
    from coord.client.servers import base_url

    try:
        return tuple(base_url(address) for address in addresses)
    except ValueError as error:
        raise BadInput(f"{flag}: {error}") from error


def _checked_place(zone: str, pod: str, rack: str, nvlink: str) -> Place:
    for flag, name in (("zone", zone), ("pod", pod), ("rack", rack), ("nvlink", nvlink)):
        if name and ("/" in name or not is_name(name)):
            raise BadInput(f"--{flag} is {name!r}; give a name without '/' or spaces at its ends")
    return Place(zone, pod, rack, nvlink)


def _checked_rails(given_rails: tuple[str, ...]) -> Iterator[Rail]:
    seen: dict[str, None] = {}
    for text in given_rails:
        name, equals, switch = text.partition("=")
        if not is_name(name) or (equals and not is_name(switch)):
            raise BadInput(f"--rail is {text!r}; write NAME or NAME=SWITCH, such as mlx5_0=leaf-1")
        if name in seen:
            raise BadInput(f"--rail {name} is given twice")
        seen[name] = None
        yield Rail(name, switch)


def _with_ports(config: AgentConfig, ports: tuple[int, int]) -> AgentConfig:
    import msgspec

    return msgspec.structs.replace(config, port_range=ports)


def _run(config: AgentConfig) -> int:
    from coord.agent.daemon import AgentFailed, run_agent

    async def work() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        return await run_agent(config, stop)

    try:
        return asyncio.run(work())
    except AgentFailed as error:
        raise Failure(f"the agent ended: {error}; tasks that run are left running") from error
