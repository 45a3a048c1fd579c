"""What a job asks that the fleet could not give, though nothing else ran on it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from coord.core.placement.candidates import Candidates
from coord.core.placement.placing import best_domain, most
from coord.core.placement.room import Kind, Room
from coord.core.placement.rooms import Rooms
from coord.core.state import State
from coord.model.entities import Gang, GangPhase, HostStatus
from coord.model.place import LEVELS
from coord.model.spec import JobSpec, Problem, RoleSpec

Found = Iterator[tuple[str, str]]


def never_fits(state: State, spec: JobSpec) -> list[Problem]:
    """Why the job cannot start on the hosts that are known, all of them up and empty.

    Advice, and no reason to refuse the job: fleets grow. Empty while no host is known. Which other
    roles and jobs it stands near or apart from is not asked.
    """
    hosts = [host for host in state.hosts.values() if host.status != HostStatus.REMOVED]
    rooms = Rooms((Room(replace(host, probation=0)) for host in hosts), jobs=state.jobs)
    found = []
    for at, role in enumerate(spec.roles if rooms else ()):
        for field, message in _of_role(state, rooms, spec, role):
            found.append(Problem(f"roles[{at}].{field}", message))
    return found


def _of_role(state: State, rooms: Rooms, spec: JobSpec, role: RoleSpec) -> Found:
    alone = replace(role.placement, near="", near_required=False, apart_from=())
    role = replace(role, placement=alone)
    smallest = role.smallest if role.gang else 1
    gang = Gang(
        f"{spec.name}/{role.name}", spec.name, role.name, -1, GangPhase.WAITING, role.replicas
    )
    candidates = Candidates(state, rooms, gang, role)
    lacking = list(_of_one_host(role, list(rooms.kinds)))
    if lacking:
        yield from lacking
        return
    pool = candidates.pool()
    if pool.fit < smallest:
        field = "min_replicas" if role.min_replicas else "replicas"
        yield field, f"is {smallest}; {pool.fit} fit on all hosts together, were they empty"
        return
    placing = role.placement
    if placing.within and smallest > 1:
        level = LEVELS.index(placing.within)
        if best_domain(candidates, pool, level, role.replicas, smallest) is None:
            domains, _ = pool.split(level)
            fits = {name: most(candidates, one) for name, one in domains.items()}
            name = min(fits, key=lambda name: (-fits[name], name), default="")
            largest = f"{name}, the largest, fits {fits[name]}" if name else "no host is in one"
            spread = f", spread over each {placing.spread}" if placing.spread else ""
            yield (
                "placement.within",
                f"is {placing.within!r}: no one has room for {smallest} replicas{spread}, were it "
                f"empty; {largest}",
            )
    elif placing.spread and most(candidates, pool) < smallest:
        yield (
            "placement.spread",
            f"is {placing.spread!r} with a skew of {placing.spread_skew}: "
            f"{most(candidates, pool)} of {smallest} replicas fit so, were all hosts empty",
        )


def _of_one_host(role: RoleSpec, kinds: list[Kind]) -> Found:
    """One replica has no host."""
    need = role.resources
    types = sorted({kind.device_type: None for kind in kinds if kind.device_type})
    if need.device_types:
        kinds = [kind for kind in kinds if kind.device_type in need.device_types]
        if not kinds:
            there = f"there are {', '.join(types)}" if types else "no host names its type"
            wanted = " or ".join(need.device_types)
            yield "resources.device_types", f"no host has devices of type {wanted}; {there}"
            return
    most_rails = max(kind.rails for kind in kinds)
    if most_rails < need.rails:
        yield "resources.rails", f"is {need.rails}; the most that one host has is {most_rails}"
        return
    kinds = [kind for kind in kinds if kind.rails >= need.rails]
    of = " of these types" if need.device_types else ""
    short = False
    if need.device_millis and not any(kind.whole for kind in kinds):
        short = True
        yield "resources.device_millis", f"is {need.device_millis}; no host{of} has devices"
    for field, name in (
        ("devices", "whole"),
        ("cpu_millis", "cpu_millis"),
        ("memory_mib", "memory_mib"),
    ):
        largest = max(getattr(kind, name) for kind in kinds)
        each = getattr(need, field)
        if each > largest:
            short = True
            yield f"resources.{field}", f"is {each}; the most that one host{of} has is {largest}"
    if not short and not any(kind.replicas(need) for kind in kinds):
        yield "resources", f"no one host{of} has all that a replica needs at once"
