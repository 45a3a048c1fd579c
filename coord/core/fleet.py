"""What tasks and gangs take of hosts, and give back."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.care import quarantine as quarantines
from coord.core.state import LIVE_HOST
from coord.core.step import Step
from coord.model.decisions import HostDrained, HostQuarantined
from coord.model.entities import DrainState, Gang, Hold, Host, HostStatus, Task


def usable(host: Host) -> bool:
    """New work may go there."""
    return host.status == HostStatus.UP and _takes_work(host)


def _takes_work(host: Host) -> bool:
    """Once it is up, that is: nobody wants it empty, and it is not known to be broken."""
    return not host.drain and not host.quarantine and not host.withheld


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
    if host.withheld:
        quarantines.withhold(step, task.host)
    look_if_drained(step, task.host)


def change(step: Step, task: Task) -> None:
    """Store a task whose host's plan changes with it."""
    state = step.state
    state.tasks.put(task.key, task)
    host = state.hosts[task.host]
    if host.plan_version != step.entry.index:
        state.put_host(replace(host, plan_version=step.entry.index))


def look_if_drained(step: Step, name: str) -> None:
    """Was that the last task of a draining host, or of one in quarantine?"""
    host = step.state.hosts[name]
    if host.tasks:
        return
    if host.move_by_ms:
        host = replace(host, move_by_ms=0, move_reason="", move_cause="")
        step.state.put_host(host)
    if host.drain == DrainState.DRAINING:
        step.decide(HostDrained((step.cause,), name))
        step.state.put_host(replace(host, drain=DrainState.DRAINED))
    if host.quarantine:
        quarantines.emptied(step, name)


def quarantine(step: Step, name: str, reason: str, cause: str, *, proven: bool = True) -> None:
    """Evidence against a host: it proves it broken, or is a suspicion. Under rules of version 1 it
    takes no new work until an operator returns it, and what runs, runs on; since, and of a host
    that an operator took out before, `quarantine.py` says what follows."""
    host = step.state.hosts[name]
    if step.state.meta.logic_version >= 2 or name in step.state.quarantines:
        if quarantines.accuse(step, name, reason, cause, proven=proven):
            drop_holds(step, name)
            look_if_drained(step, name)
        elif step.state.hosts[name].withheld:
            drop_holds(step, name)
    elif not host.quarantine:
        step.decide(HostQuarantined((step.cause, cause), name, reason))
        step.state.put_host(replace(host, quarantine=reason))
        drop_holds(step, name)


def drop_holds(step: Step, *names: str) -> None:
    """Nobody keeps a place on hosts that take no work."""
    gone = dict.fromkeys(names)
    for key in sorted(step.state.gangs):
        gang = step.state.gangs[key]
        if any(step.state.tasks[one].host in gone for one in gang.standbys):
            step.scheduling = True  # They are looked at, and let go, before anybody is placed.
        if any(hold.host in gone for hold in gang.holds):
            left = tuple(hold for hold in gang.holds if hold.host not in gone)
            if key in step.state.recovering.sparing:
                step.scheduling = True  # It needs another spare.
            step.state.put_gang(replace(gang, holds=left))


def hold_place(step: Step, gang: Gang, task: Task, *, spare: bool = False) -> Gang:
    """Keep the place of a task that will be started again, if its host still takes work; with
    `spare`, as one beside its gang."""
    host = step.state.hosts[task.host]
    if host.status not in LIVE_HOST or not _takes_work(host):
        return gang
    hold = Hold(
        task.host, spare, task.devices, task.cpu_millis, task.memory_mib, task.device_millis
    )
    return replace(gang, holds=(*gang.holds, hold))
