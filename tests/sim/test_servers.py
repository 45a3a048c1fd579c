"""Whole servers in virtual time: they elect, replicate, survive, and are watched."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from coord_sim.kernel import Kernel
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.raft_checks import DURABLE, HALTED, MAJORITY
from coord_sim.world.raft_run import draw, raft_run
from coord_sim.world.server_faults import FAULTS, heal_all
from coord_sim.world.servers import SimServers, member_of
from coord_sim.world.violation import Violation

from coord.model.channel import Result
from coord.model.entry import Origin, Submission
from coord.model.events import NoteAdded
from coord.raft.ports import NotCommitted, Unknown

ROOT = Path(__file__).resolve().parents[2]
Story = Callable[[SimServers], Coroutine[Any, Any, None]]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[SimServers]:
    with quiet_logs(), Kernel(11) as kernel:
        yield SimServers(kernel, directory=str(tmp_path))


def play(servers: SimServers, story: Story) -> None:
    """Start everything, run the story to its end, and look at what was seen."""

    async def main() -> None:
        await servers.start_all()
        await story(servers)

    servers.kernel.run_until(main())
    servers.check()


class Writer:
    """Notes of one client, numbered."""

    def __init__(self, servers: SimServers) -> None:
        self.servers = servers
        self.sequence = 0

    async def write(self, n: int = 0) -> Result | None:
        """By the leader, or by server `n`."""
        self.sequence += 1
        origin = Origin("client:w", 1, self.sequence, 0)
        note = Submission(origin, NoteAdded(origin.actor, "s", "t"))
        leader = self.servers.leader()
        number = n or (leader.config.node if leader is not None else 1)
        return await self.servers.ask(number, lambda node: node.submit(note, 5.0), 8.0)

    async def write_some(self, count: int) -> None:
        """Until so many are committed; others are written again, as new notes."""
        for _ in range(count):
            taken = False
            while not taken:
                result = await self.write()
                taken = result is not None and result.outcome == "committed"
                await asyncio.sleep(0.0 if taken else 0.2)


def test_a_cluster_elects_and_takes_writes_everywhere(servers: SimServers) -> None:
    """At the leader and at followers, with one digest in the end."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        for n in servers.numbers():
            result = await writer.write(n)
            assert result is not None
            assert result.outcome == "committed"
        await servers.caught_up()

    play(servers, story)
    assert servers.counts["entries"] >= 9


def test_a_crashed_leader_comes_back_with_what_it_acknowledged(servers: SimServers) -> None:
    """The others went on without it."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        await writer.write_some(5)
        leader = servers.leader()
        assert leader is not None
        servers.crash(leader.config.node)
        await servers.wait("another leads", lambda: servers.leader() is not None)
        await writer.write_some(5)
        servers.start(leader.config.node)
        await servers.caught_up()

    play(servers, story)
    assert len(servers.checks.leaders) > 1


def test_everybody_may_lose_power_at_once(servers: SimServers) -> None:
    """What was acknowledged is found again on the disks."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        await writer.write_some(10)
        for n in servers.numbers():
            servers.crash(n)
        assert servers.leader() is None
        await servers.start_all()
        await writer.write_some(1)
        await servers.caught_up()

    play(servers, story)


def test_a_follower_that_was_away_installs_a_snapshot(servers: SimServers) -> None:
    """Once the others have shortened their logs."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        follower = next(n for n in servers.numbers() if servers.node(n) is not servers.leader())
        servers.crash(follower)
        await servers.wait("a leader", lambda: servers.leader() is not None)
        await writer.write_some(120)
        servers.start(follower)
        await servers.caught_up()

    play(servers, story)
    assert servers.counts["installs"] >= 1


def test_members_come_and_go(servers: SimServers) -> None:
    """A newcomer catches up and may lead; the leader itself can be taken out."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        await writer.write_some(3)
        assert await servers.add() == 4
        await servers.caught_up()
        assert await servers.transfer(4)
        await servers.wait("it leads", lambda: servers.leader() is servers.node(4))
        assert await servers.remove(4)
        assert servers.numbers() == [1, 2, 3]
        await servers.wait("another leads", lambda: servers.leader() is not None)
        await writer.write_some(3)
        await servers.caught_up()

    play(servers, story)


def test_a_failed_fsync_stops_a_server_and_it_starts_again(servers: SimServers) -> None:
    """That is no violation: it must not go on, and may come back."""

    async def story(servers: SimServers) -> None:
        leader = servers.leader()
        assert leader is not None
        n = leader.config.node
        starts = servers.all[n].starts
        servers.disk(n).faults.fails_next = True
        await servers.wait("it is back", lambda: servers.all[n].starts > starts)
        await servers.caught_up()

    play(servers, story)


def test_a_server_refuses_damaged_data_and_is_replaced(servers: SimServers) -> None:
    """Its successor has another number and fetches everything."""

    async def story(servers: SimServers) -> None:
        await Writer(servers).write_some(20)
        servers.crash(2)
        assert servers.disk(2).flip_bit(("raft_log",))
        servers.start(2)
        await servers.wait("it refuses", lambda: bool(servers.all[2].refused))
        assert await servers.replace(2) == 4
        await servers.caught_up()

    play(servers, story)
    assert servers.numbers() == [1, 3, 4]


def test_a_full_disk_makes_read_only_and_heals(servers: SimServers) -> None:
    """Nobody halts, and a write is refused rather than lost."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        for n in servers.numbers():
            servers.disk(n).faults.full = True
        results = [await writer.write() for _ in range(2)]
        assert [one and one.outcome for one in results] != ["committed"] * 2
        await heal_all(servers)
        await servers.wait("somebody leads", lambda: servers.leader() is not None)
        await servers.caught_up()
        await writer.write_some(1)

    play(servers, story)


def test_a_snapshot_that_does_not_fit_is_written_later(servers: SimServers) -> None:
    """The disk became full while it was being written; the node goes on."""

    async def story(servers: SimServers) -> None:
        await Writer(servers).write_some(10)
        servers.worker_s = (1.0, 1.0)
        writing = asyncio.gather(servers.snapshot(1))
        await asyncio.sleep(0.5)
        servers.disk(1).faults.full = True
        assert await writing == [0]
        left = os.listdir(os.path.join(servers.disk(1).directory, "snapshots"))
        assert left == []
        servers.disk(1).faults.full = False
        await servers.caught_up()
        assert await servers.snapshot(1) > 1

    play(servers, story)


def test_a_paused_leader_is_replaced_and_steps_down(servers: SimServers) -> None:
    """It wakes up in a term of another."""

    async def story(servers: SimServers) -> None:
        leader = servers.leader()
        assert leader is not None
        n = leader.config.node
        servers.pause(n)
        await servers.wait(
            "another leads", lambda: servers.leader() not in (None, servers.node(n)), 30
        )
        servers.resume(n)
        await servers.caught_up()

    play(servers, story)


def test_a_second_change_waits_for_the_first_without_spinning(servers: SimServers) -> None:
    """Also when both are asked for in one turn. Two at once could have disjoint majorities; and
    while the first cannot be committed, time goes on (a random history stood still here)."""

    async def story(servers: SimServers) -> None:
        leader = servers.leader()
        assert leader is not None
        n = leader.config.node
        servers.peers.isolate(n)
        before = servers.kernel.loop.handled
        changes = [
            servers.ask(n, lambda node, m=m: node.log.add_member(member_of(m), 1.0), 2.0)
            for m in (8, 9)
        ]
        outcomes = await asyncio.gather(*changes)
        assert [type(outcome) for outcome in outcomes] == [Unknown, NotCommitted]
        assert servers.kernel.loop.handled - before < 2_000
        servers.peers.heal()

    play(servers, story)


class TestChecks:
    def test_a_halt_without_a_fault_is_a_violation(self, servers: SimServers) -> None:
        """And ends the run at once."""

        async def story(servers: SimServers) -> None:
            node = servers.node(1)
            assert node is not None
            node.halt(ValueError("a bug"))
            await servers.wait("for ever", lambda: False, 1_000)

        with pytest.raises(Violation, match="a bug"):
            play(servers, story)
        assert servers.broken is not None
        assert servers.broken.property == HALTED

    def test_lying_disks_are_found_out(self, servers: SimServers) -> None:
        """A majority that only remembers has nothing durable."""

        async def story(servers: SimServers) -> None:
            for n in servers.numbers():
                servers.disk(n).faults.lies = True
            await Writer(servers).write()

        with pytest.raises(Violation) as raised:
            play(servers, story)
        assert raised.value.property in (MAJORITY, DURABLE)

    def test_a_refused_proposal_that_is_applied_is_a_violation(self, servers: SimServers) -> None:
        """As is one that is told of twice, or changed: the checks look at each other's books."""
        broken: list[str] = []
        checks = servers.checks
        checks._broken = lambda violation: broken.append(violation.property)
        process = servers.kernel.spawn("p", lambda: asyncio.sleep(1_000))
        asked = checks.proposed(1, process, b"x", 1.0)
        checks.answered(asked, NotCommitted("busy"), 3.0)
        checks.apply(1, 5, 1, b"x")
        checks.apply(2, 5, 2, b"x")
        checks.apply(2, 4, 1, b"y")
        checks.digest(1, 1, "a")
        checks.digest(2, 1, "b")
        assert broken == [
            "every proposal is answered within its deadline",
            "what was refused is never applied",
            "what was applied at an index never changes, on any node",
            "a node applies each index once, in order",
            "nodes have the same digest at the same index",
        ]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_cluster_survives_each_fault_alone(servers: SimServers, name: str) -> None:
    """Three times over, with writes before, between and after."""

    async def story(servers: SimServers) -> None:
        writer = Writer(servers)
        rng = servers.kernel.rng("test")
        await writer.write_some(3)
        for _ in range(3):
            await FAULTS[name].inject(servers, rng)
            await writer.write()
        await servers.wait("a moment", lambda: rng.random() < 0.05)
        await heal_all(servers)
        await servers.caught_up()
        await writer.write_some(1)

    assert FAULTS[name].told
    play(servers, story)


@pytest.mark.parametrize("seed", range(6))
def test_raft_keeps_its_promises_in_a_random_history(seed: int) -> None:
    """Under a swarm of faults, in order or in chaos."""
    outcome = raft_run(seed, seconds=25)
    assert (outcome.broken, outcome.detail) == ("", "")
    assert outcome.acknowledged > 5


def test_a_seed_gives_one_digest_twice_and_under_three_hash_seeds() -> None:
    """A whole history of servers: here again, in other processes, whatever order sets have."""
    seed = next(seed for seed in range(100) if len(draw(seed).weights) > 15)
    here = raft_run(seed, seconds=12).digest
    assert here == raft_run(seed, seconds=12).digest
    code = (
        f"from coord_sim.world.raft_run import raft_run;print(raft_run({seed}, seconds=12).digest)"
    )
    for hash_seed in ("0", "1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == here
