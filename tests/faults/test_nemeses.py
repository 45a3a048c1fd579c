"""Nemeses draw from their seed, and take back whatever they did."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jepsen_lite.history.journal import HistoryWriter, read_history
from jepsen_lite.nemeses.catalogue import NEMESES, NONE, chosen
from jepsen_lite.nemeses.conductor import Conductor
from jepsen_lite.nemeses.port import NEEDS, Misfortune, Nemesis, nothing

LASTING = {"damage"}
"""What it does stays done."""


class FakeDisk:
    def __init__(self) -> None:
        self.state: dict[str, Any] = {"full": False, "slow_ms": 0}
        self.crashes = 0

    def fill(self) -> None:
        self.state["full"] = True

    def free(self) -> None:
        self.state["full"] = False

    def slow_fsync(self, ms: int) -> None:
        self.state["slow_ms"] = ms

    def crash(self, rng: random.Random) -> str:
        self.crashes += 1
        return f"crash {rng.random()}"

    def damage(self, rng: random.Random) -> str:
        return f"flipped {rng.random()}"


class FakeClock:
    offset_ms = 0

    def jump(self, by_ms: int) -> None:
        self.offset_ms += by_ms

    def heal(self) -> None:
        self.offset_ms = 0


class FakeMember:
    """A server or a host, as far as nemeses look at it."""

    def __init__(self, name: str) -> None:
        self.name, self.running, self.paused, self.damaged = name, True, False, ""
        self.node = int(name[1:])
        self.disk, self.clock = FakeDisk(), FakeClock()
        self.dead_ranks: list[int] = []
        self.data = Path("unused")

    def start(self) -> None:
        self.running = True

    def kill(self) -> None:
        self.running = False

    kill_all = kill

    def pause(self) -> None:
        self.paused = True

    pause_all = pause

    def resume(self) -> None:
        self.paused = False

    def ranks(self) -> list[int]:
        return [7, 9]

    def kill_rank(self, pid: int) -> bool:
        self.dead_ranks.append(pid)
        return True


class FakeNetwork:
    def __init__(self) -> None:
        self.touched: dict[tuple[str, str], list[Any]] = {}
        self.resets = 0

    def cut(self, source: str, target: str, *how: Any) -> None:
        assert source != target
        self.touched.setdefault((source, target), []).append(how)

    delay = throttle = lossy = cut

    def reset(self, source: str, target: str) -> None:
        assert source != target
        self.resets += 1

    def mend(self, source: str, target: str) -> None:
        self.touched.pop((source, target), None)


class FakeCluster:
    def __init__(self, servers: int = 3, hosts: int = 3) -> None:
        self.servers = {f"s{n}": FakeMember(f"s{n}") for n in range(1, servers + 1)}
        self.hosts = {f"h{n}": FakeMember(f"h{n}") for n in range(1, hosts + 1)}
        self.network = FakeNetwork()

    async def leader(self, timeout_s: float) -> str | None:
        return "s2" if self.servers["s2"].running else None

    async def views(self) -> dict[str, Any]:
        return {name: SimpleNamespace(applied_index=1) for name in self.servers}

    def whole(self) -> list[str]:
        """What is not as it was."""
        wrong = [f"{ways}" for ways in self.network.touched]
        for member in [*self.servers.values(), *self.hosts.values()]:
            wrong += [f"{member.name} is down"] * (not member.running)
            wrong += [f"{member.name} stands still"] * member.paused
            wrong += [f"{member.name}: {member.disk.state}"] * any(member.disk.state.values())
            wrong += [f"the clock of {member.name}"] * bool(member.clock.offset_ms)
        return wrong


ALONE = sorted(set(NEMESES) - {"members", "transfer"})
"""Those that ask no client."""


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("servers", [3, 5])
async def test_a_misfortune_strikes_and_is_taken_back(name: str, servers: int) -> None:
    for seed in range(12):
        cluster: Any = FakeCluster(servers)
        misfortune = await NEMESES[name].draw(cluster, random.Random(seed))
        assert misfortune is not None
        assert cluster.whole() == []
        before = {member.name: member.disk.crashes for member in cluster.servers.values()}
        await misfortune.begin()
        struck = (
            cluster.whole()
            or cluster.network.resets
            or any(host.dead_ranks for host in cluster.hosts.values())
        )
        assert struck, misfortune.what
        known = {*cluster.servers, *cluster.hosts, "clients"}
        assert set(misfortune.targets) <= known
        assert 0 <= misfortune.lasts_s < 15
        await misfortune.end()
        assert cluster.whole() == []
        if name == "power-cut":
            assert {one.name: one.disk.crashes for one in cluster.servers.values()} != before
        damaged = [one.name for one in cluster.servers.values() if one.damaged]
        assert bool(damaged) == (name in LASTING)


@pytest.mark.parametrize("name", ALONE)
async def test_the_same_seed_draws_the_same(name: str) -> None:
    async def told(seed: int) -> list[str]:
        cluster: Any = FakeCluster()
        rng = random.Random(seed)
        drawn = [await NEMESES[name].draw(cluster, rng) for _ in range(6)]
        return [one.what + str(one.lasts_s) for one in drawn if one is not None]

    assert await told(3) == await told(3)
    assert len(await told(3)) == 6


async def test_only_one_server_of_a_run_is_damaged() -> None:
    """More than a minority without its data is beyond what consensus promises."""
    cluster: Any = FakeCluster()
    first = await NEMESES["damage"].draw(cluster, random.Random(1))
    assert first is not None
    await first.begin()
    await first.end()
    assert await NEMESES["damage"].draw(cluster, random.Random(2)) is None


async def test_nobody_is_left_to_befall() -> None:
    cluster: Any = FakeCluster()
    for member in [*cluster.servers.values(), *cluster.hosts.values()]:
        member.kill()
    for name in ("kill-leader", "kill-follower", "kill-all", "kill-agent", "pause-short", "clock"):
        assert await NEMESES[name].draw(cluster, random.Random(1)) is None


@pytest.mark.parametrize("nemesis", NEMESES.values(), ids=list(NEMESES))
def test_each_says_what_it_does_and_needs(nemesis: Nemesis) -> None:
    assert nemesis.line.endswith(".")
    assert nemesis.needs <= set(NEEDS)
    assert nemesis.gap_s > 0


def test_an_unknown_nemesis_is_refused_with_those_that_there_are() -> None:
    assert chosen(NONE) == ()
    assert [one.name for one in chosen("slow+kill-leader+slow")] == ["slow", "kill-leader"]
    with pytest.raises(ValueError, match=r"no nemesis 'kil'; there are none, kill-leader"):
        chosen("kil")


@pytest.mark.parametrize("hangs", ["begin", "end"])
async def test_what_hangs_holds_up_nobody_elses_end(tmp_path: Path, hangs: str) -> None:
    """Each misfortune is ended by its time, whatever another one is at."""
    history = HistoryWriter(tmp_path / "history.jsonl", {"seed": 1})
    stopping, began, hanging, ended = (asyncio.Event() for _ in range(4))

    async def hang() -> None:
        hanging.set()
        await ended.wait()

    async def draw_hanging(of: Any, rng: random.Random) -> Misfortune:
        await began.wait()
        acts = {"begin": nothing, "end": nothing, hangs: hang}
        return Misfortune("hangs", ("s1",), 0.0, acts["begin"], acts["end"])

    async def draw_other(of: Any, rng: random.Random) -> Misfortune:
        async def begin() -> None:
            began.set()

        async def end() -> None:
            if hanging.is_set():
                ended.set()
                stopping.set()

        return Misfortune("other", ("s2",), 0.1, begin, end)

    nemeses = [
        Nemesis("hanging", "Hangs.", draw_hanging, gap_s=0.001),
        Nemesis("other", "Is ended.", draw_other, gap_s=0.001),
    ]
    cluster: Any = FakeCluster()
    await asyncio.wait_for(Conductor(cluster, history, nemeses, 1).run(stopping), 30)
    history.close()
    assert all(fault.ended_ns for fault in history.faults)


async def test_the_conductor_ends_what_is_under_way(tmp_path: Path) -> None:
    """And records the beginning before it strikes."""
    cluster: Any = FakeCluster()
    history = HistoryWriter(tmp_path / "history.jsonl", {"seed": 1})
    stopping = asyncio.Event()
    seen: list[str] = []

    async def draw(of: Any, rng: random.Random) -> Misfortune:
        async def begin() -> None:
            seen.append(f"begin {len(history.faults)}")
            of.servers["s1"].kill()
            stopping.set()

        async def end() -> None:
            seen.append("end")
            of.servers["s1"].start()

        return Misfortune("dies", ("s1",), 3600.0, begin, end)

    nemesis = Nemesis("own", "Ends the run.", draw, gap_s=0.001)
    await asyncio.wait_for(Conductor(cluster, history, [nemesis], 1).run(stopping), 30)
    history.close()
    assert seen == ["begin 1", "end"]
    assert cluster.whole() == []
    (fault,) = read_history(tmp_path / "history.jsonl").faults
    assert fault.ended_ns > fault.began_ns
