"""What `PySyncObjLog` promises beyond the contract: full disks, halts, starts, membership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from coord.raft.ports import Committed, Member, NotCommitted, Role, Unknown
from coord.raft.pysyncobj_log import PySyncObjLog
from coord.raft.rules import ALL_RULES, all_but
from coord.raft.timings import RaftTimings
from coord.store.ports import StorageCorrupt, StorageFull
from tests.raft.fakes import run_virtually
from tests.raft.simulated import SimCluster


def run(
    directory: Path,
    story: Callable[[SimCluster], Awaitable[None]],
    rules: frozenset[str] = ALL_RULES,
    timings: RaftTimings | None = None,
    seed: int = 7,
) -> None:
    """Three nodes run, one leads; afterwards everything that must hold does."""

    async def whole() -> None:
        cluster = SimCluster(3, str(directory / "disks"), seed=seed, rules=rules, timings=timings)
        try:
            await cluster.start_all()
            await cluster.wait("a leader", cluster.leader)
            await story(cluster)
        finally:
            await cluster.stop_all()
        cluster.check()

    run_virtually(whole())


def leader_of(cluster: SimCluster) -> PySyncObjLog:
    found = cluster.leader()
    assert found is not None
    return found


async def commit(cluster: SimCluster, count: int = 1) -> None:
    for _ in range(count):
        outcome = await cluster.propose(leader_of(cluster))
        assert isinstance(outcome, Committed), outcome


def test_a_leader_with_a_full_disk_falls_silent_and_another_leads(tmp_path: Path) -> None:
    """It refuses by name, is overtaken, and takes part again when there is room."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 3)
        old = leader_of(cluster)
        disk = cluster.nodes[old.node].environment
        disk.full = True
        outcome = await cluster.propose(old)
        assert isinstance(outcome, Unknown)
        assert "disk is full" in old.status().read_only
        assert await cluster.propose(old) == NotCommitted("read_only")
        await cluster.wait("another leads", lambda: cluster.leader() not in (None, old))
        await commit(cluster, 3)
        assert "disk is full" in old.status().read_only
        disk.full = False
        await cluster.caught_up()
        assert old.status().read_only == ""

    run(tmp_path, story)


def test_a_leader_that_cannot_write_steps_down(tmp_path: Path) -> None:
    """Rule G12, also when nobody else can be elected: both followers are away."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster)
        old = leader_of(cluster)
        others = [node for node in cluster.nodes if node != old.node]
        cluster.nodes[old.node].environment.full = True
        proposal = asyncio.create_task(cluster.propose(old, deadline_s=20.0))
        await asyncio.sleep(0.1)
        for node in others:
            cluster.hub.mute(node, old.node)
            cluster.hub.mute(old.node, node)
        await cluster.wait("it steps down", lambda: old.status().role is Role.FOLLOWER)
        assert isinstance(await proposal, Unknown)
        cluster.nodes[old.node].environment.full = False
        cluster.hub.heal()
        await cluster.caught_up()

    run(tmp_path, story)


def test_a_follower_with_a_full_disk_acknowledges_nothing(tmp_path: Path) -> None:
    """The other two go on, and it catches up."""

    async def story(cluster: SimCluster) -> None:
        follower = next(log for log in cluster.running if log is not leader_of(cluster))
        cluster.nodes[follower.node].environment.full = True
        commits = cluster.nodes[follower.node].environment.commits
        await commit(cluster, 10)
        await asyncio.sleep(0.5)
        assert follower.status().read_only
        assert cluster.nodes[follower.node].environment.commits == commits
        cluster.nodes[follower.node].environment.full = False
        await cluster.caught_up()

    run(tmp_path, story)


def test_one_fsync_a_commit(tmp_path: Path) -> None:
    """The leader syncs the entry once; what was applied goes with the next entry or the timer."""

    async def story(cluster: SimCluster) -> None:
        disk = cluster.nodes[leader_of(cluster).node].environment
        await commit(cluster, 5)
        before = disk.commits
        await commit(cluster, 50)
        assert disk.commits - before < 60

    run(tmp_path, story)


def test_proposals_of_one_pass_share_an_fsync(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        log = leader_of(cluster)
        disk = cluster.nodes[log.node].environment
        before = disk.commits
        outcomes = await asyncio.gather(*(cluster.propose(log) for _ in range(200)))
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
        assert disk.commits - before < 20

    run(tmp_path, story)


def test_a_start_replays_nothing_that_the_state_holds(tmp_path: Path) -> None:
    """Rule G13: and the library goes on from there, not from its beginning."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 20)
        await cluster.caught_up()
        node = leader_of(cluster).node
        await asyncio.sleep(0.1)
        await cluster.crash(node)
        await cluster.start(node)
        machine = cluster.nodes[node].machine
        log = cluster.nodes[node].log
        assert machine is not None
        assert log is not None
        assert len(machine.applied) == 20
        assert log.status().applied_index >= machine.applied_raft_index()
        await cluster.caught_up()

    run(tmp_path, story)


def test_a_state_from_beyond_the_log_is_refused(tmp_path: Path) -> None:
    """Someone mixed two directories."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 5)
        node = leader_of(cluster).node
        await cluster.crash(node)
        disk = cluster.nodes[node].environment
        for index in range(3, 40):
            disk.stage("raft_log", index.to_bytes(8, "big"), None)
        disk.commit()
        with pytest.raises(StorageCorrupt, match="they do not belong together"):
            await cluster.start(node)
        cluster.nodes[node].log = None
        await cluster.wait("another leads", cluster.leader)
        await commit(cluster)

    run(tmp_path, story)


def test_a_snapshot_that_does_not_load_halts_the_node(tmp_path: Path) -> None:
    """The library would log it and still acknowledge what is not there."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 2)
        away = next(node for node in cluster.nodes if node != leader_of(cluster).node)
        await cluster.crash(away)
        await commit(cluster, 60)
        await leader_of(cluster).snapshot()
        await cluster.start(away)
        machine = cluster.nodes[away].machine
        assert machine is not None

        def fails(_path: str, _index: int) -> None:
            raise OSError("unreadable")

        machine.install_snapshot = fails  # type: ignore[method-assign]
        await cluster.wait("it halts", lambda: cluster.halted)
        assert [str(error) for error in cluster.halted] == ["unreadable"]
        cluster.halted.clear()
        await commit(cluster)

    run(tmp_path, story)


def test_a_snapshot_that_does_not_fit_waits_for_room(tmp_path: Path) -> None:
    """Nothing of it is written, nothing of the old is lost, and it is installed when it fits."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 5)
        await cluster.caught_up()
        away = next(node for node in cluster.nodes if node != leader_of(cluster).node)
        await cluster.crash(away)
        await commit(cluster, 60)
        await leader_of(cluster).snapshot()
        await cluster.start(away)
        machine, disk = cluster.nodes[away].machine, cluster.nodes[away].environment
        log = cluster.nodes[away].log
        assert machine is not None
        assert log is not None
        install, before = machine.install_snapshot, list(machine.applied)

        def full(path: str, index: int) -> None:
            disk.full = True
            raise StorageFull("no room for the snapshot")

        machine.install_snapshot = full  # type: ignore[method-assign]
        await cluster.wait("it is read-only", lambda: log.status().read_only)
        assert machine.applied == before
        machine.install_snapshot = install  # type: ignore[method-assign]
        disk.full = False
        await cluster.caught_up()
        assert machine.installed
        await cluster.crash(away)
        await cluster.start(away)
        await cluster.caught_up()

    run(tmp_path, story)


def test_a_snapshot_keeps_a_tail_for_those_who_were_away_shortly(tmp_path: Path) -> None:
    """They get entries, not the whole file."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 60)
        await cluster.caught_up()
        away = next(node for node in cluster.nodes if node != leader_of(cluster).node)
        await cluster.crash(away)
        await commit(cluster, 5)
        await leader_of(cluster).snapshot()
        await cluster.start(away)
        await cluster.caught_up()
        machine = cluster.nodes[away].machine
        assert machine is not None
        assert machine.installed == []

    run(tmp_path, story)


def test_changes_of_members_come_one_at_a_time(tmp_path: Path) -> None:
    """Two at once could make two majorities; the second waits for the first."""

    async def story(cluster: SimCluster) -> None:
        log = leader_of(cluster)
        added = await asyncio.gather(
            *(log.add_member(Member(n, f"sim:{n}", f"api:{n}"), 2.0) for n in (4, 5))
        )
        first = next(outcome for outcome in added if isinstance(outcome, Committed))
        assert first
        entries = [e for e in log._journal.entries(1, 10**9) if e[0][:1] == b"\x02"]
        commits = [index for _, index, _ in entries]
        assert len(commits) == len([one for one in added if isinstance(one, Committed)])
        for node in (4, 5):
            cluster.add_node(node)
            await cluster.start(node, ())
        await cluster.caught_up()
        await commit(cluster, 3)
        await cluster.caught_up()

    run(tmp_path, story)


def test_members_are_refused_by_what_is_wrong(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        log = leader_of(cluster)
        follower = next(other for other in cluster.running if other is not log)
        assert await log.add_member(cluster.members[0], 1.0) == NotCommitted("already_member")
        assert await log.remove_member(9, 1.0) == NotCommitted("not_a_member")
        assert await log.remove_member(log.node, 1.0) == NotCommitted("leads")
        assert await follower.remove_member(log.node, 1.0) == NotCommitted("not_leader")

    run(tmp_path, story)


def test_a_newcomer_does_not_elect_itself(tmp_path: Path) -> None:
    """It knows no member, so that the library would take it for a majority of one."""

    async def story(cluster: SimCluster) -> None:
        cluster.add_node(4)
        await cluster.start(4, ())
        await asyncio.sleep(10.0)
        log = cluster.nodes[4].log
        assert log is not None
        assert (log.status().role, log.status().term) == (Role.FOLLOWER, 0)
        assert await log.propose(b"alone", 1.0) == NotCommitted("not_leader")
        outcome = await leader_of(cluster).add_member(Member(4, "sim:4", "api:4"), 2.0)
        assert isinstance(outcome, Committed)
        await cluster.caught_up()

    run(tmp_path, story)


def test_members_survive_restarts_and_snapshots(tmp_path: Path) -> None:
    """Also on a node that learned of them from a snapshot only."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 3)
        away = next(node for node in cluster.nodes if node != leader_of(cluster).node)
        await cluster.crash(away)
        newcomer = Member(4, "sim:4", "api:4")
        cluster.add_node(4)
        await cluster.start(4, ())
        assert isinstance(await leader_of(cluster).add_member(newcomer, 3.0), Committed)
        await commit(cluster, 60)
        await leader_of(cluster).snapshot()
        await cluster.start(away)
        await cluster.caught_up()
        machine = cluster.nodes[away].machine
        assert machine is not None
        assert machine.installed
        await cluster.crash(away)
        await cluster.start(away)
        log = cluster.nodes[away].log
        assert log is not None
        assert log.status().members == (*cluster.members, newcomer)
        await cluster.caught_up()

    run(tmp_path, story)


def test_a_deposed_leader_lets_in_whom_it_wanted_to_remove(tmp_path: Path) -> None:
    """Its change was never committed, and the one it would have removed leads by now."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 3)
        await cluster.caught_up()
        old = leader_of(cluster)
        first, second = (node for node in cluster.nodes if node != old.node)
        cluster.hub.partition((old.node,), (first, second))
        assert isinstance(await old.remove_member(first, 0.3), Unknown)
        assert first not in [member.node for member in old.status().members]
        await cluster.wait("another leads", lambda: cluster.leader() not in (None, old))
        if leader_of(cluster).node != first:
            assert await leader_of(cluster).transfer_leadership(first, 2.0)
            await cluster.wait("it leads", lambda: cluster.nodes[first].log is cluster.leader())
        await commit(cluster)
        term = leader_of(cluster).status().term
        for node in (first, second):
            cluster.hub.cut.pop((old.node, node))
            cluster.hub.cut.pop((node, old.node))
        cluster.hub.connect_soon(old.node, first)
        await cluster.caught_up()
        assert leader_of(cluster).status().term == term
        assert old.status().members == cluster.members

    run(tmp_path, story)


def test_a_lost_connection_to_the_leader_shortens_the_wait(tmp_path: Path) -> None:
    """Its process has died: nobody waits for a whole election timeout, but after a split vote."""
    waits_s: list[float] = []

    async def story(cluster: SimCluster) -> None:
        await commit(cluster)
        loop = asyncio.get_running_loop()
        old = leader_of(cluster).node
        await cluster.crash(old)
        before_s = loop.time()
        await cluster.wait("another leads", cluster.leader)
        waits_s.append(loop.time() - before_s)
        await cluster.start(old)
        await cluster.caught_up()

    for seed in range(7):
        run(tmp_path / str(seed), story, seed=seed)
    assert sorted(waits_s)[3] < 0.35


def test_a_process_that_stood_still_hears_before_it_stands(tmp_path: Path) -> None:
    """A pause is no reason for an election when the heartbeats lie in the socket."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster)
        term = leader_of(cluster).status().term
        for _ in range(5):
            # Longer than a follower waits, shorter than a leader needs to hear from a majority.
            asyncio.get_running_loop().jump(0.95)  # type: ignore[attr-defined]
            await asyncio.sleep(0.5)
        await commit(cluster)
        assert leader_of(cluster).status().term == term

    run(tmp_path, story, timings=RaftTimings(election_min_ms=600, election_max_ms=900))


def test_messages_of_a_superseded_connection_are_dropped(tmp_path: Path) -> None:
    """Rule G8: by epoch, in the log itself."""

    async def story(cluster: SimCluster) -> None:
        follower = next(log for log in cluster.running if log is not leader_of(cluster))
        leader = leader_of(cluster).node
        network = cluster.nodes[follower.node].network
        assert network is not None
        old = network.epochs[leader]
        cluster.hub.supersede(leader, follower.node)
        term = follower.status().term
        stale = {"type": "request_vote", "term": 99, "last_log_index": 99, "last_log_term": 99}
        follower.received(leader, old, stale)
        await asyncio.sleep(0.2)
        assert follower.status().term == term

    run(tmp_path, story)


def test_switched_off_a_superseded_connection_still_speaks(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        follower = next(log for log in cluster.running if log is not leader_of(cluster))
        leader = leader_of(cluster).node
        network = cluster.nodes[follower.node].network
        assert network is not None
        old = network.epochs[leader]
        cluster.hub.supersede(leader, follower.node)
        stale = {"type": "request_vote", "term": 99, "last_log_index": 99, "last_log_term": 99}
        follower.received(leader, old, stale)
        await cluster.wait("it believes", lambda: follower.status().term >= 99)

    run(tmp_path, story, all_but("G8"))


def test_a_snapshot_is_written_only_once_at_a_time(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 3)
        log = leader_of(cluster)
        first = asyncio.create_task(log.snapshot())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="being written already"):
            await log.snapshot()
        index = await first
        assert await log.snapshot() == index

    run(tmp_path, story)


def test_a_broken_disk_halts(tmp_path: Path) -> None:
    """Whatever is no full disk means that this process must not go on writing."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster, 3)
        old = leader_of(cluster)

        def broken() -> None:
            raise OSError(5, "input/output error")

        cluster.nodes[old.node].environment.commit = broken  # type: ignore[method-assign]
        assert isinstance(await cluster.propose(old), Unknown)
        assert [str(error) for error in cluster.halted] == ["[Errno 5] input/output error"]
        cluster.halted.clear()
        await cluster.wait("another leads", lambda: cluster.leader() not in (None, old))
        await commit(cluster)

    run(tmp_path, story)


def test_a_node_that_is_always_late_still_stands(tmp_path: Path) -> None:
    """It waits once for what it may not have read, and not for ever."""

    async def story(cluster: SimCluster) -> None:
        await commit(cluster)
        cluster.hub.mute(leader_of(cluster).node, 1)
        await cluster.crash(leader_of(cluster).node)
        for _ in range(60):
            asyncio.get_running_loop().jump(0.13)  # type: ignore[attr-defined]
            await asyncio.sleep(0.02)
        assert cluster.leader() is not None
        cluster.hub.heal()
        await cluster.start_all()
        await cluster.caught_up()

    run(tmp_path, story, timings=RaftTimings(orphan_max_ms=0))
