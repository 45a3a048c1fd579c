"""An import of a topology as events of a size that servers take. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coord.model.events import TopologyImported
from coord.model.place import Located, Switch

PART_BYTES = 1 << 19
"""Of JSON, which is larger than what goes into the log; servers take an event of 1 MiB."""


def parts(whole: TopologyImported) -> list[TopologyImported]:
    """The import itself if it is small enough; else several in order, of which each but the first
    adds to those before. A switch comes after all that it has uplinks to."""
    if _size(whole) <= PART_BYTES:
        return [whole]
    found: list[TopologyImported] = []
    switches: list[Switch] = []
    hosts: list[Located] = []
    room = PART_BYTES

    def end_part() -> None:
        merge = whole.merge or bool(found)
        part = TopologyImported(tuple(hosts), tuple(switches), whole.source, whole.actor, merge)
        found.append(part)
        hosts.clear()
        switches.clear()

    for item in (*_downwards(whole.switches), *whole.hosts):
        size = _size(item) + 1
        if size > room and (hosts or switches):
            end_part()
            room = PART_BYTES
        room -= size
        if isinstance(item, Switch):
            switches.append(item)
        elif isinstance(item, Located):
            hosts.append(item)
    end_part()
    return found


def _downwards(switches: tuple[Switch, ...]) -> Iterator[Switch]:
    """From the top; those on a cycle come last, to be refused by the server."""
    by_name = {switch.switch: switch for switch in switches}
    waits = {name: len(switch.uplinks) for name, switch in by_name.items()}
    below: dict[str, list[str]] = {}
    for switch in switches:
        for up in switch.uplinks:
            below.setdefault(up.switch, []).append(switch.switch)
    ready = [name for name, count in waits.items() if count == 0]
    for name in ready:
        yield by_name[name]
        for under in below.get(name, ()):
            waits[under] -= 1
            if waits[under] == 0:
                ready.append(under)
    yield from (switch for switch in switches if waits[switch.switch] > 0)


def _size(value: msgspec.Struct) -> int:
    return len(msgspec.json.encode(value))
