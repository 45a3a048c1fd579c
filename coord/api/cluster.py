"""/v1/cluster"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import ClientError, ClientTimeout, web

from coord import __version__
from coord.api.errors import ApiError
from coord.api.exchange import actor_of, answer, body_of, fresh, submit
from coord.api.jobs import ReasonBody
from coord.api.joining import JOIN_PATH, JoinBody, join_problem
from coord.api.keys import NODE, PEER_HTTP
from coord.model.events import EvictionsAllowed
from coord.node.addresses import address_problem
from coord.node.node import Node
from coord.raft.ports import Committed, Member, NotCommitted, ProposeOutcome
from coord.store.ports import StorageFull

CHANGE_TIMEOUT_S = 10.0
SUCCESSION_S = 2.0
"""For a leader that has handed over to hear of the next."""
JOINER_S = 3.0
PASSED_ON = "X-Coord-Passed-On"

routes = web.RouteTableDef()


class MemberBody(msgspec.Struct, forbid_unknown_fields=True):
    node: int
    peer_address: str
    api_address: str


class TransferBody(msgspec.Struct, forbid_unknown_fields=True):
    node: int = 0
    """0: the most advanced follower."""


@routes.get("/v1/cluster")
async def show_cluster(request: web.Request) -> web.Response:
    await fresh(request)
    node = request.app[NODE]
    status = node.log.status()
    meta = node.state.meta
    return answer(
        request,
        {
            "cluster": meta.cluster or node.config.cluster,
            "node": node.config.node,
            "name": node.config.name,
            "version": __version__,
            "role": status.role,
            "term": status.term,
            "leader": status.leader,
            "leader_api": node.leader_api(),
            "members": status.members,
            "connected": status.connected,
            "read_only": status.read_only,
            "digest": meta.digest,
            "now_ms": meta.now_ms,
            "logic_version": meta.logic_version,
            "frozen": meta.frozen,
            "settings": msgspec.structs.asdict(meta.settings),
            "raft": {
                "commit_index": status.commit_index,
                "applied_index": status.applied_index,
                "first_index": status.first_index,
                "last_index": status.last_index,
                "fsync_ms_last": status.fsync_ms_last,
            },
            "first_index": node.events.first_index,
            "size_bytes": node.events.store.size_bytes(),
            "sessions": len(node.sessions),
            "relays": _relays(node),
        },
    )


def _relays(node: Node) -> list[dict[str, object]]:
    """Those in whose rosters hosts stand, and those connected to this node."""
    here = node.relays.connected()
    rosters = node.state.rosters
    return [
        {
            "relay": name,
            "hosts": len(rosters[name].slots) if name in rosters else 0,
            "connected": name in here,
            "conversations": here.get(name, 0),
        }
        for name in sorted({**rosters, **here})
    ]


@routes.post("/v1/cluster/members")
async def add_member(request: web.Request) -> web.Response:
    body = await body_of(request, MemberBody)
    if body.node < 1:
        raise ApiError(400, "invalid", f"node is {body.node}; it must be at least 1")
    node = request.app[NODE]
    if not node.leading:
        return await pass_to_leader(request)
    member = Member(body.node, body.peer_address, body.api_address)
    if member in node.status.members:
        await _tell_again(request, member)
        return answer(request, {"members": node.status.members})
    _check_member(member, node.status.members, request.secure)
    await _tell_joiner(request, member)
    outcome = await node.log.add_member(member, CHANGE_TIMEOUT_S)
    _check_change(outcome, f"adding node {body.node}")
    return answer(request, {"members": node.log.status().members})


@routes.post(JOIN_PATH)
async def join(request: web.Request) -> web.Response:
    """Asked by a leader about to add this server, which knows the members already."""
    node = request.app[NODE]
    body = await body_of(request, JoinBody)
    problem = join_problem(body, node.welcome().cluster, node.config.node)
    if problem:
        raise ApiError(409, "wrong_server", problem)
    return answer(request, {"node": node.config.node})


async def _tell_again(request: web.Request, member: Member) -> None:
    """A server that ended before it kept what it was told waits to hear it, a member or not."""
    try:
        await _tell_joiner(request, member)
    except ApiError as error:
        if error.code != "joiner_away":
            raise


async def _tell_joiner(request: web.Request, member: Member) -> None:
    """The new server must know the members, and by which addresses it is one, before it is."""
    node = request.app[NODE]
    others = tuple(one for one in node.status.members if one != member)
    body = JoinBody(node.welcome().cluster, member.node, (*others, member))
    url = f"http://{member.api_address}{JOIN_PATH}"
    try:
        async with request.app[PEER_HTTP].post(
            url, data=msgspec.json.encode(body), timeout=ClientTimeout(total=JOINER_S)
        ) as told:
            said = await told.read()
            if told.status != 200:
                why = f"{member.api_address} will not join: {_reason_in(said)}"
                raise ApiError(409, "wrong_server", why)
    except (ClientError, OSError, TimeoutError) as error:
        raise ApiError(
            503,
            "joiner_away",
            f"no server answers at {member.api_address} ({type(error).__name__}); start node "
            f"{member.node} with `coordctl server --join` first, nothing was changed",
            retry_after_ms=500,
        ) from error


def _check_member(member: Member, members: tuple[Member, ...], secured: bool) -> None:
    """Before anything is sent to an address, or a member recorded whom nobody can reach."""
    for name in ("peer_address", "api_address"):
        problem = address_problem(name, getattr(member, name), secured)
        if problem:
            raise ApiError(400, "invalid", problem)
    for other in members:
        if other.node == member.node:
            raise ApiError(
                409,
                "is_member",
                f"node {member.node} is a member already, with {other.peer_address} and "
                f"{other.api_address}; remove it first, or give the new server another number",
            )


class _Reason(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Reason


def _reason_in(said: bytes) -> str:
    """The message of another server's error, or what it said if that is no error of ours."""
    try:
        return msgspec.json.decode(said, type=_Refusal).error.message
    except msgspec.DecodeError:
        return said[:200].decode(errors="replace")


@routes.delete("/v1/cluster/members/{node}")
async def remove_member(request: web.Request) -> web.Response:
    number = _node_number(request)
    node = request.app[NODE]
    if not node.leading:
        return await pass_to_leader(request)
    if number not in [member.node for member in node.status.members]:
        raise ApiError(
            404, "unknown_node", f"node {number} is no member; see `coordctl cluster status`"
        )
    if number == node.config.node:
        raise ApiError(
            409,
            "leads",
            f"node {number} leads the cluster; first `coordctl cluster transfer`, then remove it",
        )
    outcome = await node.log.remove_member(number, CHANGE_TIMEOUT_S)
    _check_change(outcome, f"removing node {number}")
    return answer(request, {"members": node.log.status().members})


@routes.post("/v1/cluster/transfer")
async def transfer(request: web.Request) -> web.Response:
    body = await body_of(request, TransferBody)
    node = request.app[NODE]
    if not node.leading:
        return await pass_to_leader(request)
    if body.node == node.config.node:
        return answer(request, {"leader": node.config.node})
    if body.node and body.node not in [member.node for member in node.status.members]:
        raise ApiError(
            404, "unknown_node", f"node {body.node} is no member; see `coordctl cluster status`"
        )
    if not await node.log.transfer_leadership(body.node, CHANGE_TIMEOUT_S):
        raise ApiError(
            409,
            "not_transferred",
            f"node {node.config.node} still leads: {_target(body.node)} did not take over within "
            "the time of an election; see whether it runs and has caught up",
        )
    return answer(request, {"leader": await _next_leader(node)})


def _target(number: int) -> str:
    return f"node {number}" if number else "no other node"


async def _next_leader(node: Node) -> int:
    """Who took over; 0 if nobody was heard of in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SUCCESSION_S
    while not (leader := node.log.status().leader) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return leader


@routes.post("/v1/cluster/snapshot")
async def snapshot(request: web.Request) -> web.Response:
    """On the node asked."""
    node = request.app[NODE]
    try:
        raft_index = await node.keeper.snapshot()
    except StorageFull as error:
        raise ApiError(503, "read_only", str(error)) from error
    except RuntimeError as error:
        raise ApiError(409, "no_snapshot", str(error), retry_after_ms=1_000) from error
    return answer(request, {"node": node.config.node, "raft_index": raft_index})


@routes.post("/v1/cluster/evictions")
async def allow_evictions(request: web.Request) -> web.Response:
    body = await body_of(request, ReasonBody)
    event = EvictionsAllowed(actor_of(request), body.reason)
    result = await submit(request, event, "allowing evictions")
    return answer(request, {"index": result.index})


async def pass_to_leader(request: web.Request) -> web.Response:
    """Have the leader answer, and answer the same."""
    node = request.app[NODE]
    leader = node.leader_api()
    if not leader or PASSED_ON in request.headers:
        raise ApiError(503, "no_leader", "no leader is known; retry shortly", retry_after_ms=200)
    headers = {PASSED_ON: str(node.config.node), "Content-Type": "application/json"}
    for name in ("Idempotency-Key", "X-Coord-Actor"):
        if name in request.headers:
            headers[name] = request.headers[name]
    try:
        async with request.app[PEER_HTTP].request(
            request.method,
            f"http://{leader}{request.path_qs}",
            data=await request.read(),
            headers=headers,
            timeout=ClientTimeout(total=CHANGE_TIMEOUT_S + 2),
        ) as passed:
            return web.Response(
                status=passed.status, body=await passed.read(), content_type="application/json"
            )
    except (TimeoutError, ClientError, OSError) as error:
        raise ApiError(
            504,
            "unknown",
            f"the leader at {leader} did not answer ({type(error).__name__}: {error}); it may have "
            "happened, see /v1/cluster",
            may_have_happened=True,
        ) from error


def _check_change(outcome: ProposeOutcome, subject: str) -> None:
    if isinstance(outcome, Committed):
        return
    if isinstance(outcome, NotCommitted):
        raise ApiError(
            503,
            outcome.reason,
            f"{subject}: not done ({outcome.reason}); retry",
            retry_after_ms=200,
        )
    raise ApiError(
        504,
        "unknown",
        f"{subject}: no outcome in time ({outcome.reason}); it may have happened, see /v1/cluster",
        may_have_happened=True,
    )


def _node_number(request: web.Request) -> int:
    text = request.match_info["node"]
    if not text.isdigit():
        raise ApiError(400, "invalid", f"node is {text!r}; it must be a number")
    return int(text)
