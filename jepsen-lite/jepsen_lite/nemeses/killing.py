"""Processes that die and processes that stand still."""

from __future__ import annotations

import random

from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.cluster.processes import Host, Member, Server
from jepsen_lite.nemeses.port import Misfortune, Nemesis, at_once, nothing

DOWN_S = (0.2, 4.0)
SHORT_S = (0.1, 0.5)
"""Less than any follower waits before it stands for election, and far less than a lease."""
LONG_S = (5.0, 8.0)
"""More than an election takes, and more than a lease."""


async def leader_of(cluster: Cluster) -> Server | None:
    """Who leads just now; None while nobody does."""
    name = await cluster.leader(timeout_s=1.0)
    return cluster.servers.get(name) if name else None


async def followers_of(cluster: Cluster) -> list[Server]:
    """Who runs and does not lead."""
    leader = await leader_of(cluster)
    return [server for server in standing(cluster) if server is not leader]


def standing(cluster: Cluster) -> list[Server]:
    """Servers that run and are not paused."""
    return [one for one in cluster.servers.values() if one.running and not one.paused]


def working(cluster: Cluster) -> list[Host]:
    """Hosts whose agent runs and is not paused."""
    return [one for one in cluster.hosts.values() if one.running and not one.paused]


def killed(member: Member, rng: random.Random, who: str) -> Misfortune:
    """kill -9, and a new start with the same data a while later."""
    return Misfortune(
        f"kill -9 of {who} {member.name}",
        (member.name,),
        rng.uniform(*DOWN_S),
        at_once(member.kill),
        at_once(member.start),
    )


async def _kill_leader(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    leader = await leader_of(cluster)
    return killed(leader, rng, "the leader") if leader else None


async def _kill_follower(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    followers = await followers_of(cluster)
    return killed(rng.choice(followers), rng, "a follower") if followers else None


async def _kill_all(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    servers = standing(cluster)
    rng.shuffle(servers)
    names = tuple(server.name for server in servers)
    begin = at_once(*(server.kill for server in servers))
    end = at_once(*(server.start for server in servers))
    what = f"kill -9 of every server, in the order {', '.join(names)}"
    return Misfortune(what, names, rng.uniform(*DOWN_S), begin, end) if servers else None


async def _kill_agent(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    hosts = working(cluster)
    return killed(rng.choice(hosts), rng, "the agent of") if hosts else None


async def _kill_host(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    hosts = working(cluster)
    if not hosts:
        return None
    host = rng.choice(hosts)
    what = f"host {host.name} dies with all it runs"
    lasts_s = rng.choice((rng.uniform(*DOWN_S), rng.uniform(*LONG_S)))
    return Misfortune(what, (host.name,), lasts_s, at_once(host.kill_all), at_once(host.start))


async def _kill_rank(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    busy = [(host, pids) for host in working(cluster) if (pids := host.ranks())]
    if not busy:
        return None
    host, pids = rng.choice(busy)
    pid = rng.choice(pids)
    what = f"kill -9 of a rank on {host.name}, pid {pid}"
    return Misfortune(what, (host.name,), 0.0, at_once(lambda: host.kill_rank(pid)), nothing)


def _paused(member: Member, seconds: float, who: str) -> Misfortune:
    what = f"SIGSTOP to {who} {member.name} for {seconds:.2f} s"
    return Misfortune(what, (member.name,), seconds, at_once(member.pause), at_once(member.resume))


async def _pause_short(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    anybody = standing(cluster)
    return _paused(rng.choice(anybody), rng.uniform(*SHORT_S), "server") if anybody else None


async def _pause_leader(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    leader = await leader_of(cluster)
    return _paused(leader, rng.uniform(*LONG_S), "the leader") if leader else None


async def _pause_follower(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    followers = await followers_of(cluster)
    if not followers:
        return None
    return _paused(rng.choice(followers), rng.uniform(*LONG_S), "a follower")


async def _pause_host(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    hosts = working(cluster)
    if not hosts:
        return None
    host = rng.choice(hosts)
    seconds = rng.choice((rng.uniform(*SHORT_S), rng.uniform(*LONG_S)))
    all_of_it = rng.random() < 0.5
    who = "all processes of host" if all_of_it else "the agent of"
    what = f"SIGSTOP to {who} {host.name} for {seconds:.2f} s"
    pause = host.pause_all if all_of_it else host.pause
    return Misfortune(what, (host.name,), seconds, at_once(pause), at_once(host.resume))


_PROCESSES = frozenset({"processes"})
_AGENTS = frozenset({"processes", "agents"})

NEMESES = (
    Nemesis("kill-leader", "The leading server dies of SIGKILL.", _kill_leader, _PROCESSES),
    Nemesis("kill-follower", "A server that follows dies of SIGKILL.", _kill_follower, _PROCESSES),
    Nemesis("kill-all", "All servers die of SIGKILL and start again.", _kill_all, _PROCESSES, 4.0),
    Nemesis("kill-agent", "An agent dies of SIGKILL; its tasks live on.", _kill_agent, _AGENTS),
    Nemesis("kill-host", "A host dies with all its processes.", _kill_host, _AGENTS, 3.0),
    Nemesis("kill-rank", "A rank of a running job dies of SIGKILL.", _kill_rank, _AGENTS),
    Nemesis(
        "pause-short",
        "A server stands still for less than an election takes.",
        _pause_short,
        _PROCESSES,
        1.0,
    ),
    Nemesis(
        "pause-leader",
        "The leader stands still past election and lease, and wakes believing that it leads.",
        _pause_leader,
        _PROCESSES,
    ),
    Nemesis(
        "pause-follower",
        "A follower stands still past election and lease.",
        _pause_follower,
        _PROCESSES,
    ),
    Nemesis("pause-host", "An agent, or all of its host, stands still.", _pause_host, _AGENTS),
)
