"""The port that nemeses break: what lies between the parties, one direction at a time.

Two networks carry it out, `Proxied` and `Namespaces`, and one contract suite runs on both. Parties
are those of `jepsen_lite.cluster.parties`. Calls block for milliseconds and come from one thread at
a time.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

CAPABILITIES = ("cut", "one_way", "delay", "throttle", "lossy", "reset")


class NetworkFailed(Exception):
    """The network cannot be had, or is gone; the message says what to do."""


class NotPossible(Exception):
    """This cluster, network or disk cannot do what was asked; the message says why, and what can.

    Nothing was changed.
    """


class Place(msgspec.Struct, frozen=True):
    """Where a party lives. `address` is where others reach it, `listens` where its servers listen;
    `prefix` goes before the command of each of its processes."""

    party: str
    address: str
    listens: str
    prefix: tuple[str, ...] = ()


class Shape(msgspec.Struct, frozen=True):
    """What happens to what one party sends to another; all zero: nothing."""

    cut: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_s: int = 0
    share: float = 0.0


class Network(Protocol):
    """A cluster opens it, gives every party a place, and closes it."""

    name: str
    can: frozenset[str]
    """Of CAPABILITIES; the others raise NotPossible."""
    missing: dict[str, str]
    """Why, for each capability that it lacks."""

    def open(self) -> None:
        """Raises NetworkFailed."""

    def close(self) -> None:
        """Idempotent. No process may use it any more."""

    def add(self, party: str, ports: tuple[int, ...] = ()) -> Place:
        """Make a place for a party, where it will listen at `ports`. Raises NetworkFailed."""

    def cut(self, source: str, target: str) -> None:
        """Let nothing from source reach target any more. Connections stay, silent; what is sent
        meanwhile arrives after `heal`. The other direction is left alone."""

    def delay(self, source: str, target: str, ms: float, jitter_ms: float = 0.0) -> None:
        """Let everything from source to target arrive `ms`, and up to `jitter_ms` more, later."""

    def throttle(self, source: str, target: str, bytes_s: int) -> None:
        """Let no more than `bytes_s` bytes a second go from source to target."""

    def lossy(self, source: str, target: str, share: float) -> None:
        """Lose a share (0 to 1) of what source sends to target, as TCP shows it: it comes late."""

    def reset(self, source: str, target: str) -> None:
        """Break every connection between the two, once; what source has under way to target arrives
        in part or not at all."""

    def mend(self, source: str, target: str) -> None:
        """Take back what was done to this direction alone."""

    def heal(self) -> None:
        """Take back every cut, delay, throttle and loss."""


class Shapes:
    """What is asked of each direction so far; networks translate it."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str], Shape] = {}

    def change(self, source: str, target: str, **changes: float) -> Shape:
        """Add to what happens between the two already. Raises ValueError for what cannot be."""
        if source == target:
            raise ValueError(f"{source} needs no network to reach itself; name two parties")
        _check(changes)
        shape = msgspec.structs.replace(self.table.get((source, target), Shape()), **changes)
        self.table[source, target] = shape
        return shape


def _check(changes: dict[str, float]) -> None:
    for name, value in changes.items():
        if value < 0:
            raise ValueError(f"{name} is {value}; it must be at least 0")
    if changes.get("share", 0.0) > 1:
        raise ValueError(f"share is {changes['share']}; it must be 0 (none is lost) to 1 (all)")


def require(network: Network, capability: str) -> None:
    """Raises NotPossible unless the network has it."""
    if capability not in network.can:
        raise NotPossible(
            f"the network '{network.name}' cannot {capability}: {network.missing[capability]}"
        )
