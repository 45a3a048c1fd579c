"""Who misbehaves towards a relay: contained, counted, logged once for each cause."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from coord.client.channel import ChannelClosed
from coord.codec import encode_to_server
from coord.model.channel import (
    Beat,
    BeatSeen,
    Hello,
    LeaderChanged,
    Refused,
    RelayBeats,
    RelayUp,
    Results,
    Submit,
)
from coord.model.events import NoteAdded, ProgressReported, TaskExited
from coord.model.roster import RosterHeard
from coord.model.settings import Settings
from coord.relay.config import RelayLimits
from tests.client.virtual import run

from .scripted import ScriptedServer
from .world import SERVER, Talker, eventually, world


async def registered(talker: Talker) -> int:
    """Returns the host's slot."""
    await talker.register()
    results = await talker.hear_kind(Results)
    assert isinstance(results, Results)
    return results.results[0].slot


def test_a_flood_of_beats_is_read_no_faster_than_it_may_come() -> None:
    """Those beyond are counted, and logged once; another agent's beats are heard meanwhile."""

    async def story() -> None:
        above = ScriptedServer()
        limits = RelayLimits(rate_per_s=10, burst=20)
        async with world(above.accept, limits) as here:
            honest, flood = await here.talker("h1"), await here.talker("h2")
            slot, slot_of_flood = await registered(honest), await registered(flood)

            async def pour() -> None:
                for _ in range(2_000):
                    await flood.beat(slot_of_flood)

            with capture_logs() as logs:
                pouring = here.group.create_task(pour())
                loop = asyncio.get_running_loop()
                until_s = loop.time() + 10
                while loop.time() < until_s:
                    sequence = await honest.beat(slot)
                    seen = await honest.hear_kind(BeatSeen)
                    assert isinstance(seen, BeatSeen)
                    assert seen.sequence == sequence
                    await asyncio.sleep(0.7)
                pouring.cancel()
            assert 80 < here.count("coord_relay_beats_received_total") < 400
            refused = here.count("coord_relay_refused_total")
            assert refused > 50
            told = [line for line in logs if line["event"] == "relay_refuses_flood"]
            assert len(told) == 1
            assert told[0]["actor"] == "host:h2"

    run(story())


def test_a_flood_of_reports_is_told_busy() -> None:
    """Each report is answered: decided, or to come again later. None is shed silently."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept, RelayLimits(rate_per_s=10, burst=20)) as here:
            talker = await here.talker("h1")
            for _ in range(50):
                await talker.submit(NoteAdded("a", "b", "c"))
            answers = []
            while len(answers) < 50:
                results = await talker.hear_kind(Results)
                assert isinstance(results, Results)
                answers += results.results
            outcomes = [(one.outcome, one.reason) for one in answers]
            assert set(outcomes) == {("committed", ""), ("not_committed", "busy")}
            assert all(one.retry_after_ms > 0 for one in answers if one.reason)
            assert sorted(one.seq for one in answers) == list(range(1, 51))

    run(story())


def test_a_full_queue_refuses_progress_first_and_ends_of_tasks_last() -> None:
    """The server reads nothing; reports pile up at the relay."""

    async def story() -> None:
        above = ScriptedServer()
        limits = RelayLimits(queue_bytes=40_000, upward_bytes=1_000, rate_per_s=1e6, burst=1e6)
        async with world(above.accept, limits) as here:
            talker = await here.talker("h1")
            above.deaf = True
            filler = "x" * 900
            kinds = {
                "progress": ProgressReported("h1", 1, filler, 1),
                "command": NoteAdded("a", "b", filler),
                "exit": TaskExited("h1", 1, "t", 1, stderr_tail=filler),
            }
            refused_at = {}
            for kind, event in kinds.items():
                before = here.count("coord_relay_refused_total")
                while here.count("coord_relay_refused_total") == before:
                    await talker.submit(event)
                    await asyncio.sleep(0.001)
                refused_at[kind] = here.relay.upward.size_bytes
            assert refused_at["progress"] <= 20_000 < refused_at["command"] <= 30_000
            assert 30_000 < refused_at["exit"] <= 40_000
            results = await talker.hear_kind(Results)
            assert isinstance(results, Results)
            assert results.results[0].reason == "busy"

    run(story())


def test_a_slow_reader_is_ended_and_nobody_else_waits_for_it() -> None:
    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept, RelayLimits(unread_bytes=10_000)) as here:
            slow, honest = await here.talker("h1"), await here.talker("h2")
            await registered(honest)
            number = next(n for n, actor in above.attached.items() if actor == "host:h1")
            for _ in range(400):
                await above.say(number, Refused("x", "y" * 100))
            await eventually(lambda: len(here.relay.table) == 1, 30)
            assert here.count("coord_relay_sessions_dropped_total") == 1
            await eventually(lambda: list(above.attached.values()) == ["host:h2"])
            assert slow.end.closed

    run(story())


def test_nobody_beats_for_another() -> None:
    """While two conversations claim one slot neither counts; the server says who lies."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            honest, liar = await here.talker("h1"), await here.talker("h2")
            slot = await registered(honest)
            await honest.beat(slot)
            await honest.hear_kind(BeatSeen)
            frames = len(above.frames)
            await liar.beat(slot)
            await eventually(lambda: len(above.shown) == 2)
            await eventually(lambda: len(above.frames) > frames)
            assert [c.left_slots for f in above.frames for c in f.changes][-1] == (slot,)
            await honest.beat(slot)
            await eventually(lambda: len(above.shown) == 3)
            number = next(n for n, actor in above.attached.items() if actor == "host:h2")
            await above.say(number, Refused("malformed", "not your slot"), ends=True)
            await eventually(lambda: len(here.relay.table) == 1)
            sequence = await honest.beat(slot)
            seen = await honest.hear_kind(BeatSeen)
            assert isinstance(seen, BeatSeen)
            assert seen.sequence == sequence

    run(story())


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"", "malformed"),
        (b"\x00\x01\x02", "malformed"),
        ("text", "malformed"),
        (encode_to_server(Beat(0, 1)), "malformed"),
        (encode_to_server(Hello("host:")), "malformed"),
        (encode_to_server(Hello("client:c")), "malformed"),
        (encode_to_server(Hello("host:h", protocol=9)), "protocol"),
        (encode_to_server(Hello("host:h", "another")), "wrong_cluster"),
        (encode_to_server(Hello("host:" + "x" * 5_000_000)), "malformed"),
    ],
)
def test_who_is_not_let_in(first: bytes | str, code: str) -> None:
    """Refused with the reason, before anything is said upwards."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            await eventually(lambda: here.relay.connected)
            talker = Talker("h", here.connect())
            await talker.end.send(first)
            refused = await talker.hear()
            assert isinstance(refused, Refused)
            assert refused.code == code
            with pytest.raises(ChannelClosed):
                await talker.hear()
            assert above.attached == {}

    run(story())


def test_who_says_nothing_is_not_waited_for() -> None:
    """Half-open before its Hello."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            await eventually(lambda: here.relay.connected)
            talker = Talker("h", here.connect())
            refused = await talker.hear(timeout_s=30)
            assert isinstance(refused, Refused)
            assert "no Hello" in refused.message

    run(story())


def test_a_relay_below_that_lies_is_ended() -> None:
    """It speaks under the upper one's name, attaches what is no agent, or a number twice."""

    async def story(up: RelayUp) -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            await eventually(lambda: here.relay.connected)
            liar = Talker("", here.connect())
            await liar.say(Hello("relay:lower"))
            await liar.hear()
            await liar.say(up)
            refused = await liar.hear()
            assert isinstance(refused, Refused)
            assert refused.code == "malformed"
            await eventually(lambda: not here.relay.table.connections)

    run(story(RelayUp(beats=(RelayBeats("r1", 1, 1, (), (RosterHeard(1, 0, 1),)),))))


def test_a_server_that_decides_nothing_is_left() -> None:
    """It reads and is silent: the relay connects anew, and refuses its agents when there is no
    server that counts."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            talker = await here.talker("h1")
            slot = await registered(talker)
            above.mute = True
            await talker.beat(slot)
            await eventually(lambda: len(above.hellos) >= 2)
            above.mute = False
            await talker.beat(slot)
            await talker.hear_kind(BeatSeen)
            del here.servers[SERVER]
            assert above.end is not None
            above.end.cut()
            refused = await talker.hear_kind(Refused)
            assert isinstance(refused, Refused)
            assert refused.code == "stopping"

    run(story())


def test_reports_under_way_when_the_server_is_lost_are_answered() -> None:
    """Nothing is known of them; their agent sends them again at once, not after its patience."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            talker = await here.talker("h1")
            above.mute = True
            await talker.submit(NoteAdded("a", "b", "c"))
            await eventually(lambda: any(isinstance(m, Submit) for _, m in above.heard))
            assert above.end is not None
            above.end.cut()
            results = await talker.hear_kind(Results)
            assert isinstance(results, Results)
            assert (results.results[0].outcome, results.results[0].reason) == (
                "unknown",
                "upstream_lost",
            )

    run(story())


def test_a_clock_that_is_wrong_does_not_matter() -> None:
    """What a relay says holds durations alone, by the clock that never jumps; its process's number
    is the only thing of the machine's clock."""

    async def story() -> None:
        above = ScriptedServer(Settings(heartbeat_ms=1_000))
        async with world(above.accept) as here:
            talker = await here.talker("h1")
            slot = await registered(talker)
            for _ in range(3):
                await talker.beat(slot)
                await asyncio.sleep(1.0)
            heard = [one for frame in above.frames for one in frame.heard]
            assert heard
            assert all(0 <= one.lag_ms < 100 for one in heard)
            assert {frame.incarnation for frame in above.frames} == {1_000}

    run(story())


def test_a_new_leader_is_passed_on() -> None:
    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            talker = await here.talker("h1")
            here.relay.hear_leader(LeaderChanged("test", 1, 3, "x:1", 9, Settings()))
            changed = await talker.hear_kind(LeaderChanged)
            assert isinstance(changed, LeaderChanged)
            assert changed.leader == 3

    run(story())


def test_a_report_that_would_fill_a_message_is_refused_here() -> None:
    """Passed on, it could cost the relay its connection, and all others with it."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept) as here:
            talker = await here.talker("h1")
            await talker.submit(NoteAdded("a", "b", "x" * 3_000_000))
            refused = await talker.hear_kind(Refused)
            assert isinstance(refused, Refused)
            assert "through a relay the limit is 2097152" in refused.message
            assert len(above.hellos) == 1

    run(story())


def test_conversations_come_and_go_without_a_server_and_leave_nothing_behind() -> None:
    """What is to be said on the next connection is said from what is there by then."""

    async def story() -> None:
        above = ScriptedServer()
        async with world(above.accept, RelayLimits(upstream_s=60)) as here:
            await eventually(lambda: here.relay.connected)
            del here.servers[SERVER]
            assert above.end is not None
            above.end.cut()
            await eventually(lambda: not here.relay.connected)
            for number in range(200):
                talker = Talker(f"h{number}", here.connect())
                await talker.say(Hello(f"host:h{number}"))
                await talker.hear()
                await talker.beat(number)
                talker.end.cut()
            await eventually(lambda: not here.relay.table.connections)
            assert not here.relay.upward
            here.servers[SERVER] = above.accept
            await here.talker("last")
            await eventually(lambda: list(above.attached.values()) == ["host:last"])

    run(story())
