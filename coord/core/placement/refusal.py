"""Why there is no place for a gang."""

from __future__ import annotations

import msgspec

from coord.core.placement.candidates import Candidates
from coord.core.placement.placing import by_first_rules, most
from coord.core.placement.plan import Refusal
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.entities import Gang, QueueReason
from coord.model.place import LEVELS
from coord.model.spec import Resources, RoleSpec


def refusal(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Refusal:
    """Why `place` found too little: the first of device types, rails, devices, CPUs, memory that is
    short; then whom the gang must be near, apart from; then how it must stand."""
    if rooms.known < 0:
        rooms.known = sum(1 for host in state.hosts.values() if host.status != "removed")
    known = rooms.known
    if not known:
        return Refusal(QueueReason.NO_HOSTS, "no host has registered")
    if not rooms:
        return Refusal(QueueReason.HOSTS_UNAVAILABLE, f"0 of {known} hosts take new work")
    rooms.free_holds(gang)
    found = _shortage(state, rooms, gang, role, smallest, known)
    rooms.take_holds(gang)
    return found


def _shortage(
    state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int, known: int
) -> Refusal:
    need = role.resources
    if need.device_types or need.rails:
        found = _unsuited(rooms, need, known)
        if found is not None:
            return found
    filters = msgspec.structs.replace(need, devices=0, cpu_millis=0, memory_mib=0, device_millis=0)
    wishes = (
        (QueueReason.DEVICES, "devices", need.devices),
        (QueueReason.DEVICES, "device_millis", need.device_millis),
        (QueueReason.CPUS, "cpu_millis", need.cpu_millis),
        (QueueReason.MEMORY, "memory_mib", need.memory_mib),
    )
    for reason, field, each in wishes:
        wish = msgspec.structs.replace(filters, **{field: each})
        if each and rooms.replicas(wish) < smallest:
            return Refusal(reason, _shortage_of(rooms, field, wish, smallest, known))
    together = min(rooms.replicas(need), smallest)
    if together == smallest and not by_first_rules(state, rooms, role):
        return _badly_placed(state, rooms, gang, role, smallest)
    detail = f"{together} of {smallest} replicas fit when all they need is counted together"
    devices = need.devices or need.device_millis
    return Refusal(QueueReason.DEVICES if devices else QueueReason.CPUS, detail)


def _unsuited(rooms: Rooms, need: Resources, known: int) -> Refusal | None:
    types = need.device_types
    if types and not any(kind.device_type in types for kind in rooms.kinds):
        wanted = " or ".join(types)
        return Refusal(
            QueueReason.DEVICE_TYPE,
            f"none of the {len(rooms)} of {known} hosts that take new work has devices of type "
            f"{wanted}",
        )
    if not any(
        kind.rails >= need.rails and (not types or kind.device_type in types)
        for kind in rooms.kinds
    ):
        most_rails = max(kind.rails for kind in rooms.kinds)
        return Refusal(
            QueueReason.RAILS,
            f"needs hosts on {need.rails} rails; the most that one has is {most_rails}",
        )
    return None


_UNITS = {
    "devices": "devices",
    "device_millis": "thousandths of a device",
    "cpu_millis": "thousandths of a CPU",
    "memory_mib": "MiB",
}


def _shortage_of(rooms: Rooms, field: str, wish: Resources, smallest: int, known: int) -> str:
    suited = [
        kind
        for kind in rooms.kinds
        if (not wish.device_types or kind.device_type in wish.device_types)
        and kind.rails >= wish.rails
    ]
    if field == "devices":
        free = max(kind.whole for kind in suited)
    elif field == "device_millis":
        free = max(max((*kind.parts, 1_000 if kind.whole else 0), default=0) for kind in suited)
    else:
        free = max(getattr(kind, field) for kind in suited)
    fit = min(rooms.replicas(wish), smallest)
    where = "one device" if field == "device_millis" else "one host"
    return (
        f"{fit} of {smallest} replicas fit: each needs {getattr(wish, field)} {_UNITS[field]}, "
        f"the most free on {where} is {free}; {len(rooms)} of {known} hosts take new work"
    )


def _badly_placed(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Refusal:
    """There is room enough, were it not for how and beside whom the gang is to stand."""
    placing = role.placement
    candidates = Candidates(state, rooms, gang, role)
    if candidates.waits_for:
        return Refusal(QueueReason.NEAR, f"role {placing.near} has no place yet to be near to")
    if placing.near_required and candidates.is_nowhere():
        detail = f"role {placing.near} is not known to stand in any {placing.near_level}"
        return Refusal(QueueReason.NEAR, detail)
    pool = candidates.pool()
    if pool.fit < smallest:
        return _objections(candidates, pool.fit, smallest)
    if placing.within:
        level = LEVELS.index(placing.within)
        domains, _ = pool.split(level)
        fits = {name: most(candidates, one) for name, one in domains.items()}
        if not fits:
            detail = f"no host with room is known to stand in a {placing.within}"
            return Refusal(QueueReason.TOPOLOGY, detail)
        name = min(fits, key=lambda name: (-fits[name], name))
        spread = f", spread over each {placing.spread}" if placing.spread else ""
        return Refusal(
            QueueReason.TOPOLOGY,
            f"{min(fits[name], smallest)} of {smallest} replicas fit within one {placing.within}"
            f"{spread}: the most, in {name} of {len(fits)}",
        )
    return Refusal(
        QueueReason.TOPOLOGY,
        f"{min(most(candidates, pool), smallest)} of {smallest} replicas fit spread over each "
        f"{placing.spread} with at most {placing.spread_skew} more in one than in another",
    )


_OBJECTIONS = {
    "near": "not near role {near}",
    "probation": "on probation, for preemptible gangs of up to {largest} tasks",
    "whole_hosts": "used by others",
    "kept_away": "used by others that want no company",
    "apart_from": "used by whom it stands apart from",
}


def _objections(candidates: Candidates, fit: int, smallest: int) -> Refusal:
    counts: dict[str, int] = {}
    for room in candidates.rooms.values():
        if candidates.weighing.of(room.kind)[0]:
            why = candidates.objection(room)
            if why:
                counts[why] = counts.get(why, 0) + 1
    near = candidates.placing.near
    told = [
        f"{counts[why]} hosts {words.format(near=near, largest=candidates.probation_gang)}"
        for why, words in _OBJECTIONS.items()
        if why in counts
    ]
    if candidates.placing.per_host:
        told.append(f"at most {candidates.placing.per_host} on one host")
    first = max(counts, key=lambda why: (counts[why], why), default="")
    reason = QueueReason.NEAR if first == "near" else QueueReason.APART
    return Refusal(reason, f"{fit} of {smallest} replicas fit: {', '.join(told)}")
