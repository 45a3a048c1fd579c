"""Why a gang waits, or where it went: the answer to `coordctl job why`."""

from __future__ import annotations

import msgspec


class Sieve(msgspec.Struct, frozen=True, omit_defaults=True):
    """Candidates that were left after one more thing was asked of them."""

    asked: str
    """`known`, `up`, `device type`, `rails`, `company`, `near`, `free` or `domain`."""
    hosts: int
    excluded: int = 0
    why: dict[str, int] = {}
    """How many were excluded for each reason."""
    examples: tuple[str, ...] = ()
    """Some of the excluded hosts, each with what it lacks."""


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How well a host suits the gang: compared from left to right, the least is best."""

    host: str
    fit: int
    """Replicas that have places there now."""
    distance: int = 0
    """Levels of the tree between it and the role that it should be near; 0 where none is named."""
    wasted: int = 0
    """By how much a replica there makes more of what no typical job can use: thousandths of devices
    times the weights of the shapes; below 0 where it fills what was of no use."""
    left: tuple[int, int, int] = (0, 0, 0)
    """Free there: thousandths of devices, thousandths of CPUs, mebibytes."""


class Leaving(msgspec.Struct, frozen=True, omit_defaults=True):
    """A gang that is stopped for another one."""

    gang: str
    tasks: int
    """That are still there."""
    within_ms: int = 0
    """Until its notice is over, by log time; then its processes are killed."""


class QueueWhy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a waiting gang's queue has to do with it, as things are now. Devices in thousandths."""

    queue: str
    needs: int = 0
    """For the least that it starts with now."""
    used: int = 0
    """By all of the queue."""
    quota: int = 0
    may_borrow: int = -1
    """-1: whatever is free."""
    left: int = -1
    """What the queue may still use; -1: whatever is free."""
    kept_back: int = 0
    """What other queues neither use nor lend."""
    over: bool = False
    """It must wait for its queue, whatever is free."""
    closed: tuple[str, ...] = ()
    """Device types of which the queue may not use so much more."""
    before: tuple[str, ...] = ()
    """Gangs whose turn is before its own, the next ones first."""
    turn: int = 0
    """How many these are, and itself."""
    first: str = ""
    """The gang for which room is kept from it: it would start otherwise."""
    kept: dict[str, int] = {}
    """Where room is kept for it from those behind it: replicas by host."""
    leaving: tuple[Leaving, ...] = ()
    """Who is being stopped for it."""
    whole: int = 0
    """Replicas that it waits for, though it would start with fewer later; 0: it does not."""
    whole_for_ms: int = 0
    """How much longer, by log time."""


class GangWhy(msgspec.Struct, frozen=True, omit_defaults=True):
    """One gang's part of the answer."""

    gang: str
    phase: str
    reason: str = ""
    """A word of `QueueReason`, while it waits."""
    detail: str = ""
    sieves: tuple[Sieve, ...] = ()
    """For a gang that runs or has ended: as it would be placed now, were its places free."""
    wanted: int = 0
    smallest: int = 0
    fit: int = 0
    """Replicas that have places now, all constraints counted, up to those wanted."""
    domains: dict[str, int] = {}
    """Of the level it must stand within, or is spread over: replicas that fit in each; the best
    ones."""
    hosts: dict[str, int] = {}
    """Where it is, or was last: replicas by host, in the order of its ranks."""
    chosen: tuple[Standing, ...] = ()
    """The hosts it has or would get, the worst of them first, as they stood before."""
    best_other: Standing | None = None
    """The best of those it did not get."""
    queue: QueueWhy | None = None
    """While it waits, by rules that know queues."""


class JobWhy(msgspec.Struct, frozen=True, omit_defaults=True):
    job: str
    status: str
    gangs: tuple[GangWhy, ...] = ()
    never_fits: tuple[str, ...] = ()
    """What no host of the fleet as it is could give, though all were free."""
    applied_index: int = 0
