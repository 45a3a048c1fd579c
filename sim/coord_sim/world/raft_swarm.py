"""What a run of servers alone draws from its seed: sizes, clockwork, misfortunes, and a focus."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from coord.raft.timings import RaftTimings
from coord_sim.world.raft_faults import MENU
from coord_sim.world.server import ClusterTimings
from coord_sim.world.server_faults import FAULTS

FOCUS_SHARE = 0.75
"""So many seeds have a focus; the others meet whatever there is."""
ROUND_SECONDS = (20.0, 30.0, 45.0)
"""Virtual, of faults, for a run of a round. What a focus is for comes about within half a minute
mostly: more rounds show more than longer runs, but for what only long histories have."""


class RaftSwarm(msgspec.Struct, frozen=True):
    """What a seed has drawn."""

    focus: str
    """Of FOCUSES, or empty."""
    count: int
    chaos: bool
    weights: dict[str, int]
    gap_s: float
    rate_per_s: float
    writers: int
    keep_entries: int
    snapshot_entries: int
    bursts: int
    """So many proposals are made at once, straight at the log, which leaves long uncommitted tails;
    0 to submit through the node, which has one command outstanding."""
    quick: bool
    """Elections follow on silence sooner, which makes more terms."""
    append_bytes: int
    """An append carries so much. Where it is little, as where entries are large, a follower gets
    what it lacks in many parts."""


class Focus(msgspec.Struct, frozen=True):
    """A climate in which one kind of hazard comes about often."""

    told: str
    share: int
    """How often it is drawn, beside the others."""
    weights: dict[str, int]
    changes: dict[str, Any] = {}


FOCUSES: dict[str, Focus] = {
    "terms": Focus(
        "leadership comes back to a leader while answers to it from before are under way",
        1,
        {"log.to_and_fro": 3},
        {"count": 5, "bursts": 12, "rate_per_s": 4.0, "gap_s": 3.0, "chaos": False},
    ),
    "tails": Focus(
        "leaders append what nobody confirms, and come back to logs that were shortened",
        2,
        {"raft.deaf_leader": 3, "net.isolate_leader": 1},
        {
            "bursts": 6,
            "rate_per_s": 8.0,
            "keep_entries": 2,
            "snapshot_entries": 100_000,
            "gap_s": 3.0,
            "append_bytes": 300,
        },
    ),
    "snapshots": Focus(
        "snapshots take long, and are overtaken by newer ones",
        1,
        {"raft.stale_snapshot": 2, "log.away": 2, "log.slow_snapshot": 2, "members.swap": 1},
        {"keep_entries": 2, "snapshot_entries": 100_000, "gap_s": 3.0},
    ),
    "offers": Focus(
        "followers that lag are sent entries and snapshots, and answers overtake each other",
        2,
        {"raft.cut_under": 1},
        {
            "chaos": False,
            "bursts": 6,
            "rate_per_s": 8.0,
            "keep_entries": 2,
            "snapshot_entries": 100_000,
            "gap_s": 3.0,
            "count": 3,
            "quick": False,
            "append_bytes": 1 << 22,
        },
    ),
    "connections": Focus(
        "connections break and are replaced while the old ones still deliver",
        1,
        {"net.supersede": 3, "net.reset": 2, "net.flaky": 1, "net.slow": 1},
        {"bursts": 6, "rate_per_s": 4.0, "gap_s": 1.0, "chaos": False},
    ),
    "replaced": Focus(
        "leaders are replaced and do not hear of it",
        1,
        {"raft.hushed_transfer": 2, "net.isolate_leader": 1, "server.pause": 1},
        {"gap_s": 3.0, "chaos": False},
    ),
    "elections": Focus(
        "leaders are lost again and again, and votes are lost, repeated and overtaken",
        1,
        {
            "net.partition": 2,
            "net.isolate_leader": 2,
            "net.chaos": 2,
            "server.crash_leader": 1,
            "server.crash_in_commit": 3,
        },
        {"count": 5, "quick": True, "chaos": True, "gap_s": 1.0, "rate_per_s": 2.0},
    ),
    "disks": Focus(
        "disks of leaders fill up or take long, and power is lost",
        1,
        {"disk.leader_full": 2, "disk.full": 1, "disk.slow": 2, "server.crash_leader": 3},
        {"gap_s": 3.0},
    ),
}


class Look(NamedTuple):
    """Arguments of `raft_run` for one of many runs."""

    seed: int
    focus: str
    seconds: float


def rounds(seed: int) -> Iterator[Look]:
    """Look everywhere, again and again, without end: each round has as many runs of each focus as
    its share, and one that meets whatever there is, in an order of its own."""
    rng = random.Random(f"raft rounds/{seed}")
    deck = ["", *(name for name in sorted(FOCUSES) for _ in range(FOCUSES[name].share))]
    while True:
        for focus in rng.sample(deck, len(deck)):
            yield Look(rng.randrange(2**48), focus, rng.choice(ROUND_SECONDS))


def draw(seed: int, chaos: bool | None = None, focus: str | None = None) -> RaftSwarm:
    """Needs nothing but its arguments. `chaos` and `focus` None: as drawn."""
    rng = random.Random(f"raft-swarm/{seed}")
    names = sorted(FOCUSES)
    focused = rng.choices(names, [FOCUSES[name].share for name in names])[0]
    if rng.random() >= FOCUS_SHARE:
        focused = ""
    breadth = rng.choice((0.08, 0.25, 1.0))
    weights = {
        name: FAULTS[name].weight * rng.choice((1, 1, 3))
        for name in sorted(FAULTS)
        if rng.random() < breadth
    }
    swarm = RaftSwarm(
        focus=focused if focus is None else focus,
        count=rng.choice((3, 5)),
        chaos=rng.random() < 0.5,
        weights=weights or {"server.crash": 1},
        gap_s=rng.choice((0.4, 1.0, 3.0)),
        rate_per_s=rng.choice((2.0, 8.0, 20.0)),
        writers=rng.choice((1, 3)),
        keep_entries=rng.choice((2, 10, 40)),
        snapshot_entries=rng.choice((15, 60, 100_000)),
        bursts=rng.choice((0, 3, 12)),
        quick=rng.random() < 0.5,
        append_bytes=rng.choice((300, 1 << 22, 1 << 22)),
    )
    swarm = _focused(swarm, rng)
    return swarm if chaos is None else msgspec.structs.replace(swarm, chaos=chaos)


def _focused(swarm: RaftSwarm, rng: random.Random) -> RaftSwarm:
    """With the climate of its focus, and one more misfortune now and then."""
    if not swarm.focus:
        return swarm
    focus = FOCUSES[swarm.focus]
    weights = {name: 3 * weight for name, weight in focus.weights.items()}
    if rng.random() < 0.5:
        weights.setdefault(rng.choice(sorted(MENU)), 1)
    return msgspec.structs.replace(swarm, weights=weights, **focus.changes)


def clockwork(swarm: RaftSwarm) -> ClusterTimings:
    """Of the servers."""
    plain = ClusterTimings(snapshot_entries=swarm.snapshot_entries)
    raft = plain.raft
    if swarm.quick:
        raft = RaftTimings(
            tick_ms=50,
            heartbeat_ms=150,
            notice_ms=10,
            election_min_ms=500,
            election_max_ms=1_000,
            orphan_min_ms=100,
            orphan_max_ms=250,
        )
    raft = msgspec.structs.replace(
        raft,
        keep_entries=swarm.keep_entries,
        append_bytes=swarm.append_bytes,
        window_bytes=4 * swarm.append_bytes,
    )
    return msgspec.structs.replace(plain, raft=raft)
