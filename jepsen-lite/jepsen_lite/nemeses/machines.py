"""Clocks that are wrong, disks that are full, slow, or lose and change what was written."""

from __future__ import annotations

import random

from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.nemeses.killing import DOWN_S, followers_of, leader_of, standing, working
from jepsen_lite.nemeses.port import Misfortune, Nemesis, at_once

SKEWS_MS = (300, 2_000, 10_000, 3_600_000)
FULL_S = (1.0, 6.0)
SLOW_MS = (20, 150, 800)


async def _clock(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Off for a while, then right again: two jumps."""
    servers = standing(cluster)
    if not servers:
        return None
    leader = await leader_of(cluster) if rng.random() < 0.5 else None
    server = leader or rng.choice(servers)
    by_ms = int(rng.choice(SKEWS_MS) * rng.uniform(0.5, 1.5)) * rng.choice((-1, 1))
    what = f"the clock of {server.name} jumps by {by_ms / 1000:+.1f} s, and back later"
    lasts_s = rng.uniform(0.5, 5.0)
    begin, end = at_once(lambda: server.clock.jump(by_ms)), at_once(server.clock.heal)
    return Misfortune(what, (server.name,), lasts_s, begin, end)


async def _disk_full(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    candidates = [*standing(cluster), *working(cluster)]
    leader = await leader_of(cluster) if rng.random() < 0.4 else None
    if not candidates:
        return None
    member = leader or rng.choice(candidates)
    what = f"the disk of {member.name} is full"
    begin, end = at_once(member.disk.fill), at_once(member.disk.free)
    return Misfortune(what, (member.name,), rng.uniform(*FULL_S), begin, end)


async def _slow_fsync(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    servers = standing(cluster)
    if not servers:
        return None
    leader = await leader_of(cluster) if rng.random() < 0.5 else None
    chosen = [leader or rng.choice(servers)] if rng.random() < 0.7 else servers
    ms = rng.choice(SLOW_MS)
    names = tuple(server.name for server in chosen)
    return Misfortune(
        f"each fsync of {', '.join(names)} takes {ms} ms longer",
        names,
        rng.uniform(*FULL_S),
        at_once(*(lambda server=server: server.disk.slow_fsync(ms) for server in chosen)),
        at_once(*(lambda server=server: server.disk.slow_fsync(0) for server in chosen)),
    )


async def _power_cut(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Of one server, or of all at once: what was not synced is gone, or torn."""
    servers = standing(cluster)
    if not servers:
        return None
    leader = await leader_of(cluster) if rng.random() < 0.5 else None
    chosen = [leader or rng.choice(servers)] if rng.random() < 0.6 else servers
    seed = rng.getrandbits(64)

    def cut() -> None:
        for server in chosen:
            server.kill()
        for number, server in enumerate(chosen):
            server.disk.crash(random.Random(f"{seed}/{number}"))

    names = tuple(server.name for server in chosen)
    what = f"power cut of {', '.join(names)}: unsynced writes are lost or torn"
    lasts_s = rng.uniform(*DOWN_S)
    return Misfortune(
        what, names, lasts_s, at_once(cut), at_once(*(server.start for server in chosen))
    )


async def _damage(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Of one follower in the whole run: more than a minority that lost data may lose data."""
    if any(server.damaged for server in cluster.servers.values()):
        return None
    followers = await followers_of(cluster)
    # One that has just been added has written nothing yet that could be damaged.
    written = {name for name, view in (await cluster.views()).items() if view.applied_index}
    followers = [server for server in followers if server.name in written]
    if len(followers) < 2:
        return None
    server = rng.choice(followers)
    seed = rng.getrandbits(64)

    def spoil() -> None:
        server.kill()
        server.damaged = server.disk.damage(random.Random(seed))

    what = f"bytes of the store of {server.name} are flipped or torn while it is down"
    return Misfortune(
        what, (server.name,), rng.uniform(*DOWN_S), at_once(spoil), at_once(server.start)
    )


def _disk(need: str) -> frozenset[str]:
    return frozenset({"processes", f"disk.{need}"})


NEMESES = (
    Nemesis("clock", "A server's clock jumps, and back.", _clock, frozenset({"processes"}), 1.0),
    Nemesis("disk-full", "No room on the disk of a server or agent.", _disk_full, _disk("full")),
    Nemesis("slow-fsync", "Every fsync takes longer.", _slow_fsync, _disk("slow_fsync")),
    Nemesis(
        "power-cut",
        "Servers die and lose what they had not synced.",
        _power_cut,
        _disk("lose_unsynced"),
    ),
    Nemesis(
        "damage",
        "Bytes of a stopped server's store change; it must halt or be right.",
        _damage,
        _disk("damage"),
    ),
)
