"""Relays and the agents behind them, as a server sees both."""

from __future__ import annotations

from itertools import count

import pytest

from coord.codec import decode_to_client, encode_to_server
from coord.model.channel import (
    Beat,
    BeatSeen,
    HostPlan,
    LeaderChanged,
    Refused,
    RelayAttach,
    RelayBeats,
    RelayBeatsSeen,
    Relayed,
    RelayUp,
    Result,
    Results,
    Submit,
    ToClient,
    ToServer,
)
from coord.model.entities import HostStatus
from coord.model.entry import Origin, Submission
from coord.model.events import HostRegistered
from coord.model.roster import RosterChanged, RosterHeard
from coord.model.settings import Settings
from coord.node.config import Limits
from coord.node.node import Node
from coord.node.relays import TOLD_FOR, Dropped
from tests.node.cluster import Cluster, FakeAgent, Writer, until
from tests.node.test_agents import job

UNIT_MS = 10
QUICK = Settings(lease_ms=1_200, suspect_ms=600, heartbeat_ms=200, fence_ms=100, max_step_ms=100)
"""A quarter of the lease is as long as beats may take to the log, on a busy machine."""


class FakeRelay:
    """A relay's side of its connection, without one. Its agents register and are remembered."""

    def __init__(self, node: Node, name: str = "r1", incarnation: int = 1_000) -> None:
        self.node = node
        self.name = name
        self.incarnation = incarnation
        self.session = node.sessions.attach(f"relay:{name}")
        self.link = node.relays.attach(self.session)
        self.down: dict[int, list[ToClient]] = {}
        self.ended: list[int] = []
        self.seen: list[RelayBeatsSeen] = []
        self.own: list[ToClient] = []
        self.number = 0
        self._sequence = count(1)
        self._sessions = count(1)

    def up(self, **parts: tuple[object, ...]) -> None:
        self.node.relayed(self.link, RelayUp(**parts))  # type: ignore[arg-type]

    def take(self) -> None:
        """Read everything that the server has for us and for those behind us."""
        self.own += self.session.take(self.node.state, self.node.welcome)
        for down in self.node.relays.take(self.link, self.node.state, self.node.welcome):
            for relayed in down.frames:
                self.down.setdefault(relayed.session, []).append(decode_to_client(relayed.frame))
                if relayed.ends:
                    self.ended.append(relayed.session)
            self.seen += down.seen

    def attach(self, host: str) -> int:
        session = next(self._sessions)
        self.up(attached=(RelayAttach(session, f"host:{host}"),))
        return session

    def say(self, session: int, message: ToServer) -> None:
        self.up(frames=(Relayed(session, encode_to_server(message)),))

    def heard_by(self, session: int, kind: type[ToClient]) -> list[ToClient]:
        self.take()
        return [one for one in self.down.get(session, []) if isinstance(one, kind)]

    async def register(self, session: int, host: str, seq: int = 1) -> Result:
        event = HostRegistered(
            host, f"agent-{host}", "boot", "127.0.0.1", cpu_millis=4_000, memory_mib=4_000
        )
        origin = Origin(f"client:agent-{host}", 0, seq)
        known = len(self.heard_by(session, Results))
        self.say(session, Submit((Submission(origin, event),)))
        await until(lambda: len(self.heard_by(session, Results)) > known)
        results = self.heard_by(session, Results)[-1]
        assert isinstance(results, Results)
        return results.results[0]

    async def settled(self, host: str) -> tuple[int, int]:
        """A host that is registered through us and has shown its incarnation: (session, slot)."""
        session = self.attach(host)
        result = await self.register(session, host)
        self.say(session, Beat(result.slot, result.result))
        return session, result.slot

    def beats(self, *events: RosterChanged | RosterHeard, name: str = "") -> int:
        """Send a frame; its sequence."""
        changes = tuple(one for one in events if isinstance(one, RosterChanged))
        heard = tuple(one for one in events if isinstance(one, RosterHeard))
        sequence = next(self._sequence)
        for _ in events[1:]:
            next(self._sequence)
        frame = RelayBeats(name or self.name, self.incarnation, sequence, changes, heard)
        self.up(beats=(frame,))
        return sequence

    def join(self, *slots: int, incarnation: int = 1, replaces: bool = False) -> RosterChanged:
        self.number += 1
        replaces = replaces or self.number == 1
        size = len(slots)
        return RosterChanged(
            self.number,
            tuple(sorted(slots)),
            (incarnation,) * size,
            (0,) * size,
            replaces=replaces,
            unit_ms=UNIT_MS if replaces else 0,
        )

    def hear(self, *silent: int) -> RosterHeard:
        return RosterHeard(self.number, 0, 1, 0, tuple(sorted(silent)), (0,) * len(silent))

    async def decided(self, sequence: int) -> RelayBeatsSeen:
        def found() -> list[RelayBeatsSeen]:
            self.take()
            return [one for one in self.seen if one.sequence == sequence]

        await until(found)
        return found()[0]


async def test_agents_behind_a_relay_talk_as_if_connected() -> None:
    """Registration, plan and every change of it, one conversation each, through any server."""
    async with Cluster() as cluster:
        relay = FakeRelay(cluster.followers[0])
        session = relay.attach("h1")
        result = await relay.register(session, "h1")
        assert (result.outcome, result.result, result.slot) == ("committed", 1, 0)
        await Writer("a").write(cluster.leader, job())

        def plans() -> list[HostPlan]:
            return [one for one in relay.heard_by(session, HostPlan) if isinstance(one, HostPlan)]

        await until(lambda: plans() and plans()[-1].tasks)
        assert plans()[-1].tasks[0].task == "digits/trainer/0#1"
        relay.up(detached=(session,))
        assert relay.node.sessions.agents() == 0


async def test_a_leader_is_named_once_for_all_behind_a_relay() -> None:
    """The relay passes it on."""
    async with Cluster() as cluster:
        relay = FakeRelay(cluster.nodes[3])
        session = relay.attach("h1")
        cluster.hub.elect(2)
        await until(lambda: relay.take() or relay.own)
        assert [type(one) for one in relay.own] == [LeaderChanged] * len(relay.own)
        assert relay.heard_by(session, LeaderChanged) == []


@pytest.mark.parametrize("at", ["leader", "follower"])
async def test_hosts_live_by_the_beats_that_their_relay_vouches_for(at: str) -> None:
    """As long as it does; the one that it names as silent is lost, and its agent told."""
    async with Cluster(settings=QUICK) as cluster:
        node = cluster.leader if at == "leader" else cluster.followers[0]
        relay = FakeRelay(node)
        beating, beating_slot = await relay.settled("h1")
        silent, silent_slot = await relay.settled("h2")
        first = await relay.decided(relay.beats(relay.join(beating_slot, silent_slot)))
        assert (first.rejection, first.dropped_slots) == ("", ())
        hosts = node.state.hosts
        while hosts["h2"].status != HostStatus.LOST:
            seen = await relay.decided(relay.beats(relay.hear(silent_slot)))
            assert seen.rejection == ""
        assert hosts["h1"].status == HostStatus.UP
        assert silent_slot in {slot for one in relay.seen for slot in one.dropped_slots} | set(
            (await relay.decided(relay.beats(relay.hear()))).dropped_slots
        )
        relay.take()
        refused = relay.down[silent][-1]
        assert isinstance(refused, Refused)
        assert refused.code == "stale_incarnation"
        assert relay.ended == [silent]
        assert relay.heard_by(beating, BeatSeen) == []
        sources = [r.entry.event for r in node.events.read(1, 9_999)]
        assert not [one for one in sources if type(one).__name__ == "HeartbeatsSeen"]


async def test_only_hosts_that_stand_behind_a_relay_come_into_its_roster() -> None:
    """With the incarnation they showed, and not those whose newest conversation is elsewhere; the
    relay is told which did not, and the rest counts."""
    async with Cluster(1) as cluster:
        node = cluster.leader
        relay = FakeRelay(node)
        _, mine = await relay.settled("mine")
        unshown = relay.attach("unshown")
        unshown_slot = (await relay.register(unshown, "unshown")).slot
        straight = FakeAgent(node, "straight")
        await straight.register()
        straight.beat()
        _, moved = await relay.settled("moved")
        elsewhere = FakeAgent(node, "moved", "agent-moved")
        elsewhere.slot, elsewhere.incarnation = moved, 1
        elsewhere.beat()
        claimed = relay.join(mine, unshown_slot, straight.slot, moved, 77)
        seen = await relay.decided(relay.beats(claimed, relay.hear()))
        assert seen.rejection == ""
        assert seen.dropped_slots == tuple(sorted((unshown_slot, straight.slot, moved, 77)))
        assert node.state.rosters["r1"].slots == (mine,)
        assert b'coord_relay_refused_total{cause="not_its_host"} 4.0' in node.metrics.text()
        relay.say(unshown, Beat(unshown_slot, 1))
        again = await relay.decided(relay.beats(relay.join(unshown_slot)))
        assert again.dropped_slots == tuple(sorted((straight.slot, moved, 77)))
        assert sorted(node.state.rosters["r1"].slots) == sorted((mine, unshown_slot))


def test_what_is_dropped_is_named_for_as_long_as_a_relay_may_not_know() -> None:
    """With every frame that it may have sent before it heard; not with one that says it anew."""
    dropped = Dropped(7)
    dropped.drop(3, since=5)
    dropped.drop(4)
    assert dropped.told_with(2) == (4,)
    assert dropped.told_with(5) == (3, 4)
    dropped.settle(3, 9)
    assert dropped.told_with(7) == (3, 4)
    assert dropped.told_with(9) == (4,)
    dropped.settle(4, 11)
    dropped.drop(4, since=11)
    assert dropped.told_with(11) == (4,)
    assert dropped.told_with(11 + TOLD_FOR - 1) == (4,)
    assert dropped.told_with(11 + TOLD_FOR) == ()


async def test_a_claim_of_another_incarnation_takes_the_host_out() -> None:
    """Neither the one claimed nor the one before counts until it is settled."""
    async with Cluster(1) as cluster:
        relay = FakeRelay(cluster.leader)
        _, slot = await relay.settled("h1")
        await relay.decided(relay.beats(relay.join(slot)))
        seen = await relay.decided(relay.beats(relay.join(slot, incarnation=2)))
        assert seen.dropped_slots == (slot,)
        assert "r1" not in cluster.leader.state.rosters


async def test_a_host_heard_straight_leaves_its_roster() -> None:
    """Wherever it was heard; its former relay is told with the next frame."""
    async with Cluster() as cluster:
        relay = FakeRelay(cluster.followers[0])
        _, slot = await relay.settled("h1")
        _, stays = await relay.settled("h2")
        await relay.decided(relay.beats(relay.join(slot, stays)))
        moved = FakeAgent(cluster.followers[1], "h1", "agent-h1")
        await until(lambda: "h1" in moved.node.state.hosts)
        moved.slot, moved.incarnation = slot, 1
        moved.beat()
        await until(lambda: relay.node.state.rosters["r1"].slots == (stays,))
        seen = await relay.decided(relay.beats(relay.hear()))
        assert (seen.rejection, seen.dropped_slots) == ("", (slot,))


async def test_a_roster_that_does_not_follow_is_asked_for_anew() -> None:
    """And counts once all of it was said."""
    async with Cluster(1) as cluster:
        relay = FakeRelay(cluster.leader)
        _, slot = await relay.settled("h1")
        await relay.decided(relay.beats(relay.join(slot)))
        relay.number += 1
        seen = await relay.decided(relay.beats(relay.hear()))
        assert seen.rejection == "stale_roster"
        seen = await relay.decided(relay.beats(relay.join(slot, replaces=True), relay.hear()))
        assert seen.rejection == ""


async def test_no_relay_speaks_for_another_that_is_connected() -> None:
    """Its frames count for nothing; a relay that connects again replaces its former connection."""
    async with Cluster(1) as cluster:
        node = cluster.leader
        honest, liar = FakeRelay(node, "honest"), FakeRelay(node, "liar")
        _, slot = await honest.settled("h1")
        await honest.decided(honest.beats(honest.join(slot)))
        liar.beats(RosterChanged(9, replaces=True, unit_ms=UNIT_MS), name="honest")
        await honest.decided(honest.beats(honest.hear()))
        assert node.state.rosters["honest"].number == 1
        assert b'coord_relay_refused_total{cause="not_its_name"} 1.0' in node.metrics.text()
        again = FakeRelay(node, "honest")
        assert honest.session.refused is not None
        assert honest.session.refused.code == "replaced"
        node.relays.detach(honest.link)
        _, slot = await again.settled("h2")
        assert (await again.decided(again.beats(again.join(slot)))).rejection == ""


async def test_a_relay_below_another_is_told_through_it() -> None:
    """Under its own name; when it comes through another relay it sends all of its roster."""
    async with Cluster(1) as cluster:
        node = cluster.leader
        upper, other = FakeRelay(node, "upper"), FakeRelay(node, "other")
        _, slot = await upper.settled("h1")
        sequence = upper.beats(upper.join(slot), upper.hear(), name="lower")
        seen = await upper.decided(sequence)
        assert (seen.relay, seen.incarnation, seen.rejection) == ("lower", 1_000, "")
        assert node.state.rosters["lower"].slots == (slot,)
        other.beats(RosterHeard(1, 0, 1), name="lower")
        _, slot = await other.settled("h2")
        sequence = other.beats(other.join(slot), name="lower")
        assert (await other.decided(sequence)).relay == "lower"
        assert node.state.rosters["lower"].slots == (slot,)


async def test_what_an_agent_sends_in_nonsense_ends_its_own_conversation() -> None:
    """Those beside it go on; what the relay gets wrong itself is counted."""
    async with Cluster(1, limits=Limits(relay_sessions=2)) as cluster:
        relay = FakeRelay(cluster.leader)
        one, other = relay.attach("h1"), relay.attach("h2")
        relay.up(frames=(Relayed(one, b"\xff\xff"), Relayed(99, b"")))
        relay.up(attached=(RelayAttach(other, "host:h3"), RelayAttach(7, "client:x")))
        third = relay.attach("h3")
        relay.beats()
        relay.take()
        assert relay.ended == [third, one]
        assert [type(relay.down[session][-1]) for session in (third, one)] == [Refused, Refused]
        assert (await relay.register(other, "h2")).outcome == "committed"
        text = cluster.leader.metrics.text()
        for cause, times in (
            ("unknown_session", 1), ("attach", 2), ("too_many_sessions", 1), ("frame", 1),
        ):  # fmt: skip
            assert f'coord_relay_refused_total{{cause="{cause}"}} {times}.0'.encode() in text


async def test_a_client_may_not_vouch_for_hosts() -> None:
    """Not even for itself."""
    async with Cluster(1) as cluster:
        result = await Writer("a").write(cluster.leader, RosterHeard(1, 0, 9))
        assert (result.outcome, result.reason) == ("not_committed", "not_allowed")


async def test_beats_that_waited_are_older_when_they_leave() -> None:
    """A stall of the log is not taken for a beat: what waited too long counts for nothing."""
    settings = Settings(lease_ms=400, suspect_ms=300, heartbeat_ms=100, fence_ms=100)
    async with Cluster(1, settings=settings) as cluster:
        relay = FakeRelay(cluster.leader)
        _, slot = await relay.settled("h1")
        await relay.decided(relay.beats(relay.join(slot)))
        late = RosterHeard(1, 0, 1, 101)
        assert (await relay.decided(relay.beats(late))).rejection == "beats_too_old"
        records = cluster.leader.events.read(1, 9_999)
        (heard,) = [r.entry.event for r in records if isinstance(r.entry.event, RosterHeard)]
        assert heard.lag_ms >= 101


async def test_plans_that_nobody_was_told_of_are_offered_all_the_same() -> None:
    """A few hosts at a time, until all were looked at."""
    async with Cluster(1) as cluster:
        node = cluster.leader
        agents = [FakeAgent(node, f"h{number}") for number in range(600)]
        await agents[0].register()
        agents[0].take()
        agents[0].session.plan_sent = (0, 0)
        taken = len(agents[0].plans)
        await until(lambda: agents[0].take() or len(agents[0].plans) > taken)
