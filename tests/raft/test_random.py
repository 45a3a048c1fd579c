"""Random histories of three nodes, in virtual time: whatever happens, raft's promises hold."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from coord.raft.ports import Member
from coord.raft.rules import ALL_RULES, all_but
from tests.raft.fakes import run_virtually
from tests.raft.simulated import SimCluster, Violation


async def load(cluster: SimCluster, until_s: float) -> None:
    """One proposal after another at whoever leads, sometimes at two nodes that both think so."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        for log in cluster.running:
            if log.status().role == "leader":
                await cluster.propose(log, deadline_s=0.5)
        await asyncio.sleep(cluster.rng.uniform(0.0005, 0.02))


async def nemesis(cluster: SimCluster, rng: random.Random, until_s: float) -> None:
    """One misfortune after another, and at the end none."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        await asyncio.sleep(rng.uniform(0.05, 1.0))
        cluster.check_running()
        await misfortune(cluster, rng)
    cluster.hub.heal()
    for sim in cluster.nodes.values():
        sim.environment.full = False
    await cluster.start_all()


async def misfortune(cluster: SimCluster, rng: random.Random) -> None:
    nodes = sorted(cluster.nodes)
    rng.shuffle(nodes)
    one, other = nodes[:2]
    hub = cluster.hub
    happenings: list[Callable[[], Awaitable[None] | None]] = [
        *[lambda: crash_and_return(cluster, rng, one)] * 3,
        lambda: crash_all(cluster, nodes),
        lambda: hub.partition((one,), tuple(nodes[1:])),
        lambda: hub.mute(one, other),
        hub.heal,
        lambda: hub.break_connection(one, other),
        lambda: hub.supersede(one, other),
        lambda: hand_over(cluster),
        lambda: write_snapshots(cluster, rng),
        lambda: fill_disk(cluster, rng, one),
        lambda: change_members(cluster),
    ]
    happening = rng.choice(happenings)()
    if happening is not None:
        await happening


async def crash_and_return(cluster: SimCluster, rng: random.Random, node: int) -> None:
    await cluster.crash(node)
    await asyncio.sleep(rng.uniform(0.0, 1.5))
    await cluster.start(node)


async def crash_all(cluster: SimCluster, nodes: list[int]) -> None:
    for node in nodes:
        await cluster.crash(node)
    await cluster.start_all()


async def hand_over(cluster: SimCluster) -> None:
    leader = cluster.leader()
    if leader is not None:
        await leader.transfer_leadership(0, 0.5)


async def write_snapshots(cluster: SimCluster, rng: random.Random) -> None:
    for log in cluster.running:
        if log.status().applied_index > 10 and rng.random() < 0.7:
            await log.snapshot()


async def fill_disk(cluster: SimCluster, rng: random.Random, node: int) -> None:
    cluster.nodes[node].environment.full = True
    await asyncio.sleep(rng.uniform(0.01, 3.0))
    cluster.nodes[node].environment.full = False


async def change_members(cluster: SimCluster) -> None:
    """The last node comes and goes; in between it is as any other."""
    leader, last = cluster.leader(), len(cluster.members) + 1
    if leader is None:
        return
    member = Member(last, f"sim:{last}", f"api:{last}")
    if last not in cluster.nodes:
        cluster.add_node(last)
    if cluster.nodes[last].log is None:
        await cluster.start(last, ())
    if member in leader.status().members:
        await leader.remove_member(last, 1.0)
    else:
        await leader.add_member(member, 1.0)


async def history(
    directory: Path,
    seed: int,
    *,
    chaos: bool,
    rules: frozenset[str] = ALL_RULES,
    size: int = 3,
    run_s: float = 15.0,
) -> SimCluster:
    cluster = SimCluster(size, str(directory), seed, chaos=chaos, rules=rules)
    until_s = asyncio.get_running_loop().time() + run_s
    await cluster.start_all()
    loading = asyncio.create_task(load(cluster, until_s))
    try:
        await nemesis(cluster, random.Random(seed + 2), until_s)
        await loading
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
    cluster.hub.chaos = False
    await cluster.caught_up()
    leader = await cluster.wait("a leader", cluster.leader)
    await cluster.propose(leader)
    await cluster.caught_up()
    await cluster.stop_all()
    cluster.check()
    return cluster


@pytest.mark.parametrize("chaos", [False, True], ids=["orderly", "chaos"])
@pytest.mark.parametrize("seed", range(3))
def test_raft_keeps_its_promises(disks: Path, seed: int, chaos: bool) -> None:
    """One leader a term, acknowledged exactly once and durably, equal prefixes, all catch up."""
    cluster = run_virtually(history(disks, seed, chaos=chaos))
    assert len(cluster.acknowledged) > 50


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("chaos", [False, True], ids=["orderly", "chaos"])
@pytest.mark.parametrize("seed", range(100, 150))
def test_raft_keeps_its_promises_for_long(disks: Path, seed: int, chaos: bool, size: int) -> None:
    """The same over more seeds and with five nodes."""
    run_virtually(history(disks, seed, chaos=chaos, size=size, run_s=60.0))


@pytest.mark.parametrize("off", ["G1", "G2", "G5.log", "G5.own"])
def test_without_a_rule_something_breaks(disks: Path, off: str) -> None:
    """And these checks see it: within a few seeds, in chaos."""
    for seed in range(8):
        try:
            run_virtually(history(disks / str(seed), seed, chaos=True, rules=all_but(off)))
        except Violation:
            return
    pytest.fail(f"eight histories without {off}, and nothing broke")


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory if there is one: the simulated disk decides what is lost, so that real
    fsyncs would only take time."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path / "disks"
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="coord-raft-") as directory:
        yield Path(directory) / "disks"
