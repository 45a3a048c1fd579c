"""What a nemesis is: a kind of misfortune that can be drawn, begun and ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from jepsen_lite.cluster.cluster import Cluster


class Misfortune(msgspec.Struct, frozen=True):
    """One draw: what happens to whom, and how long."""

    what: str
    """In words, for the history and the report."""
    targets: tuple[str, ...]
    """Parties."""
    lasts_s: float
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]


Draw = Callable[[Cluster, random.Random], Awaitable[Misfortune | None]]


class Nemesis(msgspec.Struct, frozen=True):
    """A kind of misfortune. `draw` returns None when there is nobody to befall just now."""

    name: str
    line: str
    """What it does, in a sentence."""
    draw: Draw
    needs: frozenset[str] = frozenset()
    """Of NEEDS: what cluster, network and disks must be able to do."""
    gap_s: float = 2.0
    """Mean time from the end of one to the beginning of the next."""


NEEDS = (
    "agents",
    "processes",
    "network.cut",
    "network.one_way",
    "network.delay",
    "network.throttle",
    "network.lossy",
    "network.reset",
    "disk.full",
    "disk.slow_fsync",
    "disk.lose_unsynced",
    "disk.damage",
)


def at_once(*calls: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    """One action after the other, away from the event loop: killing and starting block."""

    async def act() -> None:
        await asyncio.to_thread(lambda: [call() for call in calls])

    return act


async def nothing() -> None:
    """Of a misfortune that ends by itself."""
