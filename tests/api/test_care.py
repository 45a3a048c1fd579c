"""Quarantine, drains by a deadline and maintenance over HTTP, and through the client library."""

from __future__ import annotations

import pytest

from coord.client import Client
from coord.client.errors import NotFound, Rejected
from coord.model.events import HealthChecked
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.place import Located, Place
from tests.api.servers import Served
from tests.node.cluster import FakeAgent


async def report_check(
    agent: FakeAgent, outcome: HealthOutcome, occasion: CheckOccasion, test: int = 0
) -> None:
    event = HealthChecked(
        agent.host,
        agent.incarnation,
        "gpu",
        outcome=outcome,
        occasion=occasion,
        exit_code=1,
        test=test,
    )
    assert (await agent.report(event)).rejection == ""


async def test_a_host_is_quarantined_tested_and_released() -> None:
    """Its agent is asked for the test with its plan; each answer shows state and next step."""
    async with Served() as served:
        agent = FakeAgent(served.leader, "h1")
        await agent.register()
        headers = {"X-Coord-Actor": "bob"}
        body = {"reason": "smoke"}
        await served.ask("POST", "/v1/hosts/h1/quarantine", body, headers=headers)
        shown = await served.get("/v1/hosts/h1")
        held = shown["quarantined"]
        assert (held["state"], held["reason"], held["actor"]) == ("testing", "smoke", "bob")
        assert shown["next_step"] == "the health check of its agent"
        agent.take()
        assert agent.plans[-1].test == held["since"]
        await report_check(agent, HealthOutcome.PASSED, CheckOccasion.ON_REQUEST, held["since"])
        assert (await served.get("/v1/hosts/h1"))["quarantined"]["state"] == "probation"
        await served.ask("POST", "/v1/hosts/h1/release", {"repaired": True})
        assert (await served.get("/v1/hosts/h1"))["quarantined"] is None
        again = await served.ask("POST", "/v1/hosts/h1/release", {}, 409)
        assert again["error"]["code"] == "nothing_to_do"


async def test_a_proposal_is_answered_as_it_stands() -> None:
    """Two of five are out on evidence; the third waits for a person, and a stale answer fails."""
    async with Served() as served:
        for number in (1, 2, 3, 4, 5):
            agent = FakeAgent(served.leader, f"h{number}")
            await agent.register()
            if number > 2:
                await report_check(agent, HealthOutcome.FAILED, CheckOccasion.PERIODIC)
        version = (await served.get("/v1/hosts/h5"))["quarantined"]["version"]
        stale = await served.ask("POST", "/v1/hosts/h5/approve", {"version": version - 1}, 409)
        assert stale["error"]["code"] == "stale_proposal"
        await served.ask("POST", "/v1/hosts/h5/decline", {"version": version, "reason": "known"})
        none = await served.ask("POST", "/v1/hosts/h5/approve", {"version": version}, 409)
        assert none["error"]["code"] == "not_proposed"
        wrong = await served.ask("POST", "/v1/hosts/h5/approve", {}, 400)
        assert "version" in wrong["error"]["message"]


async def test_a_host_is_drained_by_a_deadline() -> None:
    async with Served() as served:
        agent = FakeAgent(served.leader, "h1")
        await agent.register()
        refused = await served.ask("POST", "/v1/hosts/h1/drain", {"within_ms": -1}, 400)
        assert refused["error"]["code"] == "invalid"
        await served.ask("POST", "/v1/hosts/h1/drain", {"within_ms": 60_000})
        assert (await served.get("/v1/hosts/h1"))["drain"] == "drained"


async def test_maintenance_is_started_listed_and_cancelled() -> None:
    """Over HTTP and with the client: numbers, rows, and what is refused."""
    async with Served() as served:
        for number in (1, 2, 3):
            await FakeAgent(served.leader, f"h{number}").register()
        place = Place("z1", "p1", "r1")
        async with Client([served.urls[1]], actor="ann") as client:
            await client.import_topology([Located(f"h{number}", place) for number in (1, 2, 3)])
            view = await client.start_maintenance("rack", "r1", limit=2, reason="firmware")
            assert [out.host for out in view.out] == ["h1", "h2"]
            assert (view.waiting, view.domain, view.actor) == (("h3",), "z1/p1/r1", "ann")
            assert [one.maintenance for one in await client.maintenances()] == [1]
            with pytest.raises(Rejected, match="part of a maintenance that goes on already"):
                await client.start_maintenance("pod", "p1")
            await client.undrain("h1")
            assert (await client.maintenance(1)).done == ("h1",)
            assert (await client.cancel_maintenance(1)).ending == "cancelled"
            with pytest.raises(NotFound):
                await client.maintenance(7)
        body = {"level": "rack", "domain": "nowhere"}
        unknown = await served.ask("POST", "/v1/maintenances", body, 404)
        assert unknown["error"]["code"] == "unknown_domain"
        ended = await served.ask("POST", "/v1/maintenances/1/cancel", {}, 404)
        assert ended["error"]["code"] == "unknown_maintenance"
