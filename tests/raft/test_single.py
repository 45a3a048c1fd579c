"""What `SingleNodeLog` promises beyond the contract: bad disks, growing into a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from coord.raft.ports import Committed, Member, NotCommitted, Role, Unknown
from coord.raft.single import SingleNodeLog
from tests.raft.clusters import wait
from tests.raft.fakes import FakeEnvironment, ListMachine, run_virtually
from tests.raft.simulated import SimCluster

MEMBER = Member(1, "sim:1", "api:1")
Story = Callable[[SingleNodeLog, FakeEnvironment, ListMachine], Awaitable[None]]


def run(directory: Path, story: Story) -> None:
    async def whole() -> None:
        disk = FakeEnvironment(str(directory))
        machine = ListMachine(disk)
        log = SingleNodeLog(MEMBER, disk)
        await log.start(machine)
        try:
            await story(log, disk, machine)
        finally:
            await log.stop()

    run_virtually(whole())


def test_a_full_disk_refuses_definitely_and_heals(tmp_path: Path) -> None:
    """What was refused is never there, also after a crash."""

    async def story(log: SingleNodeLog, disk: FakeEnvironment, machine: ListMachine) -> None:
        assert isinstance(await log.propose(b"before", 1.0), Committed)
        disk.full = True
        assert await log.propose(b"refused", 1.0) == NotCommitted("read_only")
        assert "disk is full" in log.status().read_only
        assert await log.propose(b"at once", 1.0) == NotCommitted("read_only")
        disk.full = False
        await wait(lambda: not log.status().read_only)
        assert isinstance(await log.propose(b"after", 1.0), Committed)
        assert machine.payloads() == [b"before", b"after"]
        disk.crash()
        assert ListMachine(disk).payloads()[:1] == [b"before"]

    run(tmp_path, story)


def test_a_broken_disk_halts(tmp_path: Path) -> None:
    """Nobody knows what became of the proposal."""

    async def story(log: SingleNodeLog, disk: FakeEnvironment, machine: ListMachine) -> None:
        halts: list[BaseException] = []
        log.on_halt(halts.append)

        def broken() -> None:
            raise OSError(5, "input/output error")

        disk.commit = broken  # type: ignore[method-assign]
        assert await log.propose(b"x", 1.0) == Unknown("halted")
        assert [str(error) for error in halts] == ["[Errno 5] input/output error"]
        assert log.status().role is Role.FOLLOWER

    run(tmp_path, story)


def test_what_is_acknowledged_survives_a_crash(tmp_path: Path) -> None:
    """The answer comes after the fsync, one for all of a pass."""

    async def story(log: SingleNodeLog, disk: FakeEnvironment, machine: ListMachine) -> None:
        before = disk.commits
        outcomes = await asyncio.gather(*(log.propose(b"%d" % n, 1.0) for n in range(100)))
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        assert disk.commits == before + 1
        disk.crash()
        again = SingleNodeLog(MEMBER, disk)
        replayed = ListMachine(disk)
        await again.start(replayed)
        assert replayed.payloads() == [b"%d" % n for n in range(100)]
        await again.stop()

    run(tmp_path, story)


def test_nothing_can_be_done_about_members(tmp_path: Path) -> None:
    async def story(log: SingleNodeLog, disk: FakeEnvironment, machine: ListMachine) -> None:
        assert await log.add_member(MEMBER, 1.0) == NotCommitted("single_node")
        assert await log.remove_member(1, 1.0) == NotCommitted("single_node")
        assert not await log.transfer_leadership(0, 1.0)

    run(tmp_path, story)


def test_a_single_server_grows_into_a_cluster(tmp_path: Path) -> None:
    """Its log becomes the first member's, and a newcomer gets all of it."""

    async def whole() -> None:
        cluster = SimCluster(1, str(tmp_path / "disks"), seed=3)
        disk = cluster.nodes[1].environment
        log = SingleNodeLog(MEMBER, disk)
        await log.start(ListMachine(disk))
        for number in range(5):
            await log.propose(b"%d" % number, 1.0)
        await log.stop()
        await cluster.start_all()
        leader = await cluster.wait("a leader", cluster.leader)
        cluster.add_node(2)
        await cluster.start(2, ())
        added = await leader.add_member(Member(2, "sim:2", "api:2"), 2.0)
        assert isinstance(added, Committed)
        await cluster.caught_up()
        machine = cluster.nodes[2].machine
        assert machine is not None
        assert machine.payloads() == [b"%d" % number for number in range(5)]
        await cluster.stop_all()

    run_virtually(whole())
