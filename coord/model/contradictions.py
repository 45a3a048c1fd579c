"""What in the placement of a role can never be, whatever the fleet is like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coord.model.place import LEVELS

if TYPE_CHECKING:
    from coord.model.spec import JobSpec, RoleSpec

Found = Iterator[tuple[str, str]]
"""(path of the field below the role, what is wrong with it)."""

COUNT_LIMIT = 65_536

OTHER_JOB = "job/"

DEFAULT_NEAR_LEVEL = "rack"


def contradictions(spec: JobSpec, at: int) -> Found:
    """Of the role with that number."""
    role = spec.roles[at]
    yield from _of_resources(role)
    if not _known_levels(role):
        yield from _unknown_levels(role)
    else:
        yield from _of_levels(role)
    yield from _of_numbers(role)
    yield from _of_company(spec, role)
    yield from _of_nearness(spec, at)
    yield from _of_order(spec, at)


def _of_resources(role: RoleSpec) -> Found:
    need = role.resources
    part = need.device_millis
    if part > 999:
        yield (
            "resources.device_millis",
            f"is {part}; a part of a device is 1 to 999 thousandths, whole ones are `devices`",
        )
    if part and need.devices:
        yield (
            "resources.device_millis",
            f"is {part} beside devices {need.devices}; a replica takes whole devices or a part",
        )
    if not all(need.device_types):
        yield "resources.device_types", "has an empty name"
    elif len(dict.fromkeys(need.device_types)) < len(need.device_types):
        yield "resources.device_types", "names a type twice"
    elif need.device_types and not (need.devices or part):
        yield (
            "resources.device_types",
            "is given, but no devices are asked for: set devices or device_millis",
        )


def _levels(role: RoleSpec) -> tuple[tuple[str, str], ...]:
    placing = role.placement
    return (
        ("within", placing.within),
        ("prefer_within", placing.prefer_within),
        ("spread", placing.spread),
        ("near_level", placing.near_level),
    )


def _known_levels(role: RoleSpec) -> bool:
    return all(not level or level in LEVELS for _, level in _levels(role))


def _unknown_levels(role: RoleSpec) -> Found:
    for name, level in _levels(role):
        if level and level not in LEVELS:
            yield f"placement.{name}", f"is {level!r}; the levels are {', '.join(LEVELS)}"


def _of_levels(role: RoleSpec) -> Found:
    placing = role.placement
    if placing.spread:
        for name, level in (("within", placing.within), ("prefer_within", placing.prefer_within)):
            if level and LEVELS.index(placing.spread) <= LEVELS.index(level):
                yield (
                    "placement.spread",
                    f"is {placing.spread!r}, but {name} is {level!r}: it is spread over domains "
                    f"inside that one, so over a narrower level",
                )
    within, prefer = placing.within, placing.prefer_within
    if within and prefer and LEVELS.index(prefer) <= LEVELS.index(within):
        yield (
            "placement.prefer_within",
            f"is {prefer!r}, but within is {within!r}: prefer a level inside that one",
        )
    if placing.within == "host" and placing.per_host and role.smallest > placing.per_host:
        yield (
            "placement.per_host",
            f"is {placing.per_host}, but {role.smallest} replicas are to stand within one host",
        )


def _of_numbers(role: RoleSpec) -> Found:
    placing = role.placement
    if not 1 <= placing.spread_skew <= COUNT_LIMIT:
        yield (
            "placement.spread_skew",
            f"is {placing.spread_skew}; it must be 1 to {COUNT_LIMIT}",
        )
    elif placing.spread_skew != 1 and not placing.spread:
        yield "placement.spread_skew", f"is {placing.spread_skew}, but spread names no level"
    if not 0 <= placing.per_host <= COUNT_LIMIT:
        yield (
            "placement.per_host",
            f"is {placing.per_host}; it must be 0 (as many as fit) to {COUNT_LIMIT}",
        )
    if placing.whole_hosts and role.resources.device_millis:
        yield (
            "placement.whole_hosts",
            "is set beside resources.device_millis: who shares no host shares no device",
        )


def _of_company(spec: JobSpec, role: RoleSpec) -> Found:
    names = {other.name: None for other in spec.roles}
    for name in role.placement.apart_from:
        if name == role.name:
            yield (
                "placement.apart_from",
                f"names {name!r} itself; for replicas on different hosts set per_host to 1",
            )
        elif name == f"{OTHER_JOB}{spec.name}":
            yield "placement.apart_from", f"names its own job {spec.name!r}; name its roles"
        elif name.startswith(OTHER_JOB):
            if not name[len(OTHER_JOB) :] or "/" in name[len(OTHER_JOB) :]:
                yield "placement.apart_from", f"has {name!r}; another job is named as job/NAME"
        elif name not in names:
            yield (
                "placement.apart_from",
                f"names {name!r}, which is no role of the job; another job is named as job/NAME",
            )


def _of_nearness(spec: JobSpec, at: int) -> Found:
    role = spec.roles[at]
    placing = role.placement
    if not placing.near:
        if placing.near_required:
            yield "placement.near_required", "is set, but near names no role"
        if placing.near_level != DEFAULT_NEAR_LEVEL:
            yield "placement.near_level", f"is {placing.near_level!r}, but near names no role"
        return
    if placing.near == role.name:
        yield "placement.near", f"names {role.name!r} itself; to stand together set within"
        return
    others = [other for other in spec.roles if other.name == placing.near]
    if not others:
        yield "placement.near", f"names {placing.near!r}, which is no role of the job"
        return
    if all(other.name != placing.near for other in spec.roles[:at]):
        yield (
            "placement.near",
            f"names {placing.near!r}, which comes after it: a role stands near one before it, so "
            f"that none waits for itself",
        )
    other = others[0]
    if not placing.near_required or placing.near_level != "host":
        return
    for there in _on_one_host(spec, other):
        if there.name in placing.apart_from or role.name in there.placement.apart_from:
            whose = "" if there is other else f", which is on that of {there.name!r}"
            yield (
                "placement.near",
                f"requires the host of {placing.near!r}{whose}, from which it stands apart",
            )
    if placing.whole_hosts or other.placement.whole_hosts:
        yield (
            "placement.near",
            f"requires the host of {placing.near!r}, but whole_hosts leaves room for one role",
        )


def _on_one_host(spec: JobSpec, role: RoleSpec) -> Iterator[RoleSpec]:
    """The role, and those on whose host it must be, one after the other."""
    seen: dict[str, None] = {}
    next_role: RoleSpec | None = role
    while next_role is not None and next_role.name not in seen:
        seen[next_role.name] = None
        yield next_role
        placing = next_role.placement
        on_host = placing.near_required and placing.near_level == "host"
        next_role = spec.role(placing.near) if on_host else None


def _of_order(spec: JobSpec, at: int) -> Found:
    role = spec.roles[at]
    names = [other.name for other in spec.roles]
    for name in dict.fromkeys(role.placement.after):
        if name == role.name:
            yield "placement.after", f"names {name!r} itself; a role cannot start after itself"
        elif name not in names:
            yield "placement.after", f"names {name!r}, which is no role of the job"
        elif way := _way(spec, name, role.name):
            yield (
                "placement.after",
                f"names {name!r}, which waits for it: {' waits for '.join((role.name, *way))}",
            )
    if len(dict.fromkeys(role.placement.after)) < len(role.placement.after):
        yield "placement.after", "names a role twice"


def _way(spec: JobSpec, first: str, last: str) -> tuple[str, ...]:
    """Roles from one to another, each of which starts only once the next has, or has its place;
    empty when there is no such way."""
    ways: dict[str, tuple[str, ...]] = {first: (first,)}
    waiting = [first]
    while waiting:
        name = waiting.pop(0)
        role = spec.role(name)
        if name == last or role is None:
            return ways.get(last, ())
        near = (role.placement.near,) if role.placement.near_required else ()
        for other in (*role.placement.after, *near):
            if other not in ways:
                ways[other] = (*ways[name], other)
                waiting.append(other)
    return ()
