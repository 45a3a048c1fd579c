"""/v1/jobs"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from coord.api.errors import ApiError
from coord.api.exchange import actor_of, answer, body_of, fresh, submit
from coord.api.keys import NODE
from coord.api.views import checkpoints_of, job_view, positions, warnings_of
from coord.core.queueing.why import why_job as explained
from coord.core.state import State
from coord.model.entities import Job
from coord.model.events import (
    JobCancelRequested,
    JobResizeRequested,
    JobSubmitted,
    RollbackRequested,
)
from coord.model.spec import JobSpec, spec_problems

routes = web.RouteTableDef()


class ResizeBody(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    replicas: int
    reason: str = ""


class RollbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """Exactly one of `step` and `back`."""

    step: int = -1
    back: int = 0
    role: str = ""
    reason: str = ""


class ReasonBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


@routes.post("/v1/jobs")
async def submit_job(request: web.Request) -> web.Response:
    spec = await body_of(request, JobSpec)
    problems = spec_problems(spec)
    if problems:
        said = "; ".join(f"{problem.path} {problem.message}" for problem in problems)
        raise ApiError(400, "invalid", said, extra={"problems": problems})
    result = await submit(request, JobSubmitted(spec, actor_of(request)), f"job {spec.name!r}")
    state = request.app[NODE].state
    job = state.jobs.get(spec.name)
    view = _one_job(state, job) if job is not None else {"name": spec.name}
    return answer(request, view | {"index": result.index}, status=201)


@routes.get("/v1/jobs")
async def list_jobs(request: web.Request) -> web.Response:
    await fresh(request)
    state = request.app[NODE].state
    jobs = sorted(state.jobs.values(), key=lambda job: job.submitted)
    turns = positions(state)
    views = [job_view(state, job) | {"position": turns.get(job.name, 0)} for job in jobs]
    return answer(request, {"jobs": views})


@routes.get("/v1/jobs/{name}")
async def show_job(request: web.Request) -> web.Response:
    await fresh(request)
    return answer(request, _one_job(request.app[NODE].state, job_of(request)))


def _one_job(state: State, job: Job) -> dict[str, Any]:
    position = positions(state).get(job.name, 0)
    return job_view(state, job) | {"warnings": warnings_of(state, job), "position": position}


@routes.get("/v1/jobs/{name}/why")
async def why_job(request: web.Request) -> web.Response:
    await fresh(request)
    state = request.app[NODE].state
    return answer(request, msgspec.structs.asdict(explained(state, job_of(request))))


@routes.post("/v1/jobs/{name}/cancel")
async def cancel_job(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    body = await body_of(request, ReasonBody)
    event = JobCancelRequested(name, actor_of(request), body.reason)
    result = await submit(request, event, f"job {name!r}")
    return answer(request, {"index": result.index})


@routes.post("/v1/jobs/{name}/resize")
async def resize_job(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    body = await body_of(request, ResizeBody)
    event = JobResizeRequested(name, body.role, body.replicas, actor_of(request), body.reason)
    subject = f"job {name!r}, role {body.role!r}, {body.replicas} replicas{_bounds(request, body)}"
    result = await submit(request, event, subject)
    return answer(request, {"index": result.index})


def _bounds(request: web.Request, body: ResizeBody) -> str:
    """For messages: what the role takes, if there is one."""
    job = request.app[NODE].state.jobs.get(request.match_info["name"])
    role = job.spec.role(body.role) if job is not None else None
    return f" (it takes {role.smallest} to {role.largest})" if role is not None else ""


@routes.post("/v1/jobs/{name}/rollback")
async def roll_back_job(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    body = await body_of(request, RollbackBody)
    if min(body.back, body.step + 1) < 0 or (body.step >= 0) == (body.back > 0):
        raise ApiError(400, "invalid", "give either `step`, 0 or more, or `back`, 1 or more")
    actor = actor_of(request)
    event = RollbackRequested(name, body.step, body.back, body.role, actor, body.reason)
    to = f"step {body.step}" if body.step >= 0 else f"{body.back} before the newest"
    subject = f"job {name!r}{f', role {body.role!r}' if body.role else ''}, checkpoint {to}"
    result = await submit(request, event, f"{subject}{_remembered(request)}")
    return answer(request, {"index": result.index})


def _remembered(request: web.Request) -> str:
    """For messages: the steps that there are, if there is such a job."""
    state = request.app[NODE].state
    job = state.jobs.get(request.match_info["name"])
    if job is None:
        return ""
    told = []
    for key in job.gangs:
        saves = checkpoints_of(state, key)
        offered = [str(saved.step) for saved in saves if not saved.set_aside]
        aside = [str(saved.step) for saved in saves if saved.set_aside]
        if offered or aside:
            put_aside = f"; set aside: {', '.join(aside)}" if aside else ""
            told.append(f"{key}: {', '.join(offered) or 'none'}{put_aside}")
    return f" (there are {'; '.join(told)})" if told else " (there are none)"


def job_of(request: web.Request) -> Job:
    """The job that the path names."""
    name = request.match_info["name"]
    job = request.app[NODE].state.jobs.get(name)
    if job is None:
        raise ApiError(404, "unknown_job", f"no job {name!r}; see `coordctl job list`")
    return job
