"""What tasks and gangs take of hosts, and give back."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.step import Step
from coord.model.decisions import HostDrained, HostQuarantined
from coord.model.entities import DrainState, Gang, Hold, Host, HostStatus, Task


def usable(host: Host) -> bool:
    """New work may go there."""
    return host.status == HostStatus.UP and not host.drain and not host.quarantine


def take(step: Step, tasks: list[Task]) -> None:
    """The tasks occupy their hosts from now on; the hosts' plans have them."""
    state = step.state
    new: dict[str, list[str]] = {}
    for task in tasks:
        state.tasks.put(task.key, task)
        new.setdefault(task.host, []).append(task.key)
    for name, keys in new.items():
        host = state.hosts[name]
        state.put_host(replace(host, tasks=(*host.tasks, *keys), plan_version=step.entry.index))


def release(step: Step, task: Task) -> None:
    """The task is gone for good; what it took is free, unless the caller keeps it for the gang."""
    state = step.state
    state.tasks.drop(task.key)
    host = state.hosts[task.host]
    tasks = tuple(key for key in host.tasks if key != task.key)
    state.put_host(replace(host, tasks=tasks, plan_version=step.entry.index))
    look_if_drained(step, task.host)


def change(step: Step, task: Task) -> None:
    """Store a task whose host's plan changes with it."""
    state = step.state
    state.tasks.put(task.key, task)
    host = state.hosts[task.host]
    if host.plan_version != step.entry.index:
        state.put_host(replace(host, plan_version=step.entry.index))


def look_if_drained(step: Step, name: str) -> None:
    """Was that the last task of a draining host?"""
    host = step.state.hosts[name]
    if host.drain == DrainState.DRAINING and not host.tasks:
        step.decide(HostDrained((step.cause,), name))
        step.state.put_host(replace(host, drain=DrainState.DRAINED))


def quarantine(step: Step, name: str, reason: str, cause: str) -> None:
    """No new work there until an operator returns it. What runs, runs on."""
    host = step.state.hosts[name]
    if not host.quarantine:
        step.decide(HostQuarantined((step.cause, cause), name, reason))
        step.state.put_host(replace(host, quarantine=reason))
        drop_holds(step, name)


def drop_holds(step: Step, name: str) -> None:
    """Nobody keeps a place on a host that takes no work."""
    for key in sorted(step.state.gangs):
        gang = step.state.gangs[key]
        if any(hold.host == name for hold in gang.holds):
            left = tuple(hold for hold in gang.holds if hold.host != name)
            step.state.put_gang(replace(gang, holds=left))


def hold_place(step: Step, gang: Gang, task: Task) -> Gang:
    """Keep the place of a task that will be started again, if its host still takes work."""
    host = step.state.hosts[task.host]
    if host.drain or host.quarantine or host.status not in (HostStatus.UP, HostStatus.SUSPECT):
        return gang
    hold = Hold(
        task.host, False, task.devices, task.cpu_millis, task.memory_mib, task.device_millis
    )
    return replace(gang, holds=(*gang.holds, hold))
