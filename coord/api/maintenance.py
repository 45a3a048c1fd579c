"""/v1/maintenances"""

from __future__ import annotations

import msgspec
from aiohttp import web

from coord.api.errors import ApiError
from coord.api.exchange import actor_of, answer, body_of, fresh, submit
from coord.api.jobs import ReasonBody
from coord.api.keys import NODE
from coord.model.events import MaintenanceCancelled, MaintenanceRequested

routes = web.RouteTableDef()


class MaintenanceBody(msgspec.Struct, forbid_unknown_fields=True):
    """`domain` is a path such as `z1/p1/r7`, or the end of it where that is enough to tell."""

    level: str
    domain: str
    limit: int = 1
    within_ms: int = 0
    safe: bool = False
    reason: str = ""


@routes.get("/v1/maintenances")
async def list_maintenances(request: web.Request) -> web.Response:
    await fresh(request)
    rows = request.app[NODE].state.maintenances.values()
    ordered = sorted(rows, key=lambda row: row.maintenance)
    return answer(request, {"maintenances": ordered})


@routes.get("/v1/maintenances/{number}")
async def show_maintenance(request: web.Request) -> web.Response:
    await fresh(request)
    number = request.match_info["number"]
    row = request.app[NODE].state.maintenances.get(number)
    if row is None:
        raise ApiError(
            404,
            "unknown_maintenance",
            f"no maintenance {number!r}; see `coordctl maintenance list --all`",
        )
    return answer(request, msgspec.structs.asdict(row))


@routes.post("/v1/maintenances")
async def start_maintenance(request: web.Request) -> web.Response:
    """`maintenance` of the answer is its number."""
    body = await body_of(request, MaintenanceBody)
    event = MaintenanceRequested(
        body.level,
        body.domain,
        body.limit,
        actor_of(request),
        body.reason,
        body.within_ms,
        body.safe,
    )
    result = await submit(request, event, f"maintenance of {body.level} {body.domain!r}")
    return answer(request, {"index": result.index, "maintenance": result.result}, status=201)


@routes.post("/v1/maintenances/{number:[0-9]{1,18}}/cancel")
async def cancel_maintenance(request: web.Request) -> web.Response:
    number = int(request.match_info["number"])
    body = await body_of(request, ReasonBody)
    event = MaintenanceCancelled(number, actor_of(request), body.reason)
    result = await submit(request, event, f"maintenance {number}")
    return answer(request, {"index": result.index})
