"""`coordctl host`: list, show, drain, undrain, quarantine, release, approve, decline, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coord.cli.completion import host_names
from coord.cli.durations import DURATION
from coord.cli.exits import BadInput
from coord.cli.host_evidence import evidence_pairs
from coord.cli.output import Column, print_pairs, print_table
from coord.cli.session import Session, session_options
from coord.cli.wording import age_text, count_text, resources_text
from coord.model.care import QuarantineState
from coord.model.entities import DrainState, HostStatus

if TYPE_CHECKING:
    from coord.client import Client
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
QUARANTINE_COLUMNS = (
    Column("HOST"),
    Column("QUARANTINE", status=True),
    Column("FOR", right=True),
    Column("REASON"),
    Column("NEXT"),
)


@click.group()
def host() -> None:
    """Look at hosts; drain, quarantine and remove them."""


@host.command("list")
@click.option("--all", "everything", is_flag=True, help="Removed ones too.")
@session_options
def list_hosts(session: Session, everything: bool) -> None:
    """All hosts, with what is free of what each offers."""
    known = session.ask(lambda client: client.hosts())
    hosts = [view for view in known if everything or view.status != HostStatus.REMOVED]
    session.show(hosts, lambda _: print_hosts(hosts))


def print_hosts(hosts: list[HostView]) -> None:
    """All of them; below, those on their way out of the fleet or back, with what they wait for."""
    print_table(
        HOST_COLUMNS,
        [host_row(view) for view in hosts],
        "no hosts; start `coordctl agent` on one",
    )
    held = [view for view in hosts if view.quarantined and view.quarantined.state]
    if held:
        click.echo()
        print_table(QUARANTINE_COLUMNS, [quarantine_row(view) for view in held])


@host.command("show")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@session_options
def show_host(session: Session, name: str) -> None:
    """Everything about one host."""
    view = session.ask(lambda client: client.host(name))
    session.show(view, lambda _: print_pairs(host_pairs(view)))


@host.command("drain")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--now", is_flag=True, help="Move at once, as without a deadline.")
@click.option(
    "--deadline",
    "within_ms",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Let each gang move when it has saved, the last by then; such as 30m.",
)
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def drain(session: Session, name: str, now: bool, within_ms: int, reason: str) -> None:
    """Move everything away from a host and give it no new work.

    What runs is stopped at once, with its grace, and starts again elsewhere from its newest
    checkpoint. With --deadline a gang goes when it has just committed one, and loses nothing.
    """
    if now and within_ms:
        raise BadInput("--now and --deadline contradict each other; give one of them")
    view = session.ask(lambda client: client.drain(name, reason=reason, within_ms=within_ms))
    session.show(view, lambda _: click.echo(f"draining {name}; see `coordctl host show {name}`"))


@host.command("quarantine")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--reason", required=True, help="What you found; kept as evidence.")
@session_options
def quarantine(session: Session, name: str, reason: str) -> None:
    """Take a host out: no new work, what runs moves away, then a test."""
    view = session.ask(lambda client: client.quarantine(name, reason=reason))
    session.show(view, lambda _: click.echo(f"quarantined {name}; next: {view.next_step}"))


@host.command("release")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--repaired", is_flag=True, help="Forget whatever was held against it.")
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def release(session: Session, name: str, repaired: bool, reason: str) -> None:
    """End a host's quarantine. One that was out for repair starts clean."""
    view = session.ask(lambda client: client.release(name, reason=reason, repaired=repaired))
    session.show(view, lambda _: click.echo(f"released {name}"))


def _answer(session: Session, name: str, version: int, reason: str, *, approved: bool) -> None:
    async def question(client: Client) -> HostView:
        answered = version
        if not answered:
            held = (await client.host(name)).quarantined
            answered = held.version if held else 0
        return await client.answer_quarantine(name, answered, approved=approved, reason=reason)

    view = session.ask(question)
    said = f"quarantined {name}" if approved else f"{name} stays in the fleet"
    session.show(view, lambda _: click.echo(said))


@host.command("approve")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--version", type=int, default=0, help="Of the proposal.  [default: the newest]")
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def approve(session: Session, name: str, version: int, reason: str) -> None:
    """Quarantine a host as proposed, though that many are out already."""
    _answer(session, name, version, reason, approved=True)


@host.command("decline")
@click.argument("name", metavar="HOST", shell_complete=host_names)
@click.option("--version", type=int, default=0, help="Of the proposal.  [default: the newest]")
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def decline(session: Session, name: str, version: int, reason: str) -> None:
    """Leave a host in the fleet that was proposed for quarantine."""
    _answer(session, name, version, reason, approved=False)


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
    state = view.quarantined.state if view.quarantined else QuarantineState.NONE
    if state:
        words.append(_STATES.get(state, state))
    elif view.quarantine:
        words.append("quarantined")
    if view.fenced:
        words.append("fenced")
    return ", ".join(words)


_STATES = {
    QuarantineState.PROPOSED: "quarantine proposed",
    QuarantineState.PROBATION: "on probation",
    QuarantineState.REPAIR: "in repair",
}


def _moves(view: HostView) -> str:
    if not view.move_in_ms:
        return ""
    why = f" ({view.move_reason})" if view.move_reason else ""
    return f"when its gangs have saved, within {age_text(view.move_in_ms)}{why}"


def quarantine_row(view: HostView) -> tuple[str, ...]:
    held = view.quarantined
    assert held is not None
    age = age_text(view.quarantined_ms_ago)
    return (view.host, held.state, age, held.reason, view.next_step)


def quarantine_pairs(view: HostView) -> list[tuple[str, str]]:
    """Reason, evidence and what follows; nothing where nothing is known against the host."""
    held = view.quarantined
    if held is None:
        return [("quarantine", view.quarantine)]
    told = f"{held.state} for {age_text(view.quarantined_ms_ago)}, index {held.since}"
    by = f", by {held.actor}" if held.actor else ""
    evidence = [f"{one.reason} (index {one.cause})" for one in held.evidence]
    version = str(held.version) if held.state == QuarantineState.PROPOSED else ""
    return [
        ("quarantine", f"{told}{by}" if held.state else ""),
        ("reason", held.reason),
        ("evidence", "; ".join(evidence)),
        ("proposal", version),
        ("remembered", count_text(len(held.strikes_ms), "quarantine") if held.strikes_ms else ""),
        ("next", view.next_step),
    ]


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
        ("silent with", view.silent_domain),
        ("moves", _moves(view)),
        *quarantine_pairs(view),
        *evidence_pairs(view),
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
