"""Which host is to blame, if any: where failures began more often than chance explains.

For every incident it is kept which hosts took part and where it began. If no host were worse than
another, an incident would begin on each with the share of the tasks that it had. How often a host
was first is compared with that: the exact chance, in whole numbers, of being first at least so
often (a sum of unequal coin tosses), times the number of hosts that were looked at, because among
many hosts some are unlucky. Only below one in `blame_one_in` is the host blamed.

A gang of one host says nothing in this way, since it can fail nowhere else. For a host whose
failures were all of such gangs, only what the machine is at fault for counts, and the share
expected is that of the whole fleet's working time.

What a program does must not be put on a host, so:
- incidents of one rank of one job count at most twice: a bug follows its rank;
- at least two jobs must have failed there, and at least `blame_least` times;
- failures of the program alone, all in the same rank, blame nobody.

"Nobody" is the usual answer. Nothing follows from a verdict unless `on_blame` says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from coord.core import fleet
from coord.core.causes import attribution
from coord.core.state import State
from coord.core.step import Step
from coord.model.decisions import HostBlamed
from coord.model.entities import NO_BURST, FailureCause, Gang, Task
from coord.model.evidence import Attribution, HostEvidence

KEPT = 512
"""Incidents remembered, the newest ones."""
WEIGHED = 128
"""Of these, the newest that a host had a part in are weighed: exact chances take time."""
OF_ONE_RANK = 2
JOBS_LEAST = 2
QUARANTINE = 2
"""`EvidenceSettings.on_blame`: not only told."""
_COUNTED = (FailureCause.USER, FailureCause.INFRASTRUCTURE, FailureCause.UNKNOWN)


class Case(msgspec.Struct, frozen=True):
    """What speaks against one host. `chance` is (part, whole): that of being first so often."""

    first: tuple[Attribution, ...]
    incidents: int
    chance: tuple[int, int]


def remember(step: Step, gang: Gang, why: str) -> None:
    """A generation has ended in failure, and where it began is settled as far as it ever is."""
    state = step.state
    if not attribution.weighs(state) or not gang.incident or gang.burst is NO_BURST:
        return
    incident = state.incidents[str(gang.incident)]
    if incident.cause not in _COUNTED or str(gang.incident) in state.attributions:
        return
    placed: dict[str, int] = {}
    for host in gang.hosts:
        placed[host] = placed.get(host, 0) + 1
    names = tuple(sorted(placed))
    row = Attribution(
        gang.incident,
        gang.job,
        gang.key,
        incident.cause,
        step.now_ms,
        names,
        tuple(placed[name] for name in names),
        gang.burst.host if gang.burst.host in placed else "",
        gang.burst.rank,
    )
    state.attributions.put(str(gang.incident), row)
    _forget_old(state, step.now_ms)
    judge(step, row.host, why)


def _forget_old(state: State, now_ms: int) -> None:
    since_ms = now_ms - state.meta.settings.policy.evidence.memory_ms
    # Numbers grow with time, and keys stand in the order in which they were put.
    for key in list(state.attributions):
        if len(state.attributions) <= KEPT and state.attributions[key].at_ms > since_ms:
            break
        state.attributions.drop(key)


def judge(step: Step, name: str, why: str) -> None:
    """Is it this host's fault, after it was where a failure began?"""
    state = step.state
    settings = state.meta.settings.policy.evidence
    host = state.hosts.get(name)
    known = state.evidence.get(name) or HostEvidence(name)
    if host is None or known.blamed:
        return
    case, looked_at = case_against(state, name)
    jobs = len(dict.fromkeys(row.job for row in case.first))
    if len(case.first) < settings.blame_least or jobs < JOBS_LEAST or _of_a_program(case.first):
        return
    part, whole = case.chance
    if part * looked_at * settings.blame_one_in > whole:
        return
    one_in = min(whole // max(part * looked_at, 1), 1_000_000_000)
    numbers = tuple(row.incident for row in case.first)
    decided = step.decide(
        HostBlamed(
            (why,) if why == step.cause else (step.cause, why),
            name,
            len(case.first),
            case.incidents,
            jobs,
            looked_at,
            one_in,
            numbers,
        )
    )
    state.evidence.put(name, replace(known, blamed=numbers[-1]))
    if settings.on_blame == QUARANTINE:
        reason = f"failures began there: {len(case.first)} of {case.incidents} incidents"
        fleet.quarantine(step, name, reason, decided, proven=False)


def case_against(state: State, name: str) -> tuple[Case, int]:
    """(what speaks against the host, how many hosts are looked at)."""
    known = state.evidence.get(name) or HostEvidence(name)
    rows = [row for row in _counted(state) if row.incident > known.clean_since and row.host]
    looked_at = len(dict.fromkeys(host for row in rows for host in row.hosts))
    shared = [row for row in rows if len(row.hosts) > 1 and name in row.hosts][-WEIGHED:]
    first = tuple(row for row in shared if row.host == name)
    if first:
        tosses = [(_share(row, name), sum(row.tasks)) for row in shared]
        return Case(first, len(shared), at_least(len(first), tosses)), looked_at
    machine = [row for row in rows if row.cause == FailureCause.INFRASTRUCTURE][-WEIGHED:]
    first = tuple(row for row in machine if row.host == name)
    own, all_ms = _worked(known, state), sum(_worked(one, state) for one in _all_of(state))
    if not first or not own or all_ms == own:
        return Case(first, len(machine), (1, 1)), looked_at
    part = (own * 1_000_000 + all_ms - 1) // all_ms
    tosses = [(part, 1_000_000)] * len(machine)
    return Case(first, len(machine), at_least(len(first), tosses)), looked_at


def _counted(state: State) -> list[Attribution]:
    """All remembered, but those of a rank that was the root often enough before."""
    seen: dict[tuple[str, int], int] = {}
    kept = []
    for key in sorted(state.attributions, key=int):
        row = state.attributions[key]
        rank = (row.gang, row.rank)
        seen[rank] = seen.get(rank, 0) + 1
        if row.rank < 0 or seen[rank] <= OF_ONE_RANK:
            kept.append(row)
    return kept


def _share(row: Attribution, name: str) -> int:
    return row.tasks[row.hosts.index(name)]


def _of_a_program(first: tuple[Attribution, ...]) -> bool:
    by_program = all(row.cause == FailureCause.USER for row in first)
    return by_program and len(dict.fromkeys(row.rank for row in first)) == 1


def at_least(count: int, tosses: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The exact chance, as (part, whole), that at least `count` of the tosses succeed, each with
    its own chance (part, whole)."""
    ways = [1]
    """By successes, in units of one over `whole`."""
    whole = 1
    for part, of in tosses:
        failed = [way * (of - part) for way in ways] + [0]
        succeeded = [0] + [way * part for way in ways]
        ways = [lost + won for lost, won in zip(failed, succeeded, strict=True)]
        whole *= of
    return sum(ways[count:]), whole


# Working time: who works more has more occasions to fail.


def worked(step: Step, task: Task) -> None:
    """A task has left its host."""
    state = step.state
    if not attribution.weighs(state):
        return
    known = _moved_on(state, state.evidence.get(task.host) or HostEvidence(task.host), step.now_ms)
    spent_ms = max(step.now_ms - task.placed_ms, 0)
    state.evidence.put(task.host, replace(known, worked_ms=known.worked_ms + spent_ms))


def _moved_on(state: State, known: HostEvidence, now_ms: int) -> HostEvidence:
    """With its windows of working time as of now."""
    window_ms = state.meta.settings.policy.evidence.memory_ms
    passed = (now_ms - known.worked_since_ms) // window_ms
    if passed < 1:
        return known
    before_ms = known.worked_ms if passed == 1 else 0
    since_ms = known.worked_since_ms + passed * window_ms
    return replace(known, worked_ms=0, worked_before_ms=before_ms, worked_since_ms=since_ms)


def _worked(known: HostEvidence, state: State) -> int:
    current = _moved_on(state, known, state.meta.now_ms)
    running = sum(
        max(state.meta.now_ms - state.tasks[key].placed_ms, 0)
        for key in (state.hosts[known.host].tasks if known.host in state.hosts else ())
        if key in state.tasks
    )
    return current.worked_ms + current.worked_before_ms + running


def _all_of(state: State) -> list[HostEvidence]:
    return [state.evidence.get(name) or HostEvidence(name) for name in state.slots]


def forget(step: Step, name: str) -> None:
    """The host was repaired or tested: what was held against it counts no more."""
    state = step.state
    known = state.evidence.get(name)
    if known is None and not state.meta.incidents:
        return
    known = known or HostEvidence(name)
    clean = replace(known, faults=(), health=(), clean_since=state.meta.incidents, blamed=0)
    if clean != known:
        state.evidence.put(name, clean)
