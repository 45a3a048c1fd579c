"""Exactly once: who asked what before, and what came of it.

Clients (`client:...`) may have many requests under way, so the newest outcomes are kept for each. A
host (`host:...`) reports in order, so a counter is enough; a gap is refused and the agent starts
again from the one after the last. What the leader itself records (`node:...`) is never repeated.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec.structs import replace

from coord.core.state import LIVE_HOST, State
from coord.model.entry import Origin
from coord.model.rejections import Rejection
from coord.model.requests import Request, RequestLog


def earlier_outcome(state: State, origin: Origin) -> Request | Rejection | None:
    """The outcome of the same request if it was decided before; a rejection if it cannot be now."""
    actor = origin.actor
    if actor.startswith("client:"):
        return _earlier_of_client(state, actor, origin.seq)
    if actor.startswith("host:"):
        return _earlier_of_host(state, actor[5:], origin)
    return None


def remember(state: State, origin: Origin, outcome: Request) -> None:
    """Keep the outcome for whoever repeats the request."""
    actor = origin.actor
    if actor.startswith("client:"):
        _remember_client(state, actor, outcome)
    elif actor.startswith("host:"):
        host = state.hosts[actor[5:]]
        if host.incarnation == origin.incarnation:
            state.hosts.put(
                host.host, replace(host, report_seq=origin.seq, report_index=outcome.index)
            )


def _earlier_of_client(state: State, client: str, seq: int) -> Request | Rejection | None:
    if seq < 1:
        return Rejection.INVALID
    log = state.requests.get(client)
    if log is None:
        return None
    if seq <= log.floor:
        return Rejection.REQUEST_TOO_OLD
    at = bisect_left(log.recent, seq, key=_seq)
    if at < len(log.recent) and log.recent[at].seq == seq:
        return log.recent[at]
    return None


def _earlier_of_host(state: State, name: str, origin: Origin) -> Request | Rejection | None:
    host = state.hosts.get(name)
    if host is None:
        return Rejection.UNKNOWN_HOST
    if origin.incarnation != host.incarnation:
        return Rejection.STALE_INCARNATION
    if host.status not in LIVE_HOST:
        return Rejection.HOST_NOT_LIVE
    if origin.seq <= host.report_seq:
        return Request(origin.seq, host.report_index)
    if origin.seq != host.report_seq + 1:
        return Rejection.REPORT_GAP
    return None


def _remember_client(state: State, client: str, outcome: Request) -> None:
    log = state.requests.get(client)
    if log is None:
        log = RequestLog(client, outcome.index)
    recent = log.recent
    if not recent or outcome.seq > recent[-1].seq:
        recent = (*recent, outcome)
    else:
        at = bisect_left(recent, outcome.seq, key=_seq)
        recent = (*recent[:at], outcome, *recent[at:])
    floor = log.floor
    if len(recent) > state.meta.settings.request_window:
        floor = recent[0].seq
        recent = recent[1:]
    # Moved to the end: the table's order is the order of last use.
    state.requests.pop(client, None)
    state.requests.put(client, RequestLog(client, outcome.index, floor, recent))
    if len(state.requests) > state.meta.settings.request_clients:
        state.requests.drop(next(iter(state.requests)))


def _seq(request: Request) -> int:
    return request.seq
