"""Simulated channels: what arrives, in which order, who is told what, and when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from coord_sim.kernel import Kernel
from coord_sim.world.channels import Channels, SimChannel
from coord_sim.world.links import Delay

from coord.client.agent import Agent
from coord.client.channel import ChannelClosed, ChannelRefused
from coord.client.servers import ServerRing
from coord.client.writer import Writer
from coord.listening.connection import PING_S
from coord.listening.talk import SEND_TIMEOUT_S
from coord.model.channel import Hello, LogRead, Results, Submit, ToClient, ToServer
from coord.model.entry import Origin, Submission
from coord.model.events import NoteAdded
from tests.sim.one_server import OneServer

URL = "http://sim-1:7101"
STILL_PINGED_S = PING_S * 1.5
"""Silence after which a server gives a connection up."""


class Simulation:
    """A kernel, a server that is ready, and channels to it."""

    def __init__(self, seed: int = 1) -> None:
        self.kernel = Kernel(seed)
        self.server = OneServer(self.kernel)
        self.server.start()
        self.channels = Channels(self.kernel, self.server)

    def caller(self, name: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return self.kernel.spawn(name, main)

    async def dial(self, name: str, timeout_s: float = 1.0) -> SimChannel:
        hello = Hello(f"client:{name}")
        return await self.channels.dialer(name).dial(URL, hello, timeout_s)

    def texts(self) -> list[str]:
        """Notes that took effect, in the order of the log."""
        records = self.server.running.events.read(1, 1_000)
        return [r.entry.event.text for r in records if isinstance(r.entry.event, NoteAdded)]


@pytest.fixture
def sim() -> Iterator[Simulation]:
    simulation = Simulation()
    with simulation.kernel:
        yield simulation
    assert simulation.channels.defects == []


def note(name: str, number: int) -> Submit:
    event = NoteAdded(name, "numbers", f"{name}{number}")
    return Submit((Submission(Origin(f"client:{name}", 0, number), event),))


async def send_notes(channel: SimChannel, name: str, numbers: range) -> None:
    for number in numbers:
        await channel.send(note(name, number))


async def until_closed(channel: SimChannel, heard: list[ToClient]) -> Exception:
    """Everything that arrives, and then why nothing more does."""
    while True:
        try:
            heard.append(await channel.receive())
        except (ChannelClosed, ChannelRefused) as error:
            return error


def test_a_write_goes_there_and_back_as_bytes(sim: Simulation) -> None:
    """Through the real codec, the real conversation and the real node, within milliseconds."""
    heard: list[ToClient] = []

    async def main() -> None:
        channel = await sim.dial("alice")
        assert channel.welcome.cluster == "test"
        await send_notes(channel, "alice", range(1, 4))
        while len(heard) < 3:
            message = await channel.receive()
            assert isinstance(message, Results)
            heard.extend(message.results)  # type: ignore[arg-type]
        await channel.close()

    alice = sim.caller("alice", main)
    sim.kernel.run_for(1.0)
    assert (alice.alive, alice.crashed) == (False, None)
    assert sim.texts() == ["alice1", "alice2", "alice3"]
    assert sim.channels.links() == []
    assert len(sim.server.running.sessions) == 0


def test_nobody_answers_where_nothing_runs(sim: Simulation) -> None:
    """A dead server's machine says so at once; a name that means nothing is an error, too."""
    problems: list[str] = []

    async def main() -> None:
        for url in ("http://sim-2:7101", "http://elsewhere:1"):
            with pytest.raises(ChannelClosed) as refused:
                await sim.channels.dialer("alice").dial(url, Hello("client:alice"), 1.0)
            problems.append(str(refused.value))

    alice = sim.caller("alice", main)
    sim.kernel.run_for(0.5)
    assert (alice.alive, alice.crashed) == (False, None)
    assert problems == [
        "http://sim-2:7101 cannot be reached: connection reset",
        "http://elsewhere:1 cannot be reached: no such server",
    ]


@pytest.mark.parametrize("hindrance", ["cut", "to_server", "to_caller", "pause"])
def test_a_dial_that_cannot_get_through_fails_after_its_time(
    sim: Simulation, hindrance: str
) -> None:
    """And leaves nothing behind when the way is open again."""
    server = sim.server.process(1)
    assert server is not None
    if hindrance == "cut":
        sim.channels.cut("alice", 1)
    elif hindrance == "pause":
        server.pause()
    else:
        ways = {"to_server": False, "to_caller": False, hindrance: True}
        sim.channels.cut_silently("alice", 1, **ways)
    took: list[float] = []

    async def main() -> None:
        begun_s = sim.kernel.now_s()
        with pytest.raises(ChannelClosed, match="did not answer within 2 s"):
            await sim.dial("alice", timeout_s=2.0)
        took.append(sim.kernel.now_s() - begun_s)

    alice = sim.caller("alice", main)
    sim.kernel.run_for(5.0)
    assert (alice.alive, alice.crashed) == (False, None)
    assert took == [pytest.approx(2.0)]
    server.resume()
    sim.channels.heal_all()
    sim.kernel.run_for(5.0)
    assert sim.channels.links() == []
    assert len(sim.server.running.sessions) == 0


def test_a_cut_breaks_what_is_open_and_heals(sim: Simulation) -> None:
    """Both sides learn at once; writes go on once the way is open."""
    moments: dict[str, float] = {}

    async def main() -> None:
        writer = Writer(
            ServerRing([URL]), sim.channels.dialer("a"), Hello("client:a"), random.Random(1)
        )
        await writer.write(NoteAdded("a", "b", "before"), 5.0)
        sim.channels.cut("a", 1)
        sim.kernel.call_later(3.0, sim.channels.heal, "a", 1)
        await writer.write(NoteAdded("a", "b", "after"), 10.0)
        moments["after"] = sim.kernel.now_s()
        await writer.close()

    began_s = sim.kernel.now_s()
    caller = sim.caller("a", main)
    sim.kernel.run_for(1.0)
    assert len(sim.server.running.sessions) == 0
    sim.kernel.run_for(9.0)
    assert (caller.alive, caller.crashed) == (False, None)
    assert sim.texts() == ["before", "after"]
    assert 3.0 < moments["after"] - began_s < 6.0


def test_frames_held_on_a_silent_way_arrive_late_and_in_order(sim: Simulation) -> None:
    """Also after their sender has given the connection up: these are the old late frames."""

    async def main() -> None:
        channel = await sim.dial("alice")
        await send_notes(channel, "alice", range(1, 3))
        await channel.receive()
        sim.channels.cut_silently("alice", 1, to_caller=False)
        await send_notes(channel, "alice", range(3, 6))
        await channel.close()

    alice = sim.caller("alice", main)
    sim.kernel.run_for(8.0)
    assert (alice.alive, alice.crashed) == (False, None)
    assert sim.texts() == ["alice1", "alice2"]
    assert len(sim.server.running.sessions) == 1
    sim.channels.heal_all()
    sim.kernel.run_for(2.0)
    assert sim.texts() == [f"alice{number}" for number in range(1, 6)]
    assert len(sim.server.running.sessions) == 0


def test_a_server_gives_up_who_answers_no_ping(sim: Simulation) -> None:
    """A cut that nobody was told of, and a caller that stands still, look the same to it."""

    async def main() -> None:
        channel = await sim.dial("alice")
        await until_closed(channel, [])

    paused, quiet = sim.caller("paused", main), sim.caller("quiet", main)
    sim.kernel.run_for(PING_S * 10)
    assert len(sim.server.running.sessions) == 2
    paused.pause()
    sim.kernel.run_for(PING_S / 2 - 1)
    assert len(sim.server.running.sessions) == 2
    sim.kernel.run_for(STILL_PINGED_S + 2)
    assert len(sim.server.running.sessions) == 1
    sim.channels.cut_silently("alice", 1, to_server=False)
    sim.kernel.run_for(STILL_PINGED_S + PING_S)
    assert len(sim.server.running.sessions) == 0
    assert quiet.alive, "nobody tells it before the way is open"
    sim.channels.heal_all()
    paused.resume()
    sim.kernel.run_for(3.0)
    assert not quiet.alive
    assert not paused.alive


@pytest.mark.parametrize("seed", range(6))
def test_the_death_of_either_process_is_told_to_the_other(seed: int) -> None:
    """Soon, but for what was on its way; a restarted server takes new connections."""
    sim = Simulation(seed)
    told: list[float] = []

    async def main() -> None:
        channel = await sim.dial("alice")
        await until_closed(channel, [])
        told.append(sim.kernel.now_s())

    with sim.kernel:
        killed, survivor = sim.caller("killed", main), sim.caller("survivor", main)
        sim.kernel.run_for(1.0)
        assert len(sim.server.running.sessions) == 2
        killed.kill()
        sim.kernel.run_for(0.2)
        assert len(sim.server.running.sessions) == 1
        assert told == []
        sim.server.kill()
        sim.kernel.run_for(0.2)
        assert len(told) == 1
        assert not survivor.alive
        assert sim.channels.links() == []
        sim.server.start()
        again = sim.caller("again", main)
        sim.kernel.run_for(1.0)
        assert len(sim.server.running.sessions) == 1
        assert again.alive
        assert sim.channels.defects == []


def test_a_reset_lets_only_the_first_part_through() -> None:
    """What was under way is delivered up to some frame; nothing after a gap ever is."""
    delivered: list[int] = []

    def run(seed: int) -> None:
        sim = Simulation(seed)
        sim.channels.delay = Delay(0.001, 0.02)
        ends: list[Exception] = []

        async def main() -> None:
            channel = await sim.dial("alice")
            await send_notes(channel, "alice", range(1, 41))
            sim.channels.reset("alice", 1)
            ends.append(await until_closed(channel, []))

        with sim.kernel:
            sim.caller("alice", main)
            sim.kernel.run_for(5.0)
            texts = sim.texts()
            assert texts == [f"alice{number}" for number in range(1, len(texts) + 1)]
            assert [type(end) for end in ends] == [ChannelClosed]
            assert sim.channels.links() == []
            delivered.append(len(texts))

    for seed in range(10):
        run(seed)
    assert min(delivered) < max(delivered)
    assert sum(0 < count < 40 for count in delivered) >= 5, delivered


def test_a_rule_delays_one_message_and_so_inverts_two(sim: Simulation) -> None:
    """The one sent first is decided last; what follows it on its connection waits with it."""

    def rule(caller: str, message: ToServer | ToClient) -> float | None:
        first = isinstance(message, Submit) and message.submissions[0].origin.seq == 1
        return 0.5 if first and caller == "early" else None

    remove = sim.channels.delay_rule(rule)

    async def early() -> None:
        await send_notes(await sim.dial("early"), "early", range(1, 3))
        await asyncio.Event().wait()

    async def late() -> None:
        await asyncio.sleep(0.2)
        await send_notes(await sim.dial("late"), "late", range(1, 3))
        await asyncio.Event().wait()

    sim.caller("early", early)
    sim.caller("late", late)
    sim.kernel.run_for(0.4)
    assert sim.texts() == ["late1", "late2"]
    sim.kernel.run_for(1.0)
    assert sim.texts() == ["late1", "late2", "early1", "early2"]
    remove()
    assert sim.channels.rules == []


def test_a_slow_way_takes_its_time_over_bytes(sim: Simulation) -> None:
    """Size counts, and the way between another pair is as fast as ever."""
    arrived: dict[str, float] = {}

    def talker(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def main() -> None:
            channel = await sim.dial(name, timeout_s=5.0)
            event = NoteAdded(name, "size", "x" * 10_000)
            await channel.send(Submit((Submission(Origin(f"client:{name}", 0, 1), event),)))
            await channel.receive()
            arrived[name] = sim.kernel.now_s() - began_s
            await channel.close()

        return main

    began_s = sim.kernel.now_s()
    sim.channels.slow("slow", 1, delay_s=0.1, bytes_per_s=10_000)
    sim.caller("slow", talker("slow"))
    sim.caller("fast", talker("fast"))
    sim.kernel.run_for(10.0)
    assert arrived["fast"] < 0.1
    assert 1.4 < arrived["slow"] < 2.0


def test_a_reader_that_reads_nothing_is_too_slow(sim: Simulation) -> None:
    """The window fills, the server waits for room, and then ends the conversation."""
    ends: list[Exception] = []
    heard: list[ToClient] = []

    async def main() -> None:
        channel = await sim.channels.dialer("h").dial(URL, Hello("host:h"), 1.0)
        await asyncio.sleep(SEND_TIMEOUT_S + 5)
        ends.append(await until_closed(channel, heard))

    sim.caller("h", main)
    sim.kernel.run_for(1.0)
    (session,) = sim.server.running.sessions.all()
    for number in range(1, 30):
        session.read_log(LogRead(number, "x" * 100_000, "stdout"))
    session.ready.set()
    sim.kernel.run_for(SEND_TIMEOUT_S + 10)
    assert len(sim.server.running.sessions) == 0
    assert [type(end) for end in ends] == [ChannelRefused]
    assert "nothing was read for 10 s" in str(ends[0])
    reads = [message.request for message in heard if isinstance(message, LogRead)]
    assert reads == list(range(1, len(reads) + 1))
    assert 0 < len(reads) < 29


def test_a_machine_without_power_is_missed_only_by_the_ping(sim: Simulation) -> None:
    """And its next life is not mixed up with the one before."""

    async def main() -> None:
        await until_closed(await sim.dial("h"), [])

    first = sim.caller("h", main)
    sim.kernel.run_for(1.0)
    sim.channels.unplug("h")
    first.kill()
    second = sim.caller("h", main)
    sim.kernel.run_for(1.0)
    assert len(sim.server.running.sessions) == 2
    sim.kernel.run_for(STILL_PINGED_S)
    assert len(sim.server.running.sessions) == 1
    assert second.alive


def test_a_real_agent_lives_on_it_and_keeps_its_lease(sim: Simulation) -> None:
    """It registers, beats, gets its plan, and comes back after a cut that cost it the server."""
    plans: list[int] = []
    deadlines: list[float] = []

    async def main() -> None:
        agent = Agent(
            [URL], host="h1", agent_id="a1", boot="b1", address="10.0.0.1",
            next_seq=iter(range(1, 100)).__next__, devices=2, cpu_millis=1_000, memory_mib=1_000,
            dialer=sim.channels.dialer("h1"), rng=sim.kernel.rng("agent/h1"),
        )  # fmt: skip
        async with agent:
            await agent.register()
            sim.kernel.call_later(5.0, sim.channels.cut, "h1", 1)
            sim.kernel.call_later(7.0, sim.channels.heal, "h1", 1)
            async for plan in agent.plans():
                plans.append(plan.incarnation)
                deadlines.append((agent.lease_deadline or 0.0) - sim.kernel.now_s())

    sim.caller("h1", main)
    sim.kernel.run_for(20.0)
    host = sim.server.running.state.hosts["h1"]
    assert (host.status, host.incarnation) == ("up", 1)
    assert plans[0] == 1
    assert min(deadlines) > 0


def story(seed: int) -> str:
    """A run with every fault in it; returns the digest of its trace."""
    sim = Simulation(seed)
    rng = sim.kernel.rng("story")
    channels = sim.channels

    def client(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def main() -> None:
            ring = ServerRing([URL])
            hello, stream = Hello(f"client:{name}"), sim.kernel.rng(name)
            writer = Writer(ring, channels.dialer(name), hello, stream)
            for number in range(60):
                await asyncio.sleep(stream.random())
                try:
                    decided = await writer.write(NoteAdded(name, "n", str(number)), 5.0)
                    sim.kernel.trace.note("decided", index=decided.index)
                except Exception as error:
                    sim.kernel.trace.note("failed", error=str(error))

        return main

    with sim.kernel:
        for name in ("a", "b", "c"):
            sim.caller(name, client(name))
        for _ in range(12):
            sim.kernel.run_for(2.0)
            name = rng.choice("abc")
            rng.choice((channels.cut, channels.cut_silently, channels.reset, channels.slow))(
                name, 1
            )
            sim.kernel.run_for(1.0)
            channels.heal_all()
        return sim.kernel.trace.digest


def test_a_seed_tells_one_story() -> None:
    """Twice the same, and another seed another one."""
    assert story(7) == story(7)
    assert story(7) != story(8)
