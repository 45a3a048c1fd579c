"""Mass silence: when much of the fleet goes quiet at once, the network is likelier than its death.

More than `breaker_share_permille` of the fleet, and at least `breaker_min_hosts`, silent for
`suspect_ms` or lost within the last `breaker_window_ms`: no verdict is taken. Suspects count, for
leases never run out in the very same moment, and the first ones must not be judged before the
others are seen to follow. Judging goes on once enough of them were heard again, or when an operator
who looked allows it. (design.md, Heartbeats.)

Before that, `silence.py` looks for a failure domain that explains the silence: its hosts are then
judged together. This one stays the last guard.
"""

from __future__ import annotations

from coord.core import hosts
from coord.core.care import silence
from coord.core.state import LIVE_HOST, State
from coord.core.step import Step
from coord.model.decisions import EvictionsFrozen, EvictionsResumed


def judge(step: Step) -> None:
    """Take the verdicts on every host whose lease has run out, or none of them."""
    meta = step.state.meta
    if not step.expired and not meta.frozen and not step.state.silences:
        return
    since_ms = step.now_ms - meta.settings.breaker_window_ms
    meta.recent_losses_ms = tuple(at_ms for at_ms in meta.recent_losses_ms if at_ms > since_ms)
    silent = _silent(step.state, step.now_ms)
    fleet = _fleet(step.state)
    if _trips(step, silent, fleet):
        if not meta.frozen:
            meta.frozen = True
            step.decide(EvictionsFrozen((step.cause,), silent, fleet))
        silence.look(step)
        return
    if meta.frozen:
        meta.frozen = False
        step.decide(EvictionsResumed((step.cause,), silent, fleet))
    kept = silence.look(step)
    for ended, names, cause in silence.take_due(step):
        meta.recent_losses_ms = (*meta.recent_losses_ms, *(step.now_ms for _ in names))
        hosts.lose_together(step, names, f"{ended.level} {ended.domain}", cause)
    for name in _expired(step):
        if name not in kept:
            meta.recent_losses_ms = (*meta.recent_losses_ms, step.now_ms)
            hosts.lose(step, name)


def allow(step: Step) -> None:
    """An operator lets the verdicts be taken, for one window."""
    meta = step.state.meta
    meta.frozen = False
    meta.evictions_allowed_until_ms = step.now_ms + meta.settings.breaker_window_ms
    silent = _silent(step.state, step.now_ms)
    step.decide(EvictionsResumed((step.cause,), silent, _fleet(step.state)))
    for host in step.state.hosts.values():
        if host.status in LIVE_HOST:
            step.state.timers.arm("host", host.host, step.now_ms)


def _trips(step: Step, silent: int, fleet: int) -> bool:
    meta = step.state.meta
    settings = meta.settings
    if step.now_ms <= meta.evictions_allowed_until_ms:
        return False
    gone = silent + len(meta.recent_losses_ms)
    whole = fleet + len(meta.recent_losses_ms)
    if gone < settings.breaker_min_hosts:
        return False
    return gone * 1000 > settings.breaker_share_permille * whole


def _silent(state: State, now_ms: int) -> int:
    """Live hosts that will be lost if nothing is heard of them."""
    return len(_silent_slots(state, now_ms, state.meta.settings.suspect_ms))


def _expired(step: Step) -> list[str]:
    """Live hosts whose lease has run out. Read off the state: no timer decides who is judged."""
    state = step.state
    lease_ms = state.meta.settings.lease_ms
    return sorted(state.slots[slot] for slot in _silent_slots(state, step.now_ms, lease_ms))


def _silent_slots(state: State, now_ms: int, limit_ms: int) -> list[int]:
    return [
        slot
        for slot, incarnation in enumerate(state.live_incarnations)
        if incarnation and now_ms - state.last_seen_ms[slot] >= limit_ms
    ]


def _fleet(state: State) -> int:
    return sum(1 for incarnation in state.live_incarnations if incarnation)
