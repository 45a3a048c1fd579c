"""What befalls servers: a menu of faults by name, drawn by a swarm.

`await FAULTS[name].inject(servers, rng)` begins one. It draws all that it needs at once, and heals
by itself after a while; `heal_all` ends everything that is going on, so that liveness can be
judged. Faults of one family, the part before the dot, can be taken away together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from coord_sim.world.peers import CHAOS, Climate
from coord_sim.world.server_healing import heal_all, replace_damaged
from coord_sim.world.servers import SimServers

__all__ = [
    "FAULTS",
    "Fault",
    "back_after",
    "cut",
    "fault",
    "heal_all",
    "leading",
    "replace_damaged",
    "weather",
]

Inject = Callable[[SimServers, random.Random], Awaitable[bool]]


class Fault(msgspec.Struct, frozen=True):
    """One kind of misfortune. `told` says what it does; `inject`, whether it befell anybody."""

    name: str
    weight: int
    inject: Inject
    told: str


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, weight: int = 1, menu: dict[str, Fault] = FAULTS
) -> Callable[[Inject], Inject]:
    """Put a function on a menu; its docstring is what is told of it."""

    def register(inject: Inject) -> Inject:
        menu[name] = Fault(name, weight, inject, (inject.__doc__ or "").strip())
        return inject

    return register


def back_after(servers: SimServers, n: int, seconds: float) -> None:
    """Start it again in so many seconds."""
    servers.kernel.call_later(seconds, servers.start, n)


def one_running(servers: SimServers, rng: random.Random) -> int:
    """Any of those that run; 0 when none does."""
    running = servers.running()
    return rng.choice(running) if running else 0


def pair(servers: SimServers, rng: random.Random) -> tuple[int, int] | None:
    """Two different servers, in an order."""
    numbers = servers.numbers()
    if len(numbers) < 2:
        return None
    a, b = rng.sample(numbers, 2)
    return a, b


def leading(servers: SimServers) -> int:
    """The leader's number; 0 when there is none."""
    leader = servers.leader()
    return leader.config.node if leader is not None else 0


# Processes


@fault("server.crash", 3)
async def crash(servers: SimServers, rng: random.Random) -> bool:
    """A server loses its power and with it what was not synced; it comes back."""
    back_s, silently = rng.uniform(0.0, 6.0), rng.random() < 0.3
    if n := one_running(servers, rng):
        servers.crash(n, silently=silently)
        back_after(servers, n, back_s)
    return bool(n)


@fault("server.kill", 2)
async def kill(servers: SimServers, rng: random.Random) -> bool:
    """A server's process is killed; its host and its disk stay up, and it is started again."""
    back_s = rng.uniform(0.0, 3.0)
    if n := one_running(servers, rng):
        servers.crash(n, lose_unsynced=False)
        back_after(servers, n, back_s)
    return bool(n)


@fault("server.crash_leader", 2)
async def crash_leader(servers: SimServers, rng: random.Random) -> bool:
    """The leader loses its power; sometimes it is back before the others have noticed."""
    back_s = rng.choice((0.0, 0.1, 1.0, 8.0)) * rng.random()
    if n := leading(servers):
        servers.crash(n, silently=rng.random() < 0.5)
        back_after(servers, n, back_s)
    return bool(n)


@fault("server.crash_in_commit", 2)
async def crash_in_commit(servers: SimServers, rng: random.Random) -> bool:
    """A server dies in the middle of its next commit, which is there afterwards or not."""
    back_s = rng.uniform(0.5, 4.0)
    if n := one_running(servers, rng):
        servers.disk(n).faults.dies_in_commit = True
        back_after(servers, n, back_s)
    return bool(n)


@fault("server.cold_start")
async def cold_start(servers: SimServers, rng: random.Random) -> bool:
    """All lose their power at once, and come back one by one."""
    for n in servers.numbers():
        servers.crash(n)
        back_after(servers, n, rng.uniform(0.0, 4.0))
    return True


@fault("server.pause", 2)
async def pause(servers: SimServers, rng: random.Random) -> bool:
    """A server stands still for longer than an election takes, and goes on as if nothing was."""
    seconds = rng.choice((1.0, 4.0, 12.0)) * rng.uniform(0.5, 1.5)
    n = leading(servers) if rng.random() < 0.5 else one_running(servers, rng)
    if n:
        servers.pause(n)
        process = servers.process(n)
        assert process is not None
        servers.kernel.call_later(seconds, process.resume)
    return bool(n)


@fault("server.stutter")
async def stutter(servers: SimServers, rng: random.Random) -> bool:
    """A server stands still again and again, for moments."""
    n = one_running(servers, rng)
    for at in range(rng.randint(3, 15)):
        seconds = rng.uniform(0.05, 1.2)
        servers.kernel.call_later(at * rng.uniform(0.3, 1.0), _stall, servers, n, seconds)
    return bool(n)


def _stall(servers: SimServers, n: int, seconds: float) -> None:
    if n in servers.all:
        servers.stall(n, seconds)


# Disks


@fault("disk.full", 2)
async def disk_full(servers: SimServers, rng: random.Random) -> bool:
    """A disk has no room for a while; at times the leader's, at times everybody's."""
    seconds = rng.choice((0.5, 3.0, 16.0)) * rng.uniform(0.5, 1.5)
    which = rng.random()
    chosen = servers.numbers() if which < 0.1 else [leading(servers)]
    if which > 0.5:
        chosen = [rng.choice(servers.numbers())]
    for n in chosen:
        if n:
            faults = servers.disk(n).faults
            faults.full = True
            servers.kernel.call_later(seconds, setattr, faults, "full", False)
    return True


@fault("disk.leader_full")
async def leader_full(servers: SimServers, rng: random.Random) -> bool:
    """The leader's disk has no room for longer than it may go on leading."""
    seconds = rng.uniform(6.0, 20.0)
    if n := leading(servers):
        faults = servers.disk(n).faults
        faults.full = True
        servers.kernel.call_later(seconds, setattr, faults, "full", False)
    return bool(n)


@fault("disk.slow", 2)
async def disk_slow(servers: SimServers, rng: random.Random) -> bool:
    """Commits of a server take long, some of them longer than an election."""
    seconds, most_s = rng.uniform(2.0, 15.0), rng.choice((0.02, 0.2, 2.0))
    n = rng.choice(servers.numbers())
    faults = servers.disk(n).faults
    faults.slow_s, faults.slow_share = (most_s / 10, most_s), rng.choice((0.1, 0.5, 1.0))
    servers.kernel.call_later(seconds, setattr, faults, "slow_s", (0.0, 0.0))
    return True


@fault("disk.fsync_fails")
async def fsync_fails(servers: SimServers, rng: random.Random) -> bool:
    """A server's next fsync fails: it must stop, and may be started again."""
    if n := one_running(servers, rng):
        servers.disk(n).faults.fails_next = True
    return bool(n)


@fault("disk.bit_flip")
async def bit_flip(servers: SimServers, rng: random.Random) -> bool:
    """A bit of a stored value turns over while a server is down. It must not use it; once it
    refuses, it is replaced by a new member."""
    back_s = rng.uniform(0.1, 2.0)
    if any(servers.disk(n).flipped for n in servers.numbers()) or len(servers.running()) < 3:
        return False
    n = one_running(servers, rng)
    servers.crash(n)
    servers.disk(n).flip_bit()
    back_after(servers, n, back_s)
    await asyncio.sleep(back_s + 1.0)
    await replace_damaged(servers, n, limit_s=20.0)
    return True


# Links


@fault("net.partition", 3)
async def partition(servers: SimServers, rng: random.Random) -> bool:
    """The servers are in two halves that do not hear each other."""
    numbers = servers.numbers()
    rng.shuffle(numbers)
    split = rng.randint(1, max(1, len(numbers) - 1))
    cut(servers, tuple(numbers[:split]), tuple(numbers[split:]), rng.uniform(1.0, 15.0))
    return True


@fault("net.isolate_leader", 3)
async def isolate_leader(servers: SimServers, rng: random.Random) -> bool:
    """Nobody hears the leader, who hears nobody, for shorter or longer than it believes to lead."""
    seconds = rng.choice((0.5, 3.0, 12.0)) * rng.uniform(0.5, 1.5)
    if n := leading(servers):
        others = tuple(number for number in servers.numbers() if number != n)
        cut(servers, (n,), others, seconds)
    return bool(n)


@fault("net.one_way", 2)
async def one_way(servers: SimServers, rng: random.Random) -> bool:
    """One server does not hear another, who hears it."""
    seconds = rng.uniform(0.5, 12.0)
    if chosen := pair(servers, rng):
        servers.peers.cut_one_way(*chosen)
        servers.kernel.call_later(seconds, servers.peers.mend, *chosen)
    return bool(chosen)


@fault("net.slow", 2)
async def slow(servers: SimServers, rng: random.Random) -> bool:
    """A link takes long, up to beyond an election."""
    seconds, ms = rng.uniform(2.0, 15.0), rng.choice((20, 200, 1_000, 3_000)) * rng.random()
    if chosen := pair(servers, rng):
        servers.peers.slow(*chosen, ms)
        servers.kernel.call_later(seconds, servers.peers.mend, *chosen)
    return bool(chosen)


@fault("net.reset", 2)
async def reset(servers: SimServers, rng: random.Random) -> bool:
    """Connections break with data half delivered."""
    for _ in range(rng.choice((1, 1, 3))):
        if chosen := pair(servers, rng):
            servers.peers.reset(*chosen)
    return bool(chosen)


@fault("net.supersede", 2)
async def supersede(servers: SimServers, rng: random.Random) -> bool:
    """A second connection is made while the first still has much to deliver."""
    ms = rng.uniform(50, 2_000)
    if chosen := pair(servers, rng):
        servers.peers.slow(*chosen, ms)
        servers.kernel.call_later(rng.uniform(0.5, 2.0), _supersede, servers, chosen)
    return bool(chosen)


def _supersede(servers: SimServers, chosen: tuple[int, int]) -> None:
    servers.peers.mend(*chosen)
    servers.peers.supersede(*chosen)


@fault("net.swizzle")
async def swizzle(servers: SimServers, rng: random.Random) -> bool:
    """Servers are cut off one by one, and reached again one by one in another order."""
    chosen = [n for n in servers.numbers() if rng.random() < 0.7]
    later = servers.kernel.call_later
    at_s = 0.0
    for n in chosen:
        later(at_s, servers.peers.isolate, n)
        at_s += rng.uniform(0.1, 2.0)
    rng.shuffle(chosen)
    for n in chosen:
        at_s += rng.uniform(0.1, 2.0)
        later(at_s, _rejoin, servers, n)
    return bool(chosen)


def _rejoin(servers: SimServers, n: int) -> None:
    for other in sorted(servers.peers.known):
        if other != n:
            servers.peers.mend(n, other)


@fault("net.flaky")
async def flaky(servers: SimServers, rng: random.Random) -> bool:
    """For a while connections break often and messages take long at times."""
    climate = Climate(
        reset_share=rng.choice((0.01, 0.05)), slow_share=0.1, slow_s=rng.choice((0.3, 2.0))
    )
    weather(servers, climate, rng.uniform(2.0, 15.0))
    return True


@fault("net.chaos")
async def chaos(servers: SimServers, rng: random.Random) -> bool:
    """For a while messages are lost, repeated and overtaken, which is more than TCP does."""
    climate = msgspec.structs.replace(
        CHAOS,
        lost_share=rng.choice((0.0, 0.01, 0.1)),
        repeated_share=rng.choice((0.01, 0.1, 0.3)),
        overtaken_share=rng.choice((0.02, 0.1, 0.3)),
        slow_s=rng.choice((0.3, 2.0, 8.0)),
    )
    weather(servers, climate, rng.uniform(2.0, 20.0))
    return True


def weather(servers: SimServers, climate: Climate, seconds: float) -> None:
    """The network is so for a while."""
    servers.peers.climate = climate

    def over() -> None:
        if servers.peers.climate is climate:
            servers.peers.calm()

    servers.kernel.call_later(seconds, over)


def cut(servers: SimServers, side: tuple[int, ...], other: tuple[int, ...], seconds: float) -> None:
    """Nothing passes between the sides for so long."""
    servers.peers.partition(side, other)

    def over() -> None:
        for a in side:
            for b in other:
                servers.peers.mend(a, b)

    servers.kernel.call_later(seconds, over)


# Clocks


@fault("clock.jump")
async def clock_jump(servers: SimServers, rng: random.Random) -> bool:
    """A server's wall clock jumps, by seconds or by hours, and is set right later."""
    ms = rng.choice((1_000, 60_000, 3_600_000)) * rng.choice((-1, 1))
    clock = servers.clock(rng.choice(servers.numbers()))
    clock.jump(ms)
    servers.kernel.call_later(rng.uniform(1.0, 30.0), clock.set_right)
    return True


@fault("clock.drift")
async def clock_drift(servers: SimServers, rng: random.Random) -> bool:
    """A server's wall clock runs too fast or too slow."""
    clock = servers.clock(rng.choice(servers.numbers()))
    clock.drift(rng.choice((-500, -50, 50, 500)))
    servers.kernel.call_later(rng.uniform(5.0, 30.0), clock.set_right)
    return True


# Members, leadership, snapshots


@fault("members.add")
async def members_add(servers: SimServers, rng: random.Random) -> bool:
    """A new server joins, whatever else is going on."""
    if len(servers.numbers()) >= servers.count + 2:
        return False
    await servers.add(limit_s=6.0)
    return True


@fault("members.remove")
async def members_remove(servers: SimServers, rng: random.Random) -> bool:
    """A server is taken out for good, running or not, as long as enough are left."""
    n = rng.choice(servers.numbers())
    leader = servers.leader()
    if leader is None or len(leader.log.status().members) <= servers.count:
        return False
    await servers.remove(n, limit_s=6.0)
    return True


@fault("members.swap")
async def members_swap(servers: SimServers, rng: random.Random) -> bool:
    """A server is down for good: a new one joins, and the old one is taken out."""
    n = rng.choice(servers.numbers())
    if len(servers.numbers()) > servers.count:
        return False
    servers.crash(n)
    if not await servers.add(limit_s=6.0) or not await servers.remove(n, limit_s=6.0):
        servers.start(n)
    return True


@fault("log.transfer", 2)
async def transfer(servers: SimServers, rng: random.Random) -> bool:
    """The leader hands over, to anybody or to a certain follower."""
    n = 0 if rng.random() < 0.5 else rng.choice(servers.numbers())
    return await servers.transfer(n, limit_s=3.0)


@fault("log.snapshot", 2)
async def snapshot(servers: SimServers, rng: random.Random) -> bool:
    """Servers write snapshots and shorten their logs."""
    written = [await servers.snapshot(n) for n in servers.running() if rng.random() < 0.6]
    return any(written)


@fault("log.away", 2)
async def away(servers: SimServers, rng: random.Random) -> bool:
    """A follower is away while the others shorten their logs, and needs a snapshot."""
    away_s = rng.uniform(3.0, 12.0)
    followers = [n for n in servers.running() if n != leading(servers)]
    if len(followers) < 2:
        return False
    n = rng.choice(followers)
    cut_off = rng.random() < 0.5
    if cut_off:
        others = tuple(number for number in servers.numbers() if number != n)
        cut(servers, (n,), others, away_s)
    else:
        servers.crash(n)
        back_after(servers, n, away_s)
    await asyncio.sleep(away_s * 0.8)
    for other in servers.running():
        if other != n:
            await servers.snapshot(other)
    return True


@fault("log.slow_snapshot")
async def slow_snapshot(servers: SimServers, rng: random.Random) -> bool:
    """A server writes a snapshot for so long that it may get a newer one meanwhile."""
    n, cut_s = one_running(servers, rng), rng.uniform(2.0, 5.0)
    if not n:
        return False
    servers.worker_s = (cut_s, 3 * cut_s)
    writing = servers.kernel.start(servers.snapshot(n, 4 * cut_s))
    await asyncio.sleep(0.01)
    servers.worker_s = (0.0, 0.05)
    others = tuple(number for number in servers.numbers() if number != n)
    cut(servers, (n,), others, cut_s)
    await asyncio.sleep(cut_s * 0.9)
    for other in servers.running():
        if other != n:
            await servers.snapshot(other)
    await writing
    return True


@fault("log.to_and_fro")
async def to_and_fro(servers: SimServers, rng: random.Random) -> bool:
    """Leadership goes to another and back while replies to the first are still on their way."""
    first, peers = leading(servers), servers.peers
    others = [n for n in servers.running() if n != first]
    if not first or len(others) < 2 or peers.slowed:
        return False
    election_s = servers.config.raft.election_max_ms / 1000
    with_first = rng.choice(others)
    rest = tuple(n for n in others if n != with_first)
    peers.slowed[(with_first, first)] = election_s * rng.uniform(1.4, 2.4)
    cut(servers, (first, with_first), rest, 4 * election_s)
    await servers.wait_for(lambda: leading(servers) in rest, 3 * election_s)
    for a in (first, with_first):
        for b in rest:
            peers.mend(a, b)
    await asyncio.sleep(rng.uniform(0.05, 0.3) * election_s)
    await servers.transfer(first, election_s)
    for n in (with_first, *rest[1:]):
        peers.cut_one_way(first, n)
        servers.kernel.call_later(rng.uniform(0.7, 1.5) * election_s, peers.mend, first, n)
    return True
