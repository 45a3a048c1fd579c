"""/v1/queues"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from coord.api.errors import ApiError
from coord.api.exchange import actor_of, answer, body_of, fresh, submit
from coord.api.keys import NODE
from coord.core.queueing.queues import QUEUES_SINCE
from coord.core.queueing.shares import NO_QUEUE, Shares
from coord.core.queueing.turns import turns_now
from coord.core.state import State
from coord.model.entities import FINISHED_JOB, Queue
from coord.model.events import QueueConfigured, QueueRemoved
from coord.model.queue import QueueSpec, queue_problems

routes = web.RouteTableDef()


class QueueBody(msgspec.Struct, forbid_unknown_fields=True):
    """A `QueueSpec` without its name, and why."""

    quota: int = 0
    quotas: dict[str, int] = {}
    borrowing_limit: int = -1
    lendable_permille: int = 1_000
    priority: int = 0
    weight: int = 1
    may_preempt: bool = False
    notice_ms: int = 30_000
    reason: str = ""


@routes.get("/v1/queues")
async def list_queues(request: web.Request) -> web.Response:
    await fresh(request)
    return answer(request, {"queues": queue_views(request.app[NODE].state)})


@routes.get("/v1/queues/{queue}")
async def show_queue(request: web.Request) -> web.Response:
    await fresh(request)
    name = request.match_info["queue"]
    for view in queue_views(request.app[NODE].state):
        if view["name"] == name:
            return answer(request, view)
    raise ApiError(404, "unknown_queue", f"no queue {name!r}; see `coordctl queue list`")


@routes.put("/v1/queues/{queue}")
async def set_queue(request: web.Request) -> web.Response:
    body = await body_of(request, QueueBody)
    given = msgspec.structs.asdict(body)
    reason = given.pop("reason")
    spec = QueueSpec(request.match_info["queue"], **given)
    problems = queue_problems(spec)
    if problems:
        said = "; ".join(f"{problem.path} {problem.message}" for problem in problems)
        raise ApiError(400, "invalid", said, extra={"problems": problems})
    event = QueueConfigured(spec, actor_of(request), reason)
    result = await submit(request, event, f"queue {spec.name!r}")
    return answer(request, {"index": result.index})


@routes.delete("/v1/queues/{queue}")
async def remove_queue(request: web.Request) -> web.Response:
    name = request.match_info["queue"]
    event = QueueRemoved(name, actor_of(request), request.query.get("reason", ""))
    result = await submit(request, event, f"queue {name!r}")
    return answer(request, {"index": result.index})


def queue_views(state: State) -> list[dict[str, Any]]:
    """Every queue with what it uses, in thousandths of devices, and how many of its jobs run and
    wait; last, without a name, the one that needs no configuration."""
    shares = Shares(state)
    unnamed = Queue("", NO_QUEUE, 0)
    running: dict[str, int] = {}
    waiting: dict[str, list[str]] = {}
    for job in state.jobs.values():
        if job.status not in FINISHED_JOB:
            live = any(state.gangs[key].live for key in job.gangs)
            running[job.spec.queue] = running.get(job.spec.queue, 0) + live
    if state.meta.logic_version >= QUEUES_SINCE:
        for gang in turns_now(state):
            jobs = waiting.setdefault(state.jobs[gang.job].spec.queue, [])
            if gang.job not in jobs:
                jobs.append(gang.job)
    rows = [*(state.queues[name] for name in sorted(state.queues)), unnamed]
    return [
        msgspec.structs.asdict(row)
        | {
            "used": shares.use.get(row.name, 0),
            "borrowed": shares.borrowed(row.name),
            "by_owner": {
                owner: used
                for (queue, owner), used in sorted(shares.owners.items())
                if queue == row.name
            },
            "running": running.get(row.name, 0),
            "waiting": waiting.get(row.name, []),
        }
        for row in rows
    ]
