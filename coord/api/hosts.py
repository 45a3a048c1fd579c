"""/v1/hosts, /v1/notes and /v1/incidents"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from coord.api.errors import ApiError
from coord.api.exchange import actor_of, answer, body_of, fresh, submit
from coord.api.jobs import ReasonBody
from coord.api.keys import NODE
from coord.api.views import host_view
from coord.model.events import (
    AnyEvent,
    DrainRequested,
    HostQuarantineRequested,
    HostReleaseRequested,
    HostRemovalRequested,
    NoteAdded,
    QuarantineAnswered,
    UndrainRequested,
)

routes = web.RouteTableDef()

REQUESTS: dict[str, Callable[[str, str, str], AnyEvent]] = {
    "undrain": UndrainRequested,
    "remove": HostRemovalRequested,
    "quarantine": HostQuarantineRequested,
}


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """`within_ms` 0: at once."""

    reason: str = ""
    within_ms: int = 0


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""
    repaired: bool = False


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True):
    """To the proposal of this version (`quarantined.version` of the host)."""

    version: int
    reason: str = ""


class NoteBody(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    subject: str = ""


@routes.get("/v1/hosts")
async def list_hosts(request: web.Request) -> web.Response:
    await fresh(request)
    state = request.app[NODE].state
    hosts = [host_view(state, state.hosts[name]) for name in sorted(state.hosts)]
    return answer(request, {"hosts": hosts, "frozen": state.meta.frozen})


@routes.get("/v1/hosts/{host}")
async def show_host(request: web.Request) -> web.Response:
    await fresh(request)
    state = request.app[NODE].state
    name = request.match_info["host"]
    host = state.hosts.get(name)
    if host is None:
        raise ApiError(404, "unknown_host", f"no host {name!r}; see `coordctl host list`")
    return answer(request, host_view(state, host))


@routes.post("/v1/hosts/{host}/drain")
async def drain_host(request: web.Request) -> web.Response:
    name = request.match_info["host"]
    body = await body_of(request, DrainBody)
    event = DrainRequested(name, actor_of(request), body.reason, body.within_ms)
    result = await submit(request, event, f"host {name!r}")
    return answer(request, {"index": result.index})


@routes.post("/v1/hosts/{host}/release")
async def release_host(request: web.Request) -> web.Response:
    name = request.match_info["host"]
    body = await body_of(request, ReleaseBody)
    event = HostReleaseRequested(name, actor_of(request), body.reason, body.repaired)
    result = await submit(request, event, f"host {name!r}")
    return answer(request, {"index": result.index})


@routes.post("/v1/hosts/{host}/{answer:approve|decline}")
async def answer_proposal(request: web.Request) -> web.Response:
    name = request.match_info["host"]
    body = await body_of(request, AnswerBody)
    approved = request.match_info["answer"] == "approve"
    event = QuarantineAnswered(name, body.version, approved, actor_of(request), body.reason)
    result = await submit(request, event, f"the proposal to quarantine host {name!r}")
    return answer(request, {"index": result.index})


@routes.post("/v1/hosts/{host}/{request:undrain|remove|quarantine}")
async def ask_of_host(request: web.Request) -> web.Response:
    name = request.match_info["host"]
    body = await body_of(request, ReasonBody)
    event = REQUESTS[request.match_info["request"]](name, actor_of(request), body.reason)
    result = await submit(request, event, f"host {name!r}")
    return answer(request, {"index": result.index})


@routes.post("/v1/notes")
async def add_note(request: web.Request) -> web.Response:
    body = await body_of(request, NoteBody)
    if not body.text:
        raise ApiError(400, "invalid", "text is empty; write what is to be noted")
    event = NoteAdded(actor_of(request), body.subject, body.text)
    result = await submit(request, event, f"note on {body.subject!r}")
    return answer(request, {"index": result.index}, status=201)


@routes.get("/v1/incidents")
async def list_incidents(request: web.Request) -> web.Response:
    await fresh(request)
    state = request.app[NODE].state
    ordered = sorted(state.incidents.values(), key=lambda incident: incident.incident)
    totals = [state.incident_totals[cause] for cause in sorted(state.incident_totals)]
    return answer(request, {"incidents": ordered, "totals": totals})
