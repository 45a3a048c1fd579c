"""Rolling maintenance: the hosts of a domain go out in turn, never more than a limit at a time.

A host that is to go is drained as an operator would drain it. It is back when it is undrained, or
when its agent registers with another boot id, by which its drain ends; the next one goes then. With
`safe`, none goes as long as a gang that runs, or is between two generations, would find no place
without it: that is tried again whenever something may have changed.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import topology
from coord.core.care import drains
from coord.core.gangs import ACTIVE
from coord.core.placement import place, rooms_of
from coord.core.state import State
from coord.core.step import Step, on
from coord.core.stopping import role_of
from coord.model.care import MaintainedHost, Maintenance
from coord.model.care_decisions import (
    MaintenanceEnded,
    MaintenanceHostBack,
    MaintenanceHostOut,
    MaintenanceStalled,
    MaintenanceStarted,
)
from coord.model.entities import Gang, GangPhase
from coord.model.events import MaintenanceCancelled, MaintenanceRequested
from coord.model.place import LEVELS
from coord.model.rejections import Rejection
from coord.model.settings import LONGEST_MS

KEPT = 50
"""Ended ones that stay visible."""

RETRY_MS = 5_000
"""After which one that is stalled is tried again."""


@on(MaintenanceRequested)
def _requested(step: Step, event: MaintenanceRequested) -> Rejection | None:
    """`Recorded.result` is its number."""
    state = step.state
    if event.limit < 1 or not 0 <= event.within_ms <= LONGEST_MS:
        return Rejection.INVALID
    found = hosts_of(state, event.level, event.domain)
    if found is None:
        return Rejection.UNKNOWN_DOMAIN
    domain, names = found
    active = [one for one in state.maintenances.values() if not one.ending]
    taken = [name for one in active for name in (*one.waiting, *(out.host for out in one.out))]
    if any(name in names for name in taken):
        return Rejection.MAINTENANCE_ACTIVE
    number = 1 + max((one.maintenance for one in state.maintenances.values()), default=0)
    step.result = number
    step.decide(MaintenanceStarted((step.cause,), number, event.level, domain, names, event.limit))
    row = Maintenance(
        maintenance=number,
        level=event.level,
        domain=domain,
        limit=event.limit,
        actor=event.actor,
        reason=event.reason,
        since=step.entry.index,
        since_ms=step.now_ms,
        within_ms=event.within_ms,
        safe=event.safe,
        waiting=names,
    )
    _advance(step, row)
    return None


@on(MaintenanceCancelled)
def _cancelled(step: Step, event: MaintenanceCancelled) -> Rejection | None:
    """No further host goes. One that is still being emptied returns; one that is empty stays out
    until somebody undrains it."""
    row = step.state.maintenances.get(str(event.maintenance))
    if row is None or row.ending:
        return Rejection.UNKNOWN_MAINTENANCE
    hosts = step.state.hosts
    returning = [out.host for out in row.out if hosts[out.host].tasks]
    still_out = tuple(out for out in row.out if out.host not in returning)
    done = (*row.done, *returning)
    _end(step, replace(row, waiting=(), out=still_out, done=done), "cancelled")
    for name in returning:
        drains.end_drain(step, hosts[name], step.cause)
    return None


def hosts_of(state: State, level: str, name: str) -> tuple[str, tuple[str, ...]] | None:
    """(full name, hosts) of the one domain of that name, or whose path ends so; None for none, or
    for several."""
    if level == "switch":
        hosts = topology.hosts_behind(state, name)
        return (name, hosts) if hosts else None
    if level not in LEVELS or not name:
        return None
    known = topology.domains(state, level)
    asked = name.strip("/")
    fitting = [where for where in known if where.strip("/") == asked]
    fitting = fitting or [where for where in known if where.endswith(f"/{asked}")]
    return (fitting[0], known[fitting[0]]) if len(fitting) == 1 else None


def booted(step: Step, name: str) -> None:
    """The host registered with another boot id: whatever was to be done to it is done."""
    row = _of_host(step.state, name)
    out = next((one for one in row.out if one.host == name), None) if row else None
    host = step.state.hosts[name]
    if row is None or out is None or host.boot == out.boot:
        return
    if host.drain:
        drains.end_drain(step, host, step.cause)
    _back(step, row, name, "booted anew")


def undrained(step: Step, name: str) -> None:
    row = _of_host(step.state, name)
    if row is not None and any(out.host == name for out in row.out):
        _back(step, row, name, "undrained")


def removed(step: Step, name: str) -> None:
    row = _of_host(step.state, name)
    if row is None:
        return
    if name in row.waiting:
        _advance(step, replace(row, waiting=tuple(one for one in row.waiting if one != name)))
    else:
        _back(step, row, name, "removed")


def look_at(step: Step, key: str) -> None:
    """The alarm of a maintenance went off: may the next host go by now?"""
    row = step.state.maintenances.get(key)
    if row is None or row.ending or not row.stalled:
        return
    if step.now_ms < row.retry_ms:
        step.state.timers.arm("maintenance", key, row.retry_ms)
    else:
        _advance(step, row)


def _of_host(state: State, name: str) -> Maintenance | None:
    for key in sorted(state.maintenances):
        row = state.maintenances[key]
        if not row.ending and (name in row.waiting or any(out.host == name for out in row.out)):
            return row
    return None


def _back(step: Step, row: Maintenance, name: str, why: str) -> None:
    step.decide(MaintenanceHostBack((step.cause,), row.maintenance, name, why))
    out = tuple(one for one in row.out if one.host != name)
    _advance(step, replace(row, out=out, done=(*row.done, name)))


def _advance(step: Step, row: Maintenance) -> None:
    """Take out as many hosts as the limit, and what runs, allow."""
    state = step.state
    key = str(row.maintenance)
    blocked = ""
    while row.waiting and len(row.out) < row.limit:
        name = row.waiting[0]
        if row.safe:
            blocked = left_without_place(step, name)
        if blocked:
            break
        host = state.hosts[name]
        cause = step.decide(MaintenanceHostOut((step.cause,), row.maintenance, name))
        out = (*row.out, MaintainedHost(name, host.boot, step.now_ms))
        row = replace(row, waiting=row.waiting[1:], out=out, stalled="")
        if not host.drain_requested:
            by_ms = step.now_ms + row.within_ms if row.within_ms else 0
            reason = f"maintenance {row.maintenance}"
            reason = f"{reason}: {row.reason}" if row.reason else reason
            drains.drain(step, name, by_ms, reason, cause)
    if blocked and blocked != row.stalled:
        causes = (step.cause,)
        step.decide(MaintenanceStalled(causes, row.maintenance, row.waiting[0], blocked))
    row = replace(row, stalled=blocked, retry_ms=step.now_ms + RETRY_MS if blocked else 0)
    if not row.waiting and not row.out:
        _end(step, row, "done")
        return
    state.maintenances.put(key, row)
    if blocked:
        state.timers.arm("maintenance", key, row.retry_ms)


def _end(step: Step, row: Maintenance, ending: str) -> None:
    state = step.state
    step.decide(MaintenanceEnded((step.cause,), row.maintenance, ending))
    state.maintenances.put(
        str(row.maintenance), replace(row, ending=ending, ended_ms=step.now_ms, stalled="")
    )
    ended = sorted(one.maintenance for one in state.maintenances.values() if one.ending)
    newest = max(one.maintenance for one in state.maintenances.values())
    for number in ended[:-KEPT]:
        if number != newest:  # The next number follows on it.
            state.maintenances.drop(str(number))


def left_without_place(step: Step, name: str) -> str:
    """The gang that would find no place if this host went too, in words; empty when all would.

    Tried on a copy of what is free: gangs that have to leave a host and gangs on their way
    elsewhere, in the order in which they were submitted.
    """
    state = step.state
    rooms = rooms_of(state)
    rooms.leave(name)
    leaving = [host for host in state.hosts.values() if host.move_by_ms or host.host == name]
    there = dict.fromkeys(state.tasks[key].gang for host in leaving for key in host.tasks)
    moving = [
        gang
        for gang in state.gangs.values()
        if (gang.key in there and gang.phase in ACTIVE) or _between_generations(gang)
    ]
    for gang in moving:
        for key in gang.processes:
            rooms.free_task(state.tasks[key])
    for gang in sorted(moving, key=lambda gang: (gang.submitted, gang.key)):
        role = role_of(step, gang)
        smallest = min(role.smallest if gang.index < 0 else 1, gang.desired)
        if place(state, rooms, gang, role, smallest) is None:
            return f"{gang.key} would find no place"
    return ""


def _between_generations(gang: Gang) -> bool:
    if gang.phase == GangPhase.STOPPING:
        return not gang.stop_final
    return gang.phase == GangPhase.WAITING and gang.generation > 0
