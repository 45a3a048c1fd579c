"""What every `ReplicatedLog` promises, held against each implementation, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from coord.raft.ports import Committed, Member, NotCommitted, ReplicatedLog, Role, Unknown
from tests.raft.clusters import (
    Cluster,
    MemoryCluster,
    RaftCluster,
    SingleCluster,
    leader,
    start_all,
    stop_all,
    wait,
)
from tests.raft.fakes import run_virtually

CLUSTERS = [MemoryCluster, RaftCluster]
ALL = [*CLUSTERS, SingleCluster]
Kind = Callable[[str], Cluster]
every = pytest.mark.parametrize("kind", ALL)
clustered = pytest.mark.parametrize("kind", CLUSTERS)


def run(kind: Kind, directory: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = kind(str(directory))
        try:
            await story(cluster)
        finally:
            await stop_all(cluster)

    run_virtually(whole())


async def committed(log: ReplicatedLog, payload: bytes) -> int:
    outcome = await log.propose(payload, 2.0)
    assert isinstance(outcome, Committed), outcome
    return outcome.raft_index


@every
def test_a_committed_payload_is_applied_everywhere(kind: Kind, tmp_path: Path) -> None:
    """Here before the answer, on the others soon, with the same index and term."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        index = await committed(log, b"first")
        machine = cluster.machines[log.status().node]
        assert [(index, log.status().term, b"first")] == machine.applied
        for other in cluster.machines.values():
            await wait(lambda other=other: other.applied == machine.applied)

    run(kind, tmp_path, story)


@every
def test_payloads_are_applied_in_the_order_proposed(kind: Kind, tmp_path: Path) -> None:
    """Also when many are outstanding; indexes grow."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        payloads = [b"%d" % number for number in range(50)]
        indexes = await asyncio.gather(*(committed(log, payload) for payload in payloads))
        assert sorted(indexes) == list(indexes)
        assert len(set(indexes)) == 50
        assert cluster.machines[log.status().node].payloads() == payloads

    run(kind, tmp_path, story)


@every
def test_any_bytes_are_carried(kind: Kind, tmp_path: Path) -> None:
    """None at all (a barrier), every byte there is, and the largest payload."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        payloads = [b"", bytes(range(256)), b"\xff" * (4 * 1024 * 1024)]
        for payload in payloads:
            await committed(log, payload)
        for machine in cluster.machines.values():
            await wait(lambda machine=machine: machine.payloads() == payloads)

    run(kind, tmp_path, story)


@every
def test_a_payload_too_large_is_refused(kind: Kind, tmp_path: Path) -> None:
    """One byte beyond 4 MiB certainly does nothing, and the log goes on."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        outcome = await log.propose(b"x" * (4 * 1024 * 1024 + 1), 2.0)
        assert outcome == NotCommitted("too_large")
        await committed(log, b"after")
        assert cluster.machines[log.status().node].payloads() == [b"after"]

    run(kind, tmp_path, story)


@every
def test_a_restart_applies_only_what_the_state_lacks(kind: Kind, tmp_path: Path) -> None:
    """Each payload is applied once over the life of the data directory."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        for number in range(5):
            await committed(log, b"%d" % number)
        for node in list(cluster.logs):
            await cluster.stop(node)
        log = await start_all(cluster)
        await committed(log, b"5")
        expected = [b"%d" % number for number in range(6)]
        for machine in cluster.machines.values():
            await wait(lambda machine=machine: machine.payloads() == expected)

    run(kind, tmp_path, story)


@every
def test_a_stopped_log_refuses(kind: Kind, tmp_path: Path) -> None:
    """Definitely; and stopping twice is stopping."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        await log.stop()
        await log.stop()
        assert await log.propose(b"late", 1.0) == NotCommitted("stopped")
        assert log.status().role is Role.FOLLOWER

    run(kind, tmp_path, story)


@every
def test_a_raising_apply_halts_the_node_once(kind: Kind, tmp_path: Path) -> None:
    """Nobody knows what became of the payload; afterwards everything is refused."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        halts: list[BaseException] = []
        log.on_halt(halts.append)
        cluster.machines[log.status().node].fails_at = b"bad"
        outcome = await log.propose(b"bad", 1.0)
        assert isinstance(outcome, Unknown)
        assert [str(error) for error in halts] == ["cannot apply b'bad'"]
        assert await log.propose(b"more", 1.0) == NotCommitted("stopped")

    run(kind, tmp_path, story)


@every
def test_on_change_tells_who_leads(kind: Kind, tmp_path: Path) -> None:
    """The last word of each node is its status."""

    async def story(cluster: Cluster) -> None:
        told: list[tuple[Role, int]] = []
        await cluster.start(1)
        cluster.logs[1].on_change(lambda status: told.append((status.role, status.leader)))
        for node in range(2, cluster.size + 1):
            await cluster.start(node)
        await leader(cluster)
        await wait(lambda: cluster.logs[1].status().leader)
        status = cluster.logs[1].status()
        assert status.members == tuple(sorted(status.members))
        assert len(status.members) == cluster.size
        assert cluster.size == 1 or told[-1] == (status.role, status.leader)

    run(kind, tmp_path, story)


@every
def test_a_snapshot_shortens_the_log(kind: Kind, tmp_path: Path) -> None:
    """It holds everything applied; a node that starts from it goes on."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        for number in range(60):
            last = await committed(log, b"%d" % number)
        assert await log.snapshot() == last
        assert log.status().first_index > 2
        node = log.status().node
        await cluster.stop(node)
        await cluster.start(node)
        again = await leader(cluster)
        await committed(again, b"after")
        expected = [*(b"%d" % number for number in range(60)), b"after"]
        await wait(lambda: cluster.machines[node].payloads() == expected)

    run(kind, tmp_path, story)


@clustered
def test_a_follower_refuses(kind: Kind, tmp_path: Path) -> None:
    """Definitely: the layer above forwards, the log does not."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        follower = next(other for other in cluster.logs.values() if other is not log)
        assert await follower.propose(b"here", 1.0) == NotCommitted("not_leader")
        await committed(log, b"there")
        await wait(lambda: cluster.machines[follower.status().node].payloads() == [b"there"])

    run(kind, tmp_path, story)


@clustered
def test_the_majority_goes_on_without_its_leader(kind: Kind, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, and the old leader catches up."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        await committed(log, b"before")
        old = log.status().node
        cluster.isolate(old)
        new = await leader(cluster, but=old)
        await committed(new, b"meanwhile")
        cluster.heal()
        await wait(lambda: cluster.machines[old].payloads() == [b"before", b"meanwhile"])

    run(kind, tmp_path, story)


@clustered
def test_a_leader_alone_answers_within_the_deadline(kind: Kind, tmp_path: Path) -> None:
    """It cannot commit, and says so."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        cluster.isolate(log.status().node)
        started_s = asyncio.get_running_loop().time()
        outcome = await log.propose(b"nobody hears", 0.5)
        assert asyncio.get_running_loop().time() - started_s <= 0.501
        assert isinstance(outcome, Unknown | NotCommitted)

    run(kind, tmp_path, story)


@clustered
def test_leadership_is_handed_over(kind: Kind, tmp_path: Path) -> None:
    """To the one named, under load; a follower cannot hand over what it has not."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        await committed(log, b"before")
        target = next(node for node in cluster.logs if node != log.status().node)
        assert not await cluster.logs[target].transfer_leadership(0, 1.0)
        assert await log.transfer_leadership(target, 3.0)
        new = await leader(cluster, but=log.status().node)
        assert new.status().node == target
        await committed(new, b"after")

    run(kind, tmp_path, story)


@clustered
def test_a_node_that_was_away_too_long_gets_a_snapshot(kind: Kind, tmp_path: Path) -> None:
    """What it lacks is no longer in the log."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        await committed(log, b"0")
        away = next(node for node in cluster.logs if node != log.status().node)
        await cluster.stop(away)
        for number in range(1, 80):
            await committed(log, b"%d" % number)
        await log.snapshot()
        await cluster.start(away)
        expected = [b"%d" % number for number in range(80)]
        await wait(lambda: cluster.machines[away].payloads() == expected)
        assert cluster.machines[away].installed

    run(kind, tmp_path, story)


@clustered
def test_a_member_is_added_and_removed(kind: Kind, tmp_path: Path) -> None:
    """The newcomer knows nobody and is caught up; the one removed is let go."""

    async def story(cluster: Cluster) -> None:
        log = await start_all(cluster)
        await committed(log, b"before")
        await cluster.start(4)
        newcomer = Member(4, "sim:4", "api:4")
        outcome = await log.add_member(newcomer, 3.0)
        assert isinstance(outcome, Committed), outcome
        await committed(log, b"after")
        await wait(lambda: cluster.machines[4].payloads() == [b"before", b"after"])
        await wait(lambda: newcomer in cluster.logs[4].status().members)
        gone = next(node for node in (1, 2, 3) if node != log.status().node)
        outcome = await log.remove_member(gone, 3.0)
        assert isinstance(outcome, Committed), outcome
        assert gone not in [member.node for member in log.status().members]
        assert newcomer in log.status().members
        await committed(log, b"last")
        await wait(lambda: cluster.machines[4].payloads()[-1] == b"last")

    run(kind, tmp_path, story)


@clustered
def test_messages_go_beside_the_log(kind: Kind, tmp_path: Path) -> None:
    """In order, to one handler a topic; False where nobody is reached."""

    async def story(cluster: Cluster) -> None:
        await start_all(cluster)
        heard: list[tuple[int, bytes]] = []
        cluster.bus(2).subscribe(
            "greeting", lambda sender, payload: heard.append((sender, payload))
        )
        with pytest.raises(ValueError, match="greeting"):
            cluster.bus(2).subscribe("greeting", lambda sender, payload: None)
        assert cluster.bus(1).send(2, "greeting", b"one")
        assert cluster.bus(1).send(2, "unheard", b"")
        assert cluster.bus(1).send(2, "greeting", b"two\x00")
        await wait(lambda: heard == [(1, b"one"), (1, b"two\x00")])
        cluster.isolate(2)
        assert not cluster.bus(1).send(2, "greeting", b"three")

    run(kind, tmp_path, story)
