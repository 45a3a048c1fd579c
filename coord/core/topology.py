"""Where hosts stand: what an import says, over what each announced when it registered.

An import is kept in `State.topology` by host and `State.switches` by switch, for hosts that are
known and for those that will register. `Host.place` and `Host.rails` are what counts: level by
level what was imported, where that is silent what the host announced (`Host.announced`). Readers
take these two; what follows is asked here:

    domains(state, "rack")          {"z1/p1/r1": ("h1", "h2"), ...}: a failure domain's hosts
    hosts_behind(state, switch)     hosts with any way through the switch: it is a suspect for them
    hosts_cut_off_by(state, switch) hosts with no way around it: its silence is theirs
    islands(state, host)            devices that NVLink joins, as tuples of numbers

Only hosts that registered and were not removed are ever named, in order of their names.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.state import State
from coord.core.step import Step, on
from coord.model.entities import Host, HostStatus
from coord.model.events import TopologyImported
from coord.model.place import (
    LEVELS,
    NOWHERE,
    Located,
    Place,
    Rail,
    Switch,
    Uplink,
    domain,
    is_name,
)
from coord.model.rejections import Rejection

RAILS_LIMIT = 256
"""Of one host."""

DEVICES_LIMIT = 4_096
"""Of one host, as when it registers."""

# What follows from it


def domains(state: State, level: str) -> dict[str, tuple[str, ...]]:
    """Hosts by their domain at a level, domains by name; a host without one is in none.

    Raises ValueError for no level.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(state.hosts):
        host = state.hosts[name]
        where = domain(host.place, name, level)
        if where and host.status != HostStatus.REMOVED:
            found.setdefault(where, []).append(name)
    return {where: tuple(found[where]) for where in sorted(found)}


def hosts_behind(state: State, switch: str) -> tuple[str, ...]:
    """Hosts that hang on the switch or on one below it, by one rail or by all; () for no switch."""
    below = {switch: None}
    for name in _upwards(state.switches):
        if any(up.switch in below for up in _uplinks(state, name)):
            below[name] = None
    return tuple(
        host.host for host in _present(state) if any(one in below for one in leaves(state, host))
    )


def hosts_cut_off_by(state: State, switch: str) -> tuple[str, ...]:
    """Hosts all of whose ways upwards lead through the switch; () for no switch."""
    cut = {switch: None}
    for name in _upwards(state.switches):
        uplinks = _uplinks(state, name)
        if uplinks and all(up.switch in cut for up in uplinks):
            cut[name] = None
    found = []
    for host in _present(state):
        hangs_on = leaves(state, host)
        if hangs_on and all(one in cut for one in hangs_on):
            found.append(host.host)
    return tuple(found)


def leaves(state: State, host: Host) -> tuple[str, ...]:
    """The switches that a host's cables end in, each once; unknown ones are left out."""
    found = {rail.switch: None for rail in host.rails if rail.switch}
    imported = state.topology.get(host.host)
    if imported is not None and imported.switch:
        found[imported.switch] = None
    return tuple(found)


def islands(state: State, host: str) -> tuple[tuple[int, ...], ...]:
    """Devices that reach each other over NVLink; () where nothing was imported of them."""
    imported = state.topology.get(host)
    return tuple(island.devices for island in imported.islands) if imported else ()


def _present(state: State) -> list[Host]:
    names = sorted(state.hosts)
    return [state.hosts[name] for name in names if state.hosts[name].status != HostStatus.REMOVED]


def _uplinks(state: State, switch: str) -> tuple[Uplink, ...]:
    row = state.switches.get(switch)
    return row.uplinks if row is not None else ()


def _upwards(switches: dict[str, Switch]) -> list[str]:
    """Switches, each after all that it has uplinks to; those on a cycle are missing."""
    waits = {name: len(switches[name].uplinks) for name in sorted(switches)}
    below: dict[str, list[str]] = {}
    for name in waits:
        for up in switches[name].uplinks:
            below.setdefault(up.switch, []).append(name)
    ready = [name for name, count in waits.items() if count == 0]
    for name in ready:
        for under in below.get(name, ()):
            waits[under] -= 1
            if waits[under] == 0:
                ready.append(under)
    return ready


# Imports


@on(TopologyImported)
def _imported(step: Step, event: TopologyImported) -> Rejection | None:
    """`Recorded.result` is how many registered hosts stand elsewhere, or on other rails, now."""
    state = step.state
    refused = refusal(state, event)
    if refused is not None:
        return refused[0]
    hosts = {located.host: located for located in event.hosts}
    switches = {switch.switch: switch for switch in event.switches}
    if event.merge:
        hosts = {
            name: over(state.topology[name], located) if name in state.topology else located
            for name, located in hosts.items()
        }
        hosts = {**state.topology, **hosts}
        switches = {**state.switches, **switches}
    if hosts == state.topology and switches == state.switches:
        return Rejection.NOTHING_TO_DO
    _exchange(state, hosts, switches)
    for name in state.slots:
        host = state.hosts[name]
        located = placed(state, host, host.announced)
        if located != host:
            state.put_host(located)
            step.result += 1
    step.scheduling = True
    return None


def _exchange(state: State, hosts: dict[str, Located], switches: dict[str, Switch]) -> None:
    for name in [name for name in state.topology if name not in hosts]:
        state.topology.drop(name)
    for name, located in hosts.items():
        if state.topology.get(name) != located:
            state.topology.put(name, located)
    for name in [name for name in state.switches if name not in switches]:
        state.switches.drop(name)
    for name, switch in switches.items():
        if state.switches.get(name) != switch:
            state.switches.put(name, switch)


def placed(state: State, host: Host, announced: Located | None) -> Host:
    """The host where an import says it stands, and where none does, where it announced itself."""
    said = announced or Located(host.host)
    imported = state.topology.get(host.host)
    counts = over(said, imported) if imported else said
    return replace(host, place=counts.place, rails=counts.rails, announced=announced)


def announced(host: str, place: Place, rails: tuple[Rail, ...]) -> Located | None:
    """What a registration says of where its host stands; None where it says nothing."""
    return Located(host, place, rails) if place != NOWHERE or rails else None


def over(below: Located, above: Located) -> Located:
    """Both together: where `above` says something, that counts. A host's rails count as one, and
    those of which no switch is known (a host's own list of adapters) do not take the place of those
    that a fabric told, because a port without a cable is no rail."""
    cabled = any(rail.switch for rail in above.rails) or not any(
        rail.switch for rail in below.rails
    )
    return Located(
        above.host,
        Place(
            above.place.zone or below.place.zone,
            above.place.pod or below.place.pod,
            above.place.rack or below.place.rack,
            above.place.nvlink or below.place.nvlink,
        ),
        above.rails if above.rails and cabled else below.rails,
        above.switch or below.switch,
        above.islands or below.islands,
    )


# What is refused


def refusal(state: State, event: TopologyImported) -> tuple[Rejection, str] | None:
    """Why the import is refused, and which field is to blame: `hosts[3].rails[0].switch`."""
    return _of_hosts(event) or _of_switches(event) or _of_links(state, event)


def is_placed_right(place: Place, rails: tuple[Rail, ...]) -> bool:
    """Whether names are names and no rail is there twice, in a registration."""
    return _of_place(place, rails) is None


def _of_place(place: Place, rails: tuple[Rail, ...]) -> tuple[Rejection, str] | None:
    for level in LEVELS[:-1]:
        name = getattr(place, level)
        if name and ("/" in name or not is_name(name)):
            return Rejection.INVALID, f"place.{level}"
    if len(rails) > RAILS_LIMIT:
        return Rejection.INVALID, "rails"
    seen: dict[str, None] = {}
    for at, rail in enumerate(rails):
        if not is_name(rail.rail):
            return Rejection.INVALID, f"rails[{at}].rail"
        if rail.switch and not is_name(rail.switch):
            return Rejection.INVALID, f"rails[{at}].switch"
        if rail.rail in seen:
            return Rejection.DUPLICATE_NAME, f"rails[{at}].rail"
        seen[rail.rail] = None
    return None


def _of_hosts(event: TopologyImported) -> tuple[Rejection, str] | None:
    seen: dict[str, None] = {}
    for at, located in enumerate(event.hosts):
        if not is_name(located.host) or "/" in located.host:
            return Rejection.INVALID, f"hosts[{at}].host"
        found = _of_place(located.place, located.rails) or _of_islands(located)
        if found is not None:
            return found[0], f"hosts[{at}].{found[1]}"
        if located.switch and not is_name(located.switch):
            return Rejection.INVALID, f"hosts[{at}].switch"
        if located.host in seen:
            return Rejection.DUPLICATE_NAME, f"hosts[{at}].host"
        seen[located.host] = None
    return None


def _of_islands(located: Located) -> tuple[Rejection, str] | None:
    seen: dict[int, None] = {}
    for at, island in enumerate(located.islands):
        if not island.devices or not all(0 <= one < DEVICES_LIMIT for one in island.devices):
            return Rejection.INVALID, f"islands[{at}].devices"
        for device in island.devices:
            if device in seen:
                return Rejection.DUPLICATE_NAME, f"islands[{at}].devices"
            seen[device] = None
    return None


def _of_switches(event: TopologyImported) -> tuple[Rejection, str] | None:
    seen: dict[str, None] = {}
    for at, switch in enumerate(event.switches):
        if not is_name(switch.switch):
            return Rejection.INVALID, f"switches[{at}].switch"
        if switch.switch in seen:
            return Rejection.DUPLICATE_NAME, f"switches[{at}].switch"
        seen[switch.switch] = None
        above: dict[str, None] = {}
        for number, up in enumerate(switch.uplinks):
            if up.links < 1:
                return Rejection.INVALID, f"switches[{at}].uplinks[{number}].links"
            if up.switch in above:
                return Rejection.DUPLICATE_NAME, f"switches[{at}].uplinks[{number}].switch"
            above[up.switch] = None
    return None


def _of_links(state: State, event: TopologyImported) -> tuple[Rejection, str] | None:
    switches = {switch.switch: switch for switch in event.switches}
    if event.merge:
        switches = {**state.switches, **switches}
    for at, switch in enumerate(event.switches):
        for number, up in enumerate(switch.uplinks):
            if up.switch not in switches:
                return Rejection.UNKNOWN_SWITCH, f"switches[{at}].uplinks[{number}].switch"
    for at, located in enumerate(event.hosts):
        if located.switch and located.switch not in switches:
            return Rejection.UNKNOWN_SWITCH, f"hosts[{at}].switch"
        for number, rail in enumerate(located.rails):
            if rail.switch and rail.switch not in switches:
                return Rejection.UNKNOWN_SWITCH, f"hosts[{at}].rails[{number}].switch"
    if len(_upwards(switches)) < len(switches):
        sound = dict.fromkeys(_upwards(switches))
        stuck = [at for at, one in enumerate(event.switches) if one.switch not in sound]
        return Rejection.CYCLE, f"switches[{stuck[0] if stuck else 0}].uplinks"
    return None
