"""`coordctl queue`: list, show, set, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from coord.cli.completion import queue_names
from coord.cli.exits import BadInput
from coord.cli.output import Column, print_pairs, print_table
from coord.cli.session import Session, session_options
from coord.cli.wording import clock_text
from coord.model.queue import QueueSpec, queue_problems

if TYPE_CHECKING:
    from coord.client import Client
    from coord.client.views import QueueView

QUEUE_COLUMNS = (
    Column("QUEUE"),
    Column("QUOTA", right=True),
    Column("USED", right=True),
    Column("BORROWED", right=True),
    Column("MAY BORROW", right=True),
    Column("RUNNING", right=True),
    Column("WAITING", right=True),
    Column("NEXT"),
)
UNNAMED = "(none)"


@click.group()
def queue() -> None:
    """Look at queues and what they use; set and remove them."""


@queue.command("list")
@session_options
def list_queues(session: Session) -> None:
    """All queues, in devices; the last is where jobs wait that name no queue."""
    views = session.ask(lambda client: client.queues())
    session.show(
        views, lambda _: print_table(QUEUE_COLUMNS, [queue_row(view) for view in views], "")
    )


@queue.command("show")
@click.argument("name", shell_complete=queue_names)
@session_options
def show_queue(session: Session, name: str) -> None:
    """Everything about one queue: its terms, who uses it, who waits in which order."""
    view = session.ask(lambda client: client.queue(name))
    session.show(view, lambda _: print_pairs(queue_pairs(view)))


@queue.command("set")
@click.argument("name", shell_complete=queue_names)
@click.option("--quota", type=int, help="Devices that its jobs are entitled to.")
@click.option(
    "--type-quota",
    "quotas",
    multiple=True,
    metavar="TYPE=DEVICES",
    help="Of these, at most so many of one device type; may be given more than once.",
)
@click.option("--borrow", "borrowing_limit", type=int, help="Devices beyond it; -1: any.")
@click.option("--lend", "lendable_permille", type=int, help="Thousandths of the unused, to others.")
@click.option("--priority", type=int, help="Among queues with the same right, the higher first.")
@click.option("--weight", type=int, help="Its share of what is lent.")
@click.option("--preempt/--no-preempt", "may_preempt", default=None, help="May it stop others?")
@click.option("--notice", "notice_ms", type=int, metavar="MS", help="For whom it stops.")
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def set_queue(
    session: Session, name: str, *, quotas: tuple[str, ...], reason: str, **given: Any
) -> None:
    """Set a queue up, or change it: what is not given stays as it is.

    Jobs that run are not stopped by a smaller quota.
    """
    terms = {field: value for field, value in given.items() if value is not None}
    if quotas:
        terms["quotas"] = dict(_type_quota(text) for text in quotas)

    async def set_it(client: Client) -> QueueView:
        from msgspec.structs import replace

        known = {view.name: view.spec for view in await client.queues() if view.name}
        spec = replace(known.get(name, QueueSpec(name)), **terms)
        problems = queue_problems(spec)
        if problems:
            said = "; ".join(f"{problem.path} {problem.message}" for problem in problems)
            raise BadInput(f"queue {name}: {said}; nothing was changed")
        return await client.set_queue(spec, reason=reason)

    view = session.ask(set_it)
    session.show(view, lambda _: click.echo(f"queue {name}: quota {view.spec.quota} devices"))


@queue.command("remove")
@click.argument("name", shell_complete=queue_names)
@click.option("--reason", default="", help="Recorded in the log.")
@session_options
def remove_queue(session: Session, name: str, reason: str) -> None:
    """Take a queue away that no job needs any more."""
    done = session.ask(lambda client: client.remove_queue(name, reason=reason))
    session.show(done, lambda _: click.echo(f"removed queue {name}"))


def _type_quota(text: str) -> tuple[str, int]:
    name, equals, count = text.partition("=")
    if not equals or not count.lstrip("-").isdigit():
        raise BadInput(f"--type-quota: {text!r} is not TYPE=DEVICES, such as h100=64")
    return name, int(count)


def queue_row(view: QueueView) -> tuple[str, ...]:
    """One line of `queue list`."""
    named = bool(view.name)
    return (
        view.name or UNNAMED,
        str(view.spec.quota) if named else "-",
        devices_of(view.used),
        devices_of(view.borrowed) if named else "-",
        _limit(view.spec),
        str(view.running),
        str(len(view.waiting)),
        view.waiting[0] if view.waiting else "",
    )


def queue_pairs(view: QueueView) -> list[tuple[str, str]]:
    """What `queue show` says."""
    spec = view.spec
    return [
        ("queue", view.name or UNNAMED),
        ("quota", f"{spec.quota} devices{_types(spec)}"),
        ("used", f"{devices_of(view.used)}, borrowed {devices_of(view.borrowed)}"),
        ("may borrow", _limit(spec)),
        ("lends", f"{spec.lendable_permille / 10:g} % of what it does not use"),
        ("priority", f"{spec.priority}, weight {spec.weight}"),
        (
            "preempts",
            f"with {clock_text(spec.notice_ms)} of notice" if spec.may_preempt else "no",
        ),
        ("set", f"at index {view.configured} by {view.actor or 'nobody named'}"),
        ("reason", view.reason),
        ("running", str(view.running)),
        ("waiting", ", ".join(view.waiting) or "none"),
        (
            "used by",
            ", ".join(f"{owner} {devices_of(used)}" for owner, used in view.by_owner.items()),
        ),
    ]


def devices_of(millis: int) -> str:
    """Thousandths of devices as devices: `4`, `0.5`."""
    return f"{millis / 1000:g}"


def _limit(spec: QueueSpec) -> str:
    return "any" if spec.borrowing_limit < 0 else str(spec.borrowing_limit)


def _types(spec: QueueSpec) -> str:
    told = ", ".join(f"{name} {count}" for name, count in sorted(spec.quotas.items()))
    return f", of these at most {told}" if told else ""
