"""POST /v1/jobs/NAME/rollback."""

from __future__ import annotations

from coord.model.events import ShardSaved, TaskStarted
from tests.api.servers import Served
from tests.node.cluster import FakeAgent

JOB = {"name": "d", "roles": [{"name": "t", "command": ["true"]}]}
TASK = "d/t/0#1"


async def trained(served: Served) -> None:
    """A job of one task, that has saved steps 100, 200 and 300."""
    agent = FakeAgent(served.leader, "h1")
    await agent.register(devices=1)
    await served.ask("POST", "/v1/jobs", JOB, 201)
    await agent.report(TaskStarted("h1", 1, TASK, 7))
    for step in (100, 200, 300):
        path = f"/c/step-{step}"
        saved = await agent.report(ShardSaved("h1", 1, TASK, step, path, "s", f"d{step}"))
        assert not saved.rejection


async def test_a_job_goes_back_and_shows_what_is_set_aside() -> None:
    """The restore point is the older one; the newer ones are listed with the index of the request.
    Their shards are not: there may be thousands."""
    async with Served() as served:
        await trained(served)
        done = await served.ask("POST", "/v1/jobs/d/rollback", {"back": 2, "reason": "loss spike"})
        shown = await served.get("/v1/jobs/d")
        assert shown["checkpoint"]["step"] == 100
        (gang,) = shown["gangs"]
        assert gang["phase"] == "stopping"
        assert [(one["step"], one["set_aside"]) for one in gang["checkpoints"]] == [
            (100, 0),
            (200, done["index"]),
            (300, done["index"]),
        ]
        assert not any("shards" in one for one in gang["checkpoints"])


async def test_the_same_step_twice_is_one_restart() -> None:
    async with Served() as served:
        await trained(served)
        await served.ask("POST", "/v1/jobs/d/rollback", {"step": 200})
        refused = await served.ask("POST", "/v1/jobs/d/rollback", {"step": 200}, 409)
        assert refused["error"]["code"] == "nothing_to_do"
        assert len((await served.get("/v1/incidents"))["incidents"]) == 1


async def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are() -> None:
    async with Served() as served:
        await trained(served)
        await served.ask("POST", "/v1/jobs/d/rollback", {"back": 1})
        refused = await served.ask("POST", "/v1/jobs/d/rollback", {"step": 250}, 404)
        assert refused["error"]["code"] == "unknown_checkpoint"
        assert "(there are d/t: 100, 200; set aside: 300)" in refused["error"]["message"]
        refused = await served.ask("POST", "/v1/jobs/absent/rollback", {"step": 250}, 404)
        assert refused["error"]["code"] == "unknown_job"


async def test_a_request_without_a_checkpoint_or_with_two_is_invalid() -> None:
    async with Served() as served:
        for body in ({}, {"step": 1, "back": 1}, {"step": -2}, {"back": -1}, {"steps": 1}):
            await served.ask("POST", "/v1/jobs/d/rollback", body, 400)
