"""/v1/queues, as curl and the client see it."""

from __future__ import annotations

import pytest

from coord.client import Client
from coord.client.errors import NotFound, Rejected
from coord.model.queue import QueueSpec
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.api.servers import Served
from tests.node.cluster import FakeAgent


async def test_a_queue_is_set_shown_and_removed() -> None:
    async with Served() as served:
        body = {"quota": 4, "quotas": {"h100": 2}, "may_preempt": True, "reason": "for the team"}
        made = await served.ask("PUT", "/v1/queues/team", body, 200)
        assert made["index"] > 0
        shown = await served.get("/v1/queues/team")
        assert (shown["name"], shown["spec"]["quota"], shown["used"]) == ("team", 4, 0)
        assert shown["reason"] == "for the team"
        listed = await served.get("/v1/queues")
        assert [queue["name"] for queue in listed["queues"]] == ["team", ""]
        await served.ask("DELETE", "/v1/queues/team", {}, 200)
        gone = await served.ask("DELETE", "/v1/queues/team", {}, 404)
        assert gone["error"]["code"] == "unknown_queue"


async def test_a_wrong_queue_is_refused_with_the_name_of_the_field() -> None:
    async with Served() as served:
        refused = await served.ask("PUT", "/v1/queues/team", {"quota": -1}, 400)
        assert [one["path"] for one in refused["error"]["problems"]] == ["quota"]
        await served.ask("PUT", "/v1/queues/team", {"quta": 1}, 400)


async def test_the_client_sees_who_waits_and_in_which_order() -> None:
    async with Served() as served:
        await FakeAgent(served.leader, "h1").register(devices=2)
        client = Client([served.url("")], actor="ann")
        async with client:
            made = await client.set_queue(QueueSpec("team", quota=2), reason="x")
            assert made.spec.quota == 2
            for name in ("a", "b", "c"):
                role = RoleSpec("t", ("x",), resources=Resources(devices=2))
                await client.submit_job(JobSpec(name, (role,), queue="team"))
            view = await client.queue("team")
            assert (view.used, view.running, view.waiting) == (2_000, 1, ("b", "c"))
            assert [job.position for job in await client.jobs()] == [0, 1, 2]
            with pytest.raises(Rejected, match="queue_busy"):
                await client.remove_queue("team")
            with pytest.raises(Rejected, match="unknown_queue"):
                await client.submit_job(JobSpec("d", (RoleSpec("t", ("x",)),), queue="absent"))
            with pytest.raises(NotFound):
                await client.queue("absent")
