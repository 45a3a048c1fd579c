"""`coordctl host`: list, show, drain, undrain, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coord.cli.completion import host_names
from coord.cli.output import Column, print_pairs, print_table
from coord.cli.session import Session, session_options
from coord.cli.wording import age_text, count_text, resources_text
from coord.model.entities import DrainState, HostStatus

if TYPE_CHECKING:
    from coord.client.views import HostView

HOST_COLUMNS = (
    Column("HOST"),
    Column("STATUS", status=True),
    Column("SEEN", right=True),
    Column("DEV FREE", right=True),
    Column("CPU FREE", right=True),
    Column("MEMORY FREE", right=True),
    Column("TASKS", right=True),
    Column("ADDRESS"),
)


@click.group()
def host() -> None:
    """Look at hosts; drain, undrain and remove them."""


@host.command("list")
@click.option("--all", "everything", is_flag=True, help="Removed ones too.")
@session_options
def list_hosts(session: Session, everything: bool) -> None:
    """All hosts, with what is free of what each offers."""
    known = session.ask(lambda client: client.hosts())
    hosts = [view for view in known if everything or view.status != HostStatus.REMOVED]
    session.show(
        hosts,
        lambda _: print_table(
            HOST_COLUMNS,
            [host_row(view) for view in hosts],
            "no hosts; start `coordctl agent` on one",
        ),
    )


@host.command("show")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@session_options
def show_host(session: Session, name: str) -> None:
    """Everything about one host."""
    view = session.ask(lambda client: client.host(name))
    session.show(view, lambda _: print_pairs(host_pairs(view)))


@host.command("drain")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def drain(session: Session, name: str, reason: str) -> None:
    """Move everything away from a host and give it no new work."""
    view = session.ask(lambda client: client.drain(name, reason=reason))
    session.show(view, lambda _: click.echo(f"draining {name}; see `coordctl host show {name}`"))


@host.command("undrain")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def undrain(session: Session, name: str, reason: str) -> None:
    """Give a drained or quarantined host back to the fleet."""
    view = session.ask(lambda client: client.undrain(name, reason=reason))
    session.show(view, lambda _: click.echo(f"{name} takes work again"))


@host.command("remove")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def remove(session: Session, name: str, reason: str) -> None:
    """Forget a host that is drained or lost."""
    view = session.ask(lambda client: client.remove_host(name, reason=reason))
    session.show(view, lambda _: click.echo(f"removed {name}"))


def host_status(view: HostView) -> str:
    """`up`, `up, draining`, `lost, fenced`, `up, quarantined`."""
    words: list[str] = [view.status]
    if view.drain != DrainState.NONE:
        words.append(view.drain)
    if view.quarantine:
        words.append("quarantined")
    if view.fenced:
        words.append("fenced")
    return ", ".join(words)


def host_row(view: HostView) -> tuple[str, ...]:
    free = view.free
    return (
        view.host,
        host_status(view),
        age_text(view.last_seen_ms_ago),
        _of(free.devices, view.devices),
        _of(free.cpu_millis / 1000, view.cpu_millis / 1000),
        f"{_of(free.memory_mib / 1024, view.memory_mib / 1024)} GiB" if view.memory_mib else "-",
        str(len(view.tasks)),
        view.address,
    )


def _of(free: float, total: float) -> str:
    if not total:
        return "-"
    return "/".join(f"{number:.1f}".removesuffix(".0") for number in (free, total))


def host_pairs(view: HostView) -> list[tuple[str, str]]:
    free = view.free
    return [
        ("host", view.host),
        ("status", host_status(view)),
        ("since", f"index {view.status_cause}" if view.status_cause else ""),
        ("quarantine", view.quarantine),
        ("last seen", f"{age_text(view.last_seen_ms_ago)} ago"),
        ("address", view.address),
        ("incarnation", f"{view.incarnation} (slot {view.slot})"),
        ("offers", resources_text(view.devices, view.cpu_millis, view.memory_mib)),
        ("free", resources_text(free.devices, free.cpu_millis, free.memory_mib)),
        ("device type", view.device_type),
        ("labels", ", ".join(f"{name}={value}" for name, value in sorted(view.labels.items()))),
        ("ports", count_text(len(view.ports), "port")),
        ("agent", f"{view.agent}{f', version {view.version}' if view.version else ''}"),
        ("tasks", ", ".join(view.tasks) or "none"),
    ]
