"""A relay's WebSocket, and what servers tell of relays."""

from __future__ import annotations

import asyncio

from coord.cli.cluster import relays_text
from coord.client.views import ClusterView, RelayView
from coord.codec import decode_to_client, encode_to_server
from coord.model.channel import (
    Beat,
    Hello,
    HostPlan,
    Refused,
    RelayAttach,
    RelayBeats,
    RelayDown,
    Relayed,
    RelayUp,
    Results,
    Welcome,
)
from coord.model.roster import RosterChanged, RosterHeard
from tests.api.servers import Conversation, Served
from tests.api.test_channel import registration
from tests.node.cluster import until


class Relay:
    """A relay's connection, with all that came down it."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.frames: list[Relayed] = []
        self.seen: list[object] = []

    async def next(self) -> None:
        down = await self.conversation.until(RelayDown)
        self.frames += down.frames
        self.seen += down.seen

    def told(self, session: int, kind: type) -> list[object]:
        found = [decode_to_client(one.frame) for one in self.frames if one.session == session]
        return [one for one in found if isinstance(one, kind)]


async def test_a_thousand_agents_come_through_one_connection() -> None:
    """They register, get their plans, and live by one frame; all is shown by the server."""
    async with Served() as served:
        relay = Relay(await served.dial(actor="relay:r1"))
        assert isinstance(await relay.conversation.next(), Welcome)
        numbers = range(1, 1_001)
        attached = tuple(RelayAttach(number, f"host:h{number}") for number in numbers)
        frames = tuple(
            Relayed(number, encode_to_server(registration(f"h{number}", f"a{number}")))
            for number in numbers
        )
        await relay.conversation.send(RelayUp(attached, frames))
        async with asyncio.timeout(60):
            while len({one.session for one in relay.frames}) < 1_000 or not all(
                relay.told(number, Results) and relay.told(number, HostPlan) for number in numbers
            ):
                await relay.next()
        slots = {
            number: relay.told(number, Results)[0].results[0].slot  # type: ignore[attr-defined]
            for number in numbers
        }
        shown = tuple(Relayed(n, encode_to_server(Beat(slots[n], 1))) for n in numbers)
        joined = RosterChanged(
            1, tuple(range(1_000)), (1,) * 1_000, (0,) * 1_000, replaces=True, unit_ms=20
        )
        beats = RelayBeats("r1", 7, 1, (joined,), (RosterHeard(1, 0, 50),))
        await relay.conversation.send(RelayUp((), shown, (beats,)))
        async with asyncio.timeout(20):
            while not relay.seen:
                await relay.next()
        view = await served.get("/v1/cluster")
        assert view["relays"] == [
            {"relay": "r1", "hosts": 1_000, "connected": True, "conversations": 1_000}
        ]
        async with served.http.get(served.url("/metrics")) as answer:
            text = await answer.text()
        assert "coord_relay_heartbeats_total 1000.0" in text
        assert "coord_relay_hosts 1000.0" in text
        await relay.conversation.socket.close()
        await until(lambda: len(served.leader.sessions) == 0)
        assert len(served.leader.relays) == 0


async def test_relays_and_agents_keep_to_what_each_may_say() -> None:
    """A relay speaks for others alone, and nobody else does."""
    async with Served() as served:
        for actor, message, said in (
            ("relay:r1", Beat(0, 1), "it speaks in RelayUp alone"),
            ("relay:r1", Hello("relay:r1"), "it speaks in RelayUp alone"),
            ("host:h1", RelayUp(), "RelayUp of host:h1, which is no relay"),
        ):
            conversation = await served.dial(actor=actor)
            await conversation.send(message)
            refused = await conversation.until(Refused)
            assert refused.code == "malformed"
            assert said in refused.message
            assert await conversation.ended()


def test_relays_are_told_in_one_line() -> None:
    """The largest first, and how many more there are."""
    relays = tuple(RelayView(f"r{number}", number * 100) for number in range(1, 11))
    view = ClusterView(cluster="c", node=1, relays=relays)
    assert relays_text(view) == (
        "r10 1,000, r9 900, r8 800, r7 700, r6 600, r5 500, r4 400, r3 300, 2 more; "
        "5,500 hosts behind 10"
    )
    assert relays_text(ClusterView(cluster="c", node=1)) == ""
