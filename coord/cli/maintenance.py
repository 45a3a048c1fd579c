"""`coordctl maintenance`: start, list, show, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coord.cli.durations import DURATION
from coord.cli.exits import BadInput
from coord.cli.output import Column, print_pairs, print_table
from coord.cli.session import Session, log_time_ms, session_options
from coord.cli.wording import age_text, clock_text, count_text

if TYPE_CHECKING:
    from coord.client import Client
    from coord.client.views import MaintenanceView

COLUMNS = (
    Column("NUMBER", right=True),
    Column("OF"),
    Column("STATUS", status=True),
    Column("OUT"),
    Column("WAITING", right=True),
    Column("DONE", right=True),
    Column("SINCE", right=True),
    Column("REASON"),
)


@click.group()
def maintenance() -> None:
    """Take the hosts of a failure domain out in turn, never too many at a time."""


@maintenance.command("start")
@click.option("--zone", metavar="ZONE", help="All hosts of a zone.")
@click.option("--pod", metavar="POD", help="All hosts of a pod, such as z1/p2.")
@click.option("--rack", metavar="RACK", help="All hosts of a rack, such as p2/r7.")
@click.option("--nvlink", metavar="DOMAIN", help="All hosts of an NVLink domain.")
@click.option("--switch", metavar="SWITCH", help="All hosts behind a switch.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Hosts that may be out at a time.",
)
@click.option(
    "--deadline",
    "within_ms",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Let gangs leave a host when they have saved, the last by then.  [default: at once]",
)
@click.option("--safe", is_flag=True, help="Never leave a running gang without a place.")
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def start(
    session: Session, limit: int, within_ms: int, safe: bool, reason: str, **domains: str | None
) -> None:
    """Begin a rolling maintenance over one domain.

    A host that is out is back when it is undrained, or when its agent registers after a reboot; the
    next one goes then. A domain is named as `coordctl topology show` does, or by the end of that.
    """
    asked = [(level, name) for level, name in domains.items() if name]
    if len(asked) != 1:
        raise BadInput("name one domain: --zone, --pod, --rack, --nvlink or --switch")
    ((level, name),) = asked
    view = session.ask(
        lambda client: client.start_maintenance(
            level, name, limit=limit, within_ms=within_ms, safe=safe, reason=reason
        )
    )
    session.show(
        view,
        lambda _: click.echo(
            f"maintenance {view.maintenance} of {count_text(_hosts(view), 'host')} started; "
            f"see `coordctl maintenance show {view.maintenance}`"
        ),
    )


@maintenance.command("list")
@click.option("--all", "everything", is_flag=True, help="Ended ones too.")
@session_options
def list_maintenances(session: Session, everything: bool) -> None:
    """Maintenances that go on, oldest first."""
    known, now_ms = session.ask(_all)
    views = [view for view in known if everything or not view.ending]
    session.show(
        views,
        lambda _: print_table(COLUMNS, [row(view, now_ms) for view in views], "no maintenances"),
    )


@maintenance.command("show")
@click.argument("number", type=click.IntRange(min=1))
@session_options
def show(session: Session, number: int) -> None:
    """One maintenance, and which hosts are where."""

    async def question(client: Client) -> tuple[MaintenanceView, int]:
        return await client.maintenance(number), await log_time_ms(client)

    view, now_ms = session.ask(question)
    session.show(view, lambda _: print_pairs(pairs(view, now_ms)))


@maintenance.command("cancel")
@click.argument("number", type=click.IntRange(min=1))
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def cancel(session: Session, number: int, reason: str) -> None:
    """Take no further host. One that is being emptied returns; an empty one stays drained."""
    view = session.ask(lambda client: client.cancel_maintenance(number, reason=reason))
    left = ", ".join(out.host for out in view.out)
    hint = f"; drained until `coordctl host undrain`: {left}" if left else ""
    session.show(view, lambda _: click.echo(f"cancelled maintenance {number}{hint}"))


async def _all(client: Client) -> tuple[list[MaintenanceView], int]:
    return await client.maintenances(), await log_time_ms(client)


def _hosts(view: MaintenanceView) -> int:
    return len(view.waiting) + len(view.out) + len(view.done)


def status(view: MaintenanceView) -> str:
    """`running`, `stalled`, `done`, `cancelled`."""
    return view.ending or ("stalled" if view.stalled else "running")


def row(view: MaintenanceView, now_ms: int) -> tuple[str, ...]:
    return (
        str(view.maintenance),
        f"{view.level} {view.domain}",
        status(view),
        ", ".join(out.host for out in view.out) or "-",
        str(len(view.waiting)),
        f"{len(view.done)}/{_hosts(view)}",
        age_text(now_ms - view.since_ms),
        view.reason,
    )


def pairs(view: MaintenanceView, now_ms: int) -> list[tuple[str, str]]:
    out = [f"{one.host} for {age_text(now_ms - one.since_ms)}" for one in view.out]
    within = f"within {clock_text(view.within_ms)}" if view.within_ms else "at once"
    return [
        ("maintenance", str(view.maintenance)),
        ("of", f"{view.level} {view.domain}"),
        ("status", status(view)),
        ("stalled", view.stalled),
        ("asked", f"by {view.actor}, index {view.since}, {age_text(now_ms - view.since_ms)} ago"),
        ("reason", view.reason),
        ("limit", count_text(view.limit, "host")),
        ("drain", within),
        ("safe", "no running gang is left without a place" if view.safe else ""),
        ("out", ", ".join(out) or "none"),
        ("waiting", ", ".join(view.waiting) or "none"),
        ("done", ", ".join(view.done) or "none"),
    ]
