"""/v1/topology"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from coord.api.errors import ApiError
from coord.api.exchange import actor_of, answer, body_of, fresh, submit
from coord.api.keys import NODE
from coord.core.state import State
from coord.core.topology import refusal
from coord.model.entities import Host, HostStatus
from coord.model.events import TopologyImported
from coord.model.place import Located, Switch
from coord.model.rejections import EXPLANATIONS, Rejection

routes = web.RouteTableDef()


class TopologyBody(msgspec.Struct, forbid_unknown_fields=True):
    hosts: tuple[Located, ...]
    switches: tuple[Switch, ...] = ()
    source: str = ""
    merge: bool = False


@routes.get("/v1/topology")
async def show_topology(request: web.Request) -> web.Response:
    await fresh(request)
    return answer(request, topology_view(request.app[NODE].state))


@routes.post("/v1/topology")
async def import_topology(request: web.Request) -> web.Response:
    body = await body_of(request, TopologyBody)
    event = TopologyImported(
        body.hosts, body.switches, body.source, actor_of(request), merge=body.merge
    )
    refused = refusal(request.app[NODE].state, event)
    if refused is not None and (not body.merge or refused[0] != Rejection.UNKNOWN_SWITCH):
        rejection, path = refused
        raise ApiError(400, rejection, f"{path}: {EXPLANATIONS[rejection]}")
    result = await submit(request, event, f"topology {body.source!r}")
    return answer(request, {"index": result.index, "result": result.result}, status=201)


def topology_view(state: State) -> dict[str, Any]:
    """Where hosts stand and how they are; `imported` is all that imports said, of hosts that have
    not registered too."""
    names = sorted(state.hosts)
    hosts = [state.hosts[name] for name in names if state.hosts[name].status != HostStatus.REMOVED]
    return {
        "hosts": [_host(state, host) for host in hosts],
        "switches": [state.switches[name] for name in sorted(state.switches)],
        "imported": [state.topology[name] for name in sorted(state.topology)],
    }


def _host(state: State, host: Host) -> dict[str, Any]:
    taken = {
        device: None
        for key in host.tasks
        if key in state.tasks
        for device in state.tasks[key].devices
    }
    return {
        "host": host.host,
        "status": host.status,
        "drain": host.drain,
        "quarantine": host.quarantine,
        "place": host.place,
        "rails": host.rails,
        "announced": host.announced,
        "device_type": host.device_type,
        "devices": host.devices,
        "devices_used": len(taken),
    }
