"""/livez, /readyz, /metrics"""

from __future__ import annotations

from aiohttp import web

from coord.api.errors import ApiError
from coord.api.exchange import answer
from coord.api.keys import NODE
from coord.node.node import Node

BEHIND_LIMIT = 1_000
"""Committed commands that a ready node may still have to apply."""

routes = web.RouteTableDef()


@routes.get("/livez")
async def alive(request: web.Request) -> web.Response:
    """The loop runs and the node has not halted."""
    if request.app[NODE].failed:
        raise ApiError(503, "stopping", "this server has halted or is stopping; see its log")
    return answer(request, {"status": "ok"})


@routes.get("/readyz")
async def ready(request: web.Request) -> web.Response:
    """Reads and writes sent here can be answered."""
    reason = _not_ready(request.app[NODE])
    if reason:
        raise ApiError(503, "not_ready", reason, retry_after_ms=200)
    return answer(request, {"status": "ok"})


def _not_ready(node: Node) -> str:
    status = node.log.status()
    if node.failed:
        return "this server has halted or is stopping; see its log"
    if not status.leader:
        return "no leader is known; are a majority of the servers up?"
    if status.leader not in (status.node, *status.connected):
        return f"node {status.leader} led last, but is not reached; are a majority of them up?"
    if not node.state.meta.cluster:
        return "the cluster has not recorded its settings yet"
    if status.read_only:
        return f"read-only: {status.read_only}"
    behind = status.commit_index - status.applied_index
    if behind > BEHIND_LIMIT:
        return f"{behind} commands behind the commit index; the limit is {BEHIND_LIMIT}"
    return ""


@routes.get("/metrics")
async def metrics(request: web.Request) -> web.Response:
    """In Prometheus's exposition format."""
    node = request.app[NODE]
    _set_gauges(node)
    return web.Response(
        body=node.metrics.text(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


def _set_gauges(node: Node) -> None:
    status = node.log.status()
    meta = node.state.meta
    gauge = node.metrics.gauge
    gauge("coord_raft_term", "The current term", status.term)
    gauge("coord_raft_leader", "Node id of the known leader, 0 for none", status.leader)
    gauge("coord_raft_is_leader", "1 on the leader", int(node.leading))
    gauge("coord_raft_commit_index", "Newest committed raft index", status.commit_index)
    gauge("coord_raft_applied_index", "Newest applied raft index", status.applied_index)
    gauge("coord_raft_journal_entries", "Kept", status.last_index - status.first_index + 1)
    gauge("coord_raft_peers_connected", "Other nodes reached", len(status.connected))
    gauge("coord_log_applied_index", "Newest applied log index", meta.applied_index)
    gauge("coord_relays", "Relays connected to this node", len(node.relays))
    gauge("coord_relay_sessions", "Agents behind them", node.relays.behind())
    gauge("coord_relay_hosts", "Hosts that live by beats of some relay", len(node.state.relay_of))
    gauge("coord_log_first_index", "Oldest log index kept", node.events.first_index)
    gauge("coord_log_time_seconds", "Log time", meta.now_ms / 1_000)
    gauge("coord_pending_requests", "Accepted here, not yet decided", len(node.requests))
    gauge("coord_pending_request_bytes", "Their size", node.requests.size_bytes)
    gauge("coord_proposer_queue_entries", "Waiting for a command", node.proposer.queued)
    gauge("coord_router_queue_entries", "Waiting for a leader", node.router.waiting)
    gauge("coord_sessions", "Connections of agents and clients", len(node.sessions))
    gauge("coord_agent_sessions", "Hosts whose agent is connected here", node.sessions.agents())
    gauge("coord_storage_size_bytes", "The data directory", node.events.store.size_bytes())
    gauge("coord_read_only", "1 when the disk is full", int(bool(status.read_only)))
    gauge("coord_evictions_frozen", "1 while mass silence freezes verdicts", int(meta.frozen))
    gauge("coord_hosts", "Known hosts", len(node.state.hosts))
    gauge("coord_jobs", "Known jobs", len(node.state.jobs))
    gauge("coord_digests_compared", "With other nodes, at equal index", node.digests.compared)
