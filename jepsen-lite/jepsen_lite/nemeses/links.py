"""Networks that are cut, slow, lossy, or break their connections."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable

from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.cluster.parties import CLIENTS
from jepsen_lite.nemeses.killing import leader_of
from jepsen_lite.nemeses.port import Misfortune, Nemesis, at_once, nothing

CUT_S = (1.0, 8.0)
ALONE_S = (6.0, 10.0)
"""Longer than lease and fence: the host is lost, and its work begins elsewhere."""
SLOW_S = (2.0, 8.0)

Directions = list[tuple[str, str]]


def parties(cluster: Cluster) -> list[str]:
    """Everybody who speaks to somebody."""
    return [*cluster.servers, *cluster.hosts, CLIENTS]


def both_ways(pairs: Iterable[tuple[str, str]]) -> Directions:
    """Each pair, and the way back."""
    return [way for one, other in pairs for way in ((one, other), (other, one))]


def cut_off(cluster: Cluster, what: str, ways: Directions, seconds: float) -> Misfortune | None:
    """Nothing passes these directions; connections stay open and silent."""
    if not ways:
        return None
    over = _mended(cluster, ways)
    return Misfortune(what, over.targets, seconds, _each(ways, cluster.network.cut), over.end)


async def _halves(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Servers split into a majority and a minority; hosts and clients stand on either side."""
    servers = list(cluster.servers)
    rng.shuffle(servers)
    few = servers[: (len(servers) - 1) // 2]
    others = [party for party in parties(cluster) if party not in servers]
    side = sorted(few + [party for party in others if rng.random() < 0.5])
    rest = [party for party in parties(cluster) if party not in side]
    ways = both_ways(
        (one, other)
        for one in side
        for other in rest
        if one not in cluster.hosts or other not in cluster.hosts
    )
    what = f"{', '.join(side)} on one side of a cut, {', '.join(rest)} on the other"
    return cut_off(cluster, what, ways, rng.uniform(*CUT_S))


async def _ring(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Each server reaches its neighbours alone, so majorities overlap and no two are the same."""
    servers = list(cluster.servers)
    rng.shuffle(servers)
    count = len(servers)
    if count == 3:
        apart = [(servers[0], servers[1])]
    else:
        apart = [
            (servers[one], servers[other])
            for one in range(count)
            for other in range(one + 1, count)
            if (other - one) % count not in (1, count - 1)
        ]
    what = "apart: " + ", ".join(f"{one} and {other}" for one, other in apart)
    return cut_off(cluster, what, both_ways(apart), rng.uniform(*CUT_S))


async def _one_way(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    servers = list(cluster.servers)
    deaf = rng.choice(servers)
    others = [server for server in servers if server != deaf]
    if rng.random() < 0.5:
        ways = [(other, deaf) for other in others]
        what = f"{deaf} hears nothing of the other servers, and is heard"
    else:
        ways = [(deaf, other) for other in others]
        what = f"{deaf} hears the other servers, and is not heard"
    return cut_off(cluster, what, ways, rng.uniform(*CUT_S))


async def _isolate_leader(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Its clients and agents still reach it: what it says to them now must not count."""
    leader = await leader_of(cluster)
    if leader is None:
        return None
    others = [server for server in cluster.servers if server != leader.name]
    ways = both_ways((leader.name, other) for other in others)
    what = f"the leader {leader.name} is cut off from the other servers, not from its clients"
    return cut_off(cluster, what, ways, rng.uniform(*CUT_S))


async def _cut_agents(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """Some or all agents lose some servers, now and then every one of them."""
    hosts = rng.sample(sorted(cluster.hosts), rng.randint(1, len(cluster.hosts)))
    servers = rng.sample(sorted(cluster.servers), rng.randint(1, len(cluster.servers)))
    ways = both_ways((host, server) for host in hosts for server in servers)
    what = f"agents of {', '.join(sorted(hosts))} cut off from {', '.join(sorted(servers))}"
    return cut_off(cluster, what, ways, rng.uniform(*CUT_S))


async def _isolate_host(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    """One alone: were it many, none of them would be given up."""
    hosts = sorted(cluster.hosts)
    if not hosts:
        return None
    host = rng.choice(hosts)
    ways = both_ways((host, server) for server in cluster.servers)
    what = f"the agent of {host} is cut off from every server, and what it runs lives on"
    return cut_off(cluster, what, ways, rng.uniform(*ALONE_S))


def _some_ways(cluster: Cluster, rng: random.Random) -> Directions:
    """From one party or between all servers, in both directions or one."""
    servers = sorted(cluster.servers)
    if rng.random() < 0.5:
        ways = [(one, other) for one in servers for other in servers if one != other]
    else:
        centre = rng.choice(servers)
        ways = both_ways((centre, other) for other in parties(cluster) if other != centre)
    return ways if rng.random() < 0.5 else [way for way in ways if rng.random() < 0.5] or ways[:1]


def _each(ways: Directions, act: Callable[[str, str], object]) -> Callable[[], Awaitable[None]]:
    """The same for every direction."""
    return at_once(lambda: [act(source, target) for source, target in ways])


def _mended(cluster: Cluster, ways: Directions) -> Misfortune:
    """What all that lasts has in common: the end."""

    targets = tuple(sorted({party for way in ways for party in way}))
    return Misfortune("", targets, 0.0, nothing, _each(ways, cluster.network.mend))


def _for_a_while(
    cluster: Cluster, rng: random.Random, what: str, act: Callable[[str, str], object]
) -> Misfortune:
    """Something done to some directions, and taken back seconds later."""
    ways = _some_ways(cluster, rng)
    over = _mended(cluster, ways)
    told = f"{what} on {_told(ways)}"
    return Misfortune(told, over.targets, rng.uniform(*SLOW_S), _each(ways, act), over.end)


async def _slow(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    ms = rng.choice((5, 20, 100, 400)) * rng.uniform(0.5, 1.5)
    what = f"{ms:.0f} to {ms * 1.5:.0f} ms of delay"
    delay = cluster.network.delay
    return _for_a_while(cluster, rng, what, lambda one, other: delay(one, other, ms, ms / 2))


async def _throttled(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    bytes_s = rng.choice((2_000, 10_000, 50_000))
    throttle = cluster.network.throttle
    what = f"{bytes_s / 1000:g} kB/s"
    return _for_a_while(cluster, rng, what, lambda one, other: throttle(one, other, bytes_s))


async def _lossy(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    share = rng.choice((0.02, 0.1, 0.3))
    lossy = cluster.network.lossy
    what = f"{share:.0%} lost"
    return _for_a_while(cluster, rng, what, lambda one, other: lossy(one, other, share))


async def _reset(cluster: Cluster, rng: random.Random) -> Misfortune | None:
    ways = _some_ways(cluster, rng)
    over = _mended(cluster, ways)
    begin = _each(ways, cluster.network.reset)
    return Misfortune(f"connections reset on {_told(ways)}", over.targets, 0.0, begin, nothing)


def _told(ways: Directions) -> str:
    told = [f"{source} to {target}" for source, target in ways[:3]]
    more = f" and {len(ways) - 3} more" if len(ways) > 3 else ""
    return ", ".join(told) + more


_CUT = frozenset({"network.cut"})

NEMESES = (
    Nemesis("halves", "A cut between a minority of the servers and the rest.", _halves, _CUT),
    Nemesis("ring", "Each server reaches only its neighbours.", _ring, _CUT),
    Nemesis(
        "one-way",
        "A server hears and is not heard, or is heard and does not hear.",
        _one_way,
        frozenset({"network.one_way"}),
    ),
    Nemesis(
        "isolate-leader",
        "The leader is cut off from the other servers while its clients still reach it.",
        _isolate_leader,
        _CUT,
    ),
    Nemesis(
        "cut-agents",
        "Agents are cut off from some of the servers, or from all.",
        _cut_agents,
        _CUT | {"agents"},
    ),
    Nemesis(
        "isolate-host",
        "An agent is cut off from all servers until its host is lost, and comes back.",
        _isolate_host,
        _CUT | {"agents"},
        1.0,
    ),
    Nemesis("slow", "Links with delay and jitter.", _slow, frozenset({"network.delay"})),
    Nemesis(
        "throttle", "Links with little bandwidth.", _throttled, frozenset({"network.throttle"})
    ),
    Nemesis("lossy", "Links that lose what they carry.", _lossy, frozenset({"network.lossy"})),
    Nemesis(
        "reset",
        "Connections break in the middle of a message.",
        _reset,
        frozenset({"network.reset"}),
        1.0,
    ),
)
