"""Silence of a live host: when to look at it, and what comes of it, and of being heard again."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import gangs
from coord.core.state import State
from coord.core.step import Step
from coord.model.decisions import HostCleared, HostSuspected
from coord.model.entities import Host, HostStatus


def clear(step: Step, host: Host) -> None:
    """An attentive host's beat counted: no suspicion, and nothing left of stretched leases."""
    state = step.state
    if host.status == HostStatus.SUSPECT:
        cause = step.decide(HostCleared((step.cause, host.status_cause), host.host))
        host = replace(host, status=HostStatus.UP, extensions=0, status_cause=cause)
        state.put_host(host)
        hear_of_tasks(step, host)
        step.scheduling = True
    else:
        state.put_host(replace(host, extensions=0))
    for key in state.silences:
        state.timers.arm("silence", key, step.now_ms)
    wake(state, host)


def hear_of_tasks(step: Step, host: Host) -> None:
    for key in host.tasks:
        gangs.heard_again(step, step.state.tasks[key])


def wake(state: State, host: Host) -> None:
    """Look at it when its silence will have lasted long enough for the next verdict.

    Hosts of a roster that nobody suspects are looked at together, upon the roster's alarm alone:
    which alarm takes a verdict must follow from the rows, or restarted servers would take verdicts
    in another order.
    """
    settings = state.meta.settings
    limit_ms = settings.lease_ms if host.status == HostStatus.SUSPECT else settings.suspect_ms
    due_ms = state.last_seen_ms[host.slot] + limit_ms
    if is_watched_by_roster(state, host):
        state.timers.arm("roster", state.relay_of[host.slot], due_ms)
    else:
        state.timers.arm("host", host.host, due_ms)


def judge_silence(step: Step, host: Host) -> None:
    """A live host was not heard for so long: is it suspected, and has its lease run out?"""
    state = step.state
    settings = state.meta.settings
    silent_ms = step.now_ms - state.last_seen_ms[host.slot]
    if host.status == HostStatus.UP and silent_ms >= settings.suspect_ms:
        cause = step.decide(HostSuspected((step.cause, host.status_cause), host.host, silent_ms))
        host = replace(host, status=HostStatus.SUSPECT, status_cause=cause)
        state.put_host(host)
        step.scheduling = True
    if host.status == HostStatus.SUSPECT and silent_ms >= settings.lease_ms:
        step.expired = True
        return
    wake(state, host)


def is_watched_by_roster(state: State, host: Host) -> bool:
    return host.status == HostStatus.UP and host.slot in state.relay_of
