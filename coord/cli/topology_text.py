"""What `coordctl topology` prints. What an import changes is worked out by the core's own rule."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from coord.cli.output import Column, print_lines, print_table
from coord.cli.topology_rows import SICK, Domain, domain_rows, health, path_of
from coord.cli.wording import count_text
from coord.client.views import PlacedHost, TopologyView
from coord.core.topology import over
from coord.model.place import NOWHERE, Located, Place, Rail
from coord.topology.topology import Topology

SHOWN = 20
"""Changes and names in a table or list for people; JSON has all."""

TREE_COLUMNS = (
    Column("DOMAIN"),
    Column("LEVEL"),
    Column("HOSTS", right=True),
    Column("UP", right=True),
    Column("FREE", right=True),
    Column("USED", right=True),
    Column("DEVICES", right=True),
    Column("RAILS", right=True),
    Column("NOT UP", status=True),
)
CHANGE_COLUMNS = (Column("HOST"), Column("FROM"), Column("TO"), Column("RAILS"))


class Change(msgspec.Struct, omit_defaults=True):
    """A registered host that stands elsewhere, or on other rails, than before."""

    host: str
    place_before: Place
    place: Place
    rails_before: tuple[Rail, ...] = ()
    rails: tuple[Rail, ...] = ()


class Changes(msgspec.Struct):
    """What an import changes. `index`: where the log has it, 0 for a dry run. `unnamed`: hosts that
    have registered and that it does not name; `unregistered`: hosts that it names and that have
    not."""

    changed: list[Change]
    unnamed: list[str]
    unregistered: list[str]
    switches_before: int
    switches: int
    index: int = 0
    notes: tuple[str, ...] = ()
    """What of the file is not used, and what of it does not fit the cluster."""


def changes(view: TopologyView, read: Topology, merge: bool) -> Changes:
    """Compare the cluster as it is with what it would be after the import."""
    imported = {located.host: located for located in read.hosts}
    names = {switch.switch: None for switch in read.switches}
    if merge:
        before = {located.host: located for located in view.imported}
        for name, located in imported.items():
            before[name] = over(before[name], located) if name in before else located
        imported = before
        names = {**{switch.switch: None for switch in view.switches}, **names}
    changed = []
    for host in view.hosts:
        said = host.announced or Located(host.host)
        after = over(said, imported[host.host]) if host.host in imported else said
        if (after.place, after.rails) != (host.place, host.rails):
            changed.append(Change(host.host, host.place, after.place, host.rails, after.rails))
    registered = {host.host: None for host in view.hosts}
    read_names = {located.host: None for located in read.hosts}
    return Changes(
        changed,
        [] if merge else [name for name in registered if name not in read_names],
        [name for name in read_names if name not in registered],
        len(view.switches),
        len(names),
        notes=(*read.notes, *_misfits(view, read)),
    )


def _misfits(view: TopologyView, read: Topology) -> list[str]:
    """Of one host: it is described with other devices than it offers."""
    return [
        f"{host.host} offers {count_text(host.devices, 'device')}, and the file tells of "
        f"{read.devices}: islands count the file's, from 0"
        for host in view.hosts
        if read.local and host.host == read.hosts[0].host and host.devices != read.devices
    ]


def tell_changes(name: str, read: Topology, found: Changes, dry_run: bool) -> None:
    """For people: what was read, what of it is not used, and what changes."""
    print_lines([f"read {name} ({read.format}): {_read_text(read)}"])
    print_lines(f"  {note}" for note in found.notes)
    if found.changed:
        rows = [_change_row(change) for change in found.changed[:SHOWN]]
        print_table(CHANGE_COLUMNS, rows)
        left = len(found.changed) - SHOWN
        if left > 0:
            click.echo(f"... and {count_text(left, 'more host')}; -o json lists all")
    changed = f"{count_text(len(found.changed), 'registered host')} "
    changed += "would change" if dry_run else "changed"
    if found.unregistered:
        changed += (
            f"; {count_text(len(found.unregistered), 'host')} in the file did not register yet"
        )
    end = f"imported at index {found.index}" if found.index else "it is so already: nothing changed"
    print_lines(
        [
            changed,
            *_unnamed_text(found.unnamed),
            f"switches: {found.switches_before} before, {found.switches} after",
            "dry run: nothing was changed" if dry_run else end,
        ]
    )


def _read_text(read: Topology) -> str:
    if not read.local:
        told = [count_text(len(read.hosts), "host")]
        if read.switches:
            told.append(count_text(len(read.switches), "switch", "switches"))
        if read.links:
            told.append(count_text(read.links, "link"))
        return ", ".join(told)
    islands = [island.devices for island in read.hosts[0].islands]
    told = [count_text(read.devices, "device"), count_text(len(read.nics), "rail")]
    if islands:
        told.append(f"NVLink islands {' '.join(_span(devices) for devices in islands)}")
    return f"host {read.hosts[0].host}: {', '.join(told)}"


def _span(devices: tuple[int, ...]) -> str:
    if devices == tuple(range(devices[0], devices[-1] + 1)):
        return f"{devices[0]}-{devices[-1]}"
    return ",".join(str(device) for device in devices)


def _unnamed_text(names: list[str]) -> list[str]:
    if not names:
        return []
    shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
    return [f"{count_text(len(names), 'registered host')} not in the file: {shown}"]


def _change_row(change: Change) -> tuple[str, ...]:
    rails = f"{len(change.rails_before)} -> {len(change.rails)}"
    return (
        change.host,
        path_of(change.place_before) or "-",
        path_of(change.place) or "-",
        rails if change.rails != change.rails_before else "",
    )


def document(view: TopologyView, level: str) -> dict[str, Any]:
    """For programs: the rows at a level, and everything that they are made of."""
    rows, shown = domain_rows(view.hosts, level)
    return {
        "level": shown,
        "domains": rows,
        "without_place": [host.host for host in view.hosts if host.place == NOWHERE],
        "hosts": view.hosts,
        "switches": view.switches,
        "imported": view.imported,
        "applied_index": view.applied_index,
    }


def tell_tree(view: TopologyView, level: str) -> None:
    """For people."""
    if not view.hosts and not view.imported:
        click.echo("no hosts; start `coordctl agent` on one", err=True)
        return
    rows, shown = domain_rows(view.hosts, level)
    by_name = {host.host: host for host in view.hosts}
    if rows:
        print_table(TREE_COLUMNS, [_tree_row(row, by_name) for row in rows])
    print_lines(_below(view, shown))


def _tree_row(row: Domain, by_name: dict[str, PlacedHost]) -> tuple[str, ...]:
    rails = f"{row.rails}/{row.rails_expected}" if row.rails_expected else "-"
    counts = (str(row.devices_free), str(row.devices_used), str(row.devices), rails)
    label = f"{'  ' * row.depth}{row.name}"
    if row.level == "host":
        word = health(by_name[row.name])
        return (label, row.level, "", "", *counts, "" if word == "up" else word)
    sick = [f"{word} {count}" for word in SICK if (count := getattr(row, word))]
    return (label, row.level, str(row.hosts), str(row.up), *counts, ", ".join(sick))


def _below(view: TopologyView, shown: str) -> list[str]:
    lines = []
    lost = [host.host for host in view.hosts if host.place == NOWHERE]
    if lost:
        names = ", ".join(lost[:SHOWN]) + (" ..." if len(lost) > SHOWN else "")
        lines.append(f"{count_text(len(lost), 'host')} without a place: {names}")
    if view.switches:
        lines.append(count_text(len(view.switches), "switch", "switches"))
    registered = {host.host: None for host in view.hosts}
    away = [located.host for located in view.imported if located.host not in registered]
    if away:
        lines.append(f"{count_text(len(away), 'imported host')} did not register yet")
    if shown != "host" and any(host.place != NOWHERE for host in view.hosts):
        lines.append(f"shown down to {shown}; --level host shows all")
    return lines
