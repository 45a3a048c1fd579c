"""What a relay and the server above it hold each other to: on a scripted server, and on a real
node that keeps a real log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest

from coord.api.conversation import converse as converse_as_server
from coord.model.channel import BeatSeen, Refused, Results
from coord.model.settings import Settings
from coord.relay.config import RelayLimits
from tests.client.virtual import run
from tests.node.cluster import Cluster, LoopClock

from .memory import Accept, End
from .scripted import ScriptedServer
from .world import RELAY, eventually, world

SETTINGS = Settings(lease_ms=6_000, heartbeat_ms=1_000)
Above = Callable[[], AbstractAsyncContextManager[Accept]]


@asynccontextmanager
async def scripted() -> AsyncIterator[Accept]:
    yield ScriptedServer(SETTINGS).accept


@asynccontextmanager
async def node() -> AsyncIterator[Accept]:
    async with Cluster(1, settings=SETTINGS, clock=LoopClock()) as cluster:

        async def accept(end: End) -> None:
            await converse_as_server(cluster.leader, end)

        yield accept


@pytest.fixture(params=[scripted, node], ids=["scripted", "node"])
def above(request: pytest.FixtureRequest) -> Above:
    found: Above = request.param
    return found


def test_a_beat_is_acknowledged_once_its_frame_counts(above: Above) -> None:
    """Registration, the first beat, and one a period: each is told of, by its number."""

    async def story() -> None:
        async with above() as accept, world(accept) as here:
            talker = await here.talker("h1")
            await talker.register()
            results = await talker.hear_kind(Results)
            assert isinstance(results, Results)
            (result,) = results.results
            for sequence in range(1, 6):
                assert await talker.beat(result.slot, result.result) == sequence
                seen = await talker.hear_kind(BeatSeen)
                assert isinstance(seen, BeatSeen)
                assert seen.sequence == sequence
                await asyncio.sleep(0.8)

    run(story())


def test_a_fleet_keeps_its_leases_through_a_relay(above: Above) -> None:
    """Thirty agents over a minute; nobody's lease comes within half of its end."""

    async def story() -> None:
        async with above() as accept, world(accept) as here, AsyncExitStack() as stack:
            await eventually(lambda: here.relay.connected)
            agents = [here.agent(f"h{number}") for number in range(30)]
            for agent in agents:
                await stack.enter_async_context(agent)
                here.group.create_task(agent.register())  # type: ignore[arg-type]
            await eventually(lambda: all(agent.incarnation for agent in agents))
            loop = asyncio.get_running_loop()
            until_s = loop.time() + 60
            while loop.time() < until_s:
                await asyncio.sleep(0.25)
                left_s = min((agent.lease_deadline or 0) - loop.time() for agent in agents)
                assert left_s > 3
            assert {agent.connected_to for agent in agents} == {RELAY}
            assert len(here.relay.beating) == 30

    run(story())


def test_a_cut_upwards_is_not_noticed_below(above: Above) -> None:
    """The relay attaches everybody anew, says its roster anew, and beats count again."""

    async def story() -> None:
        async with above() as accept, world(accept) as here, AsyncExitStack() as stack:
            await eventually(lambda: here.relay.connected)
            agents = [here.agent(f"h{number}") for number in range(10)]
            for agent in agents:
                await stack.enter_async_context(agent)
                await agent.register()
            loop = asyncio.get_running_loop()
            for _ in range(3):
                await asyncio.sleep(2.3)
                here.dialer.ends[-1].cut()
                cut_s = loop.time()
                await eventually(lambda since_s=cut_s: all(acked(a) > since_s for a in agents), 3)
            assert here.count("coord_relay_upstream_connections_total") == 4
            assert {agent.connected_to for agent in agents} == {RELAY}

    run(story())


def test_relays_stack(above: Above) -> None:
    """The upper one passes on what the lower one vouches for; a cut between them, or above both,
    is mended by themselves."""

    async def story() -> None:
        async with above() as accept, world(accept) as here, AsyncExitStack() as stack:
            lower = "http://relay-lower:7201"
            relay = here.add_relay("lower", lower, (RELAY,), RelayLimits())
            agents = [here.agent(f"h{number}", lower) for number in range(10)]
            await eventually(lambda: relay.connected)
            for agent in agents:
                await stack.enter_async_context(agent)
                await agent.register()
            loop = asyncio.get_running_loop()
            for end in [None, *here.dialer.ends[-2:]]:
                await asyncio.sleep(2.1)
                if end is not None:
                    end.cut()
                cut_s = loop.time()
                await eventually(lambda since_s=cut_s: all(acked(a) > since_s for a in agents), 4)
            assert len(relay.beating) == 10
            assert len(here.relay.beating) == 0
            assert len(here.relay.table) == 10
            assert {agent.connected_to for agent in agents} == {lower}

    run(story())


def test_nonsense_ends_that_conversation_alone(above: Above) -> None:
    async def story() -> None:
        async with above() as accept, world(accept) as here:
            honest = await here.talker("h1")
            liar = await here.talker("h2")
            await liar.end.send(b"\xff\xff nonsense")
            refused = await liar.hear_kind(Refused)
            assert isinstance(refused, Refused)
            assert refused.code == "malformed"
            await honest.register()
            assert isinstance(await honest.hear_kind(Results), Results)
            await eventually(lambda: len(here.relay.table) == 1)

    run(story())


def acked(agent: object) -> float:
    """When the newest acknowledged beat was sent."""
    deadline_s: float = agent.lease_deadline or 0.0  # type: ignore[attr-defined]
    return deadline_s - SETTINGS.lease_ms / 1000
