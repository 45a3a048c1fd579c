"""What befalls channels and those who use them: a menu of faults by name, drawn by a swarm.

`await FAULTS[name].inject(world, rng)` begins one and says whether there was anything that it could
befall. It draws all that it needs at once, and heals by itself after a while; `heal_all` ends
everything at once. Callers are agents and clients alike.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from coord.model.channel import Results, Submit, ToClient, ToServer
from coord.model.events import JobSubmitted, NoteAdded
from coord_sim.kernel import Kernel
from coord_sim.world.channels import Channels
from coord_sim.world.clients import Servers, SimClient, SimClients
from coord_sim.world.requests import draw_job


class Surroundings(Protocol):
    """What faults are let loose on; `world.World` is one."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def servers(self) -> Servers: ...

    @property
    def channels(self) -> Channels: ...

    @property
    def clients(self) -> SimClients: ...


Inject = Callable[[Surroundings, random.Random], Awaitable[bool]]


class Fault(msgspec.Struct, frozen=True):
    """One kind of misfortune. `told` says in a line what it does."""

    name: str
    weight: int
    inject: Inject
    told: str


FAULTS: dict[str, Fault] = {}


def fault(name: str, weight: int = 1) -> Callable[[Inject], Inject]:
    """Put a function on the menu; its docstring is what is told of it."""

    def register(inject: Inject) -> Inject:
        FAULTS[name] = Fault(name, weight, inject, (inject.__doc__ or "").strip())
        return inject

    return register


def heal_all(world: Surroundings) -> None:
    """Every way is open and fast, and every client runs on."""
    world.channels.heal_all()
    for name in world.clients.all:
        world.clients.resume(name)


# Channels


@fault("channel.cut", 3)
async def cut(world: Surroundings, rng: random.Random) -> bool:
    """One caller's connections to some servers, or to all, break, and it gets no others."""
    seconds = _seconds(rng)
    pairs = _pairs_of_one(world, rng)
    for caller, number in pairs:
        world.channels.cut(caller, number)
    return _heal_later(world, pairs, seconds)


@fault("channel.silent", 3)
async def silent(world: Surroundings, rng: random.Random) -> bool:
    """Between one caller and some servers nothing arrives, in one direction or both, and nobody is
    told."""
    seconds = _seconds(rng)
    to_server, to_caller = rng.choice(((True, True), (True, False), (False, True)))
    pairs = _pairs_of_one(world, rng)
    for caller, number in pairs:
        world.channels.cut_silently(caller, number, to_server=to_server, to_caller=to_caller)
    return _heal_later(world, pairs, seconds)


@fault("channel.server", 2)
async def server(world: Surroundings, rng: random.Random) -> bool:
    """No caller reaches one server any more, which goes on among its peers."""
    seconds, told = _seconds(rng), rng.random() < 0.5
    number = rng.choice(world.servers.numbers())
    pairs = [(caller, number) for caller in world.channels.callers()]
    for caller, _ in pairs:
        if told:
            world.channels.cut(caller, number)
        else:
            world.channels.cut_silently(caller, number)
    return _heal_later(world, pairs, seconds)


@fault("channel.late", 2)
async def late(world: Surroundings, rng: random.Random) -> bool:
    """What one caller sends is held up until it has long moved on to another server, and then
    arrives."""
    seconds = rng.uniform(2.0, 20.0)
    links = world.channels.links()
    if not links:
        return False
    link = rng.choice(links)
    world.channels.cut_silently(link.caller, link.server, to_caller=False)
    return _heal_later(world, [(link.caller, link.server)], seconds)


@fault("channel.reset", 3)
async def reset(world: Surroundings, rng: random.Random) -> bool:
    """Connections break with what was under way half delivered."""
    links = world.channels.links()
    count = rng.choice((1, 1, 3, len(links)))
    chosen = rng.sample(links, min(count, len(links)))
    for caller, number in {(link.caller, link.server): None for link in chosen}:
        world.channels.reset(caller, number)
    return bool(chosen)


@fault("channel.slow", 2)
async def slow(world: Surroundings, rng: random.Random) -> bool:
    """One caller and some servers hear each other late, up to beyond a lease, or a few bytes at a
    time."""
    seconds = _seconds(rng)
    delay_s = rng.choice((0.05, 0.5, 2.0, 8.0)) * rng.random()
    bytes_per_s = rng.choice((0.0, 0.0, 500.0, 20_000.0))
    pairs = _pairs_of_one(world, rng)
    for caller, number in pairs:
        world.channels.slow(caller, number, delay_s, bytes_per_s)
    return _heal_later(world, pairs, seconds)


@fault("channel.uneven", 2)
async def uneven(world: Surroundings, rng: random.Random) -> bool:
    """Single messages of anybody are held up, so that others overtake them."""
    seconds, share = _seconds(rng), rng.choice((0.02, 0.1, 0.3))
    longest_s = rng.choice((0.1, 1.0, 4.0))
    stream = random.Random(rng.getrandbits(64))

    def rule(caller: str, message: ToServer | ToClient) -> float | None:
        return stream.random() * longest_s if stream.random() < share else None

    world.kernel.trace.note("channel.uneven", share=share, longest_s=longest_s)
    world.kernel.call_later(seconds, world.channels.delay_rule(rule))
    return True


@fault("channel.broken_off", 2)
async def broken_off(world: Surroundings, rng: random.Random) -> bool:
    """For a while, connections break when something is said on them: requests and reports that
    nobody hears, answers that come to nobody."""
    seconds, share = _seconds(rng), rng.choice((0.05, 0.2))
    kinds = rng.choice(((Submit,), (Results,), (Submit, Results)))
    stream = random.Random(rng.getrandbits(64))

    def rule(caller: str, message: ToServer | ToClient) -> float | None:
        if isinstance(message, kinds) and stream.random() < share:
            delay_s = stream.random() * 0.01
            for link in world.channels.links(caller):
                world.kernel.call_later(delay_s, world.channels.reset, caller, link.server)
        return None

    world.kernel.trace.note("channel.broken_off", share=share, kinds=len(kinds))
    world.kernel.call_later(seconds, world.channels.delay_rule(rule))
    return True


# Clients


@fault("client.crash", 2)
async def crash(world: Surroundings, rng: random.Random) -> bool:
    """A client's program is killed with calls under way, and started again later."""
    client = _client(world, rng)
    if client is None:
        return False
    world.kernel.trace.note("client.crash", client=client.name, calls=len(client.open_calls))
    world.clients.crash(client.name)
    return True


@fault("client.pause", 2)
async def pause(world: Surroundings, rng: random.Random) -> bool:
    """A client's program stands still, for as long as its calls may take or longer."""
    seconds = rng.choice((1.0, 10.0, 30.0)) * rng.uniform(0.5, 1.5)
    client = _client(world, rng)
    if client is None:
        return False
    world.kernel.trace.note("client.pause", client=client.name, calls=len(client.open_calls))
    world.clients.pause(client.name)
    world.kernel.call_later(seconds, world.clients.resume, client.name)
    return True


@fault("client.burst", 2)
async def burst(world: Surroundings, rng: random.Random) -> bool:
    """A client asks for many things at once, at times for more than servers remember of it."""
    count = rng.choice((10, 40, 150))
    client = _client(world, rng)
    if client is None:
        return False
    world.kernel.trace.note("client.burst", client=client.name, count=count)
    world.clients.burst(client.name, count)
    return True


@fault("client.twice", 2)
async def twice(world: Surroundings, rng: random.Random) -> bool:
    """One request goes to several servers at once under one key."""
    numbers = world.servers.numbers()
    chosen = rng.sample(numbers, rng.randint(1, len(numbers)))
    chosen += rng.choices(chosen, k=rng.randint(1, 2))
    client = _client(world, rng)
    if client is None:
        return False
    text = f"under one key from {client.name}"
    if rng.random() < 0.3 and len(client.seen.jobs) < world.clients.mix.jobs_limit:
        name = f"{client.name}-keyed{len(world.clients.calls)}"
        world.clients.ask_twice(client.name, JobSubmitted(draw_job(rng, name)), chosen)
    else:
        world.clients.ask_twice(client.name, NoteAdded("", "twice", text), chosen)
    return True


def _seconds(rng: random.Random) -> float:
    """How long something lasts: from a blip to more than servers wait for an answer to a ping."""
    return rng.choice((0.5, 3.0, 10.0, 25.0)) * rng.uniform(0.5, 1.5)


def _pairs_of_one(world: Surroundings, rng: random.Random) -> list[tuple[str, int]]:
    """One caller with some of the servers."""
    callers, numbers = world.channels.callers(), world.servers.numbers()
    if not callers:
        return []
    caller = rng.choice(callers)
    count = len(numbers) if rng.random() < 0.4 else rng.randint(1, len(numbers))
    return [(caller, number) for number in sorted(rng.sample(numbers, count))]


def _heal_later(world: Surroundings, pairs: list[tuple[str, int]], seconds: float) -> bool:
    for caller, number in pairs:
        world.kernel.call_later(seconds, world.channels.heal, caller, number)
    return bool(pairs)


def _client(world: Surroundings, rng: random.Random) -> SimClient | None:
    """One whose program runs."""
    found = [
        client
        for client in world.clients.all.values()
        if client.process is not None and client.process.alive and not client.process.paused
    ]
    return rng.choice(found) if found else None
