"""Mass silence of one failure domain: a switch, a rack, a pod is one incident, not many hosts.

A domain is silent when at least `breaker_min_hosts` and more than `SilenceSettings.share_permille`
of its hosts are: suspected now, or lost within the last `breaker_window_ms`. Its silent hosts are
then judged together or not at all:

| the domain | upon                                                      | decision     |
| ---------- | --------------------------------------------------------- | ------------ |
| lives      | the first lease of its silent hosts runs out              | DomainSilent |
| silent     | so many were heard again that it is not silent any more   | DomainHeard  |
| silent     | `grace_ms` later, or when an operator allows it           | DomainLost   |

Where several domains are silent, the one that explains most of the silence is named, and of those
that explain the same the smallest: a rack when only that rack is silent, its pod when several racks
of it are. A domain that becomes part of a wider one goes on under that one's name.

Domains are those of the tree, and of every switch the hosts to which any way leads through it. A
host of which no place is known is in none, and is judged alone.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core import topology
from coord.core.state import LIVE_HOST, State
from coord.core.step import Step
from coord.model.care import Silence
from coord.model.care_decisions import DomainHeard, DomainLost, DomainSilent
from coord.model.entities import Host, HostStatus
from coord.model.place import LEVELS, NOWHERE, domain

SMALLEST_FIRST = ("nvlink", "rack", "switch", "pod", "zone")

POSTPONED_LIMIT = 5
"""How often a silence that grows, or whose hosts had their leases renewed, gets more time."""

Where = tuple[str, str]
"""Level and domain."""


def look(step: Step) -> dict[str, None]:
    """Bring the silences up to date. Returns the hosts that are not to be judged alone."""
    state = step.state
    silent = {
        host.host: host
        for host in state.hosts.values()
        if host.status == HostStatus.SUSPECT and _has_place(state, host)
    }
    if not silent and not state.silences:
        return {}
    members = _domains(state, step.now_ms - state.meta.settings.breaker_window_ms)
    found = _explained(state, silent, members)
    kept = dict.fromkeys(name for names in found.values() for name in names)
    before = {key: state.silences[key] for key in sorted(state.silences)}
    for where, names in found.items():
        known = before.get(_key(where))
        if known is None:
            _open(step, where, names, len(members[where]), before)
        elif known.hosts != names:
            state.silences.put(_key(where), replace(known, hosts=names))
    for key, known in before.items():
        if (known.level, known.domain) not in found:
            state.silences.drop(key)
            still = tuple(name for name in known.hosts if name in silent)
            if not still or not all(name in kept for name in still):
                causes = (step.cause, known.cause)
                step.decide(DomainHeard(causes, known.level, known.domain, still))
    return kept


def take_due(step: Step) -> list[tuple[Silence, tuple[str, ...], str]]:
    """Silences that have lasted too long: (which, who is lost, why). They are open no more."""
    state = step.state
    due = []
    for key in sorted(state.silences):
        known = state.silences[key]
        allowed = step.now_ms <= state.meta.evictions_allowed_until_ms
        if step.now_ms < known.due_ms and not allowed:
            state.timers.arm("silence", key, known.due_ms)
            continue
        over = {name: _lease_over_ms(state, name) for name in known.hosts}
        waits = [at_ms for at_ms in over.values() if at_ms > step.now_ms]
        patient = not allowed and known.postponed < POSTPONED_LIMIT
        lost = tuple(name for name in known.hosts if over[name] <= step.now_ms)
        if waits and (patient or not lost):
            later = replace(known, due_ms=max(waits), postponed=known.postponed + 1)
            state.silences.put(key, later)
            state.timers.arm("silence", key, later.due_ms)
            continue
        state.silences.drop(key)
        causes = (step.cause, known.cause)
        decided = step.decide(DomainLost(causes, known.level, known.domain, lost))
        due.append((known, lost, decided))
    return due


def _open(
    step: Step, where: Where, names: tuple[str, ...], members: int, before: dict[str, Silence]
) -> None:
    """A silence, or one that goes on under another name: it gets more time only if it has grown."""
    state = step.state
    level, name = where
    inside = dict.fromkeys(names)
    parts = [known for known in before.values() if any(host in inside for host in known.hosts)]
    due_ms = step.now_ms + state.meta.settings.policy.silence.grace_ms
    postponed = 0
    if parts:
        postponed = max(part.postponed for part in parts) + 1
        grown = len(names) > sum(len(part.hosts) for part in parts)
        if not grown or postponed > POSTPONED_LIMIT:
            due_ms = min(part.due_ms for part in parts)
    earlier = [part.cause for part in parts] or [state.hosts[names[0]].status_cause]
    causes = (step.cause, *earlier)
    cause = step.decide(DomainSilent(causes, level, name, names, members, due_ms))
    known = Silence(level, name, names, members, step.now_ms, due_ms, cause, postponed)
    state.silences.put(_key(where), known)
    state.timers.arm("silence", _key(where), due_ms)


def _explained(
    state: State, silent: dict[str, Host], members: dict[Where, list[str]]
) -> dict[Where, tuple[str, ...]]:
    """The domains to be named, each with its silent hosts; every host in one of them at most."""
    settings = state.meta.settings
    dark: dict[Where, list[str]] = {}
    for where, names in members.items():
        gone = [name for name in names if state.hosts[name].status != HostStatus.UP]
        here = [name for name in gone if name in silent]
        if not here or len(gone) < settings.breaker_min_hosts:
            continue
        if len(gone) * 1000 > settings.policy.silence.share_permille * len(names):
            dark[where] = here
    found: dict[Where, tuple[str, ...]] = {}
    left = dict.fromkeys(name for names in dark.values() for name in names)
    while left:
        covered = {where: [name for name in names if name in left] for where, names in dark.items()}
        best = min(
            (where for where in dark if covered[where]),
            key=lambda where: (-len(covered[where]), len(members[where]), _order(where)),
        )
        found[best] = tuple(sorted(covered[best]))
        for name in covered[best]:
            del left[name]
    return found


def _domains(state: State, since_ms: int) -> dict[Where, list[str]]:
    """Every domain with its hosts that live, or were lost after `since_ms`, by name."""
    found: dict[Where, list[str]] = {}
    above: dict[str, dict[str, None]] = {}
    for name in sorted(state.hosts):
        host = state.hosts[name]
        recent = host.status == HostStatus.LOST and host.lost_at_ms > since_ms
        if host.status not in LIVE_HOST and not recent:
            continue
        for level in SMALLEST_FIRST:
            where = domain(host.place, name, level) if level in LEVELS else ""
            if where:
                found.setdefault((level, where), []).append(name)
        for switch in _switches(state, host, above):
            found.setdefault(("switch", switch), []).append(name)
    return found


def _switches(state: State, host: Host, above: dict[str, dict[str, None]]) -> dict[str, None]:
    """Every switch that a way to the host leads through. `above` keeps what was found of each."""
    found: dict[str, None] = {}
    for leaf in topology.leaves(state, host):
        if leaf not in above:
            above[leaf] = _upwards(state, leaf)
        found |= above[leaf]
    return found


def _upwards(state: State, switch: str) -> dict[str, None]:
    found = {switch: None}
    ready = [switch]
    for name in ready:
        row = state.switches.get(name)
        for up in row.uplinks if row is not None else ():
            if up.switch not in found:
                found[up.switch] = None
                ready.append(up.switch)
    return found


def _has_place(state: State, host: Host) -> bool:
    return host.place is not NOWHERE or bool(topology.leaves(state, host))


def _lease_over_ms(state: State, name: str) -> int:
    return state.last_seen_ms[state.hosts[name].slot] + state.meta.settings.lease_ms


def _order(where: Where) -> tuple[int, str]:
    return (SMALLEST_FIRST.index(where[0]), where[1])


def _key(where: Where) -> str:
    return f"{where[0]}:{where[1]}"
