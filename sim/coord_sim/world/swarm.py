"""What a seed draws: the climate of its run.

Runs that all meet every misfortune at one rate differ in order only. Here each seed allows a random
subset of the faults, at a rate, with weights, sizes and a mix of requests of its own, so that runs
differ in kind (Groce and others, "Swarm testing", 2012). Each aspect has its own random stream:
to take a fault away from a run leaves the rest of its climate alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgspec

from coord_sim.world.focuses import FOCUSES
from coord_sim.world.options import WorldOptions, chosen_faults

NETWORKS = ("orderly", "delays", "chaos")
DISKS = ("fast", "slow", "uneven")
REQUESTS = ("submit", "cancel", "resize", "drain", "undrain", "allow", "note", "remove", "read")
MEMBERSHIP_FAULTS = "members."
CRASH_VISITS = (5, 40)
"""Means: some sites are passed all the time, some a few times a run."""


class CrashSite(msgspec.Struct, frozen=True):
    """Whatever process comes to this place in the code for the n-th time dies there."""

    site: str
    visit: int


class Climate(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is decided before a run begins. Gaps are means, in virtual seconds."""

    nodes: int
    hosts: int
    jobs: int
    clients: int
    devices: int
    network: str
    disk: str
    fault_gap_s: float
    request_gap_s: float
    faults: dict[str, int] = {}
    """Weight of each fault that may happen."""
    requests: dict[str, int] = {}
    patience_s: float = 10.0
    """How long people wait for an answer."""
    crash_sites: tuple[CrashSite, ...] = ()
    skews_ms: tuple[int, ...] = ()
    """Of each server's wall clock at the start."""
    snapshot_entries: int = 200
    keep_entries: int = 20
    """Commands that stay in the log behind a snapshot."""
    readable_entries: int = 0
    """Entries that stay readable; 0 for all."""

    def line(self) -> str:
        """The climate in one line, for whoever compares runs."""
        parts = [
            f"{self.nodes} nodes, {self.hosts} hosts of {self.devices} devices, {self.jobs} jobs, "
            f"{self.clients} clients",
            f"network {self.network}",
            f"disk {self.disk}",
            f"a request every {self.request_gap_s:g} s, awaited for {self.patience_s:g} s",
            f"snapshots every {self.snapshot_entries} commands, of which {self.keep_entries} stay",
        ]
        if self.readable_entries:
            parts.append(f"{self.readable_entries} entries stay readable")
        if any(self.skews_ms):
            parts.append(f"clocks off by {', '.join(str(skew) for skew in self.skews_ms)} ms")
        if self.faults:
            listed = ", ".join(
                name if weight == 1 else f"{name} x{weight}" for name, weight in self.faults.items()
            )
            parts.append(f"a fault every {self.fault_gap_s:g} s of {listed}")
        else:
            parts.append("no faults")
        if self.crash_sites:
            listed = ", ".join(f"{crash.site} #{crash.visit}" for crash in self.crash_sites)
            parts.append(f"crashes at {listed}")
        return "; ".join(parts)


def draw_climate(
    seed: int, options: WorldOptions, known_faults: Iterable[str], known_sites: Sequence[str]
) -> Climate:
    """The climate of this seed. Needs nothing but its arguments."""
    sizes, weather, work = _stream(seed, "sizes"), _stream(seed, "weather"), _stream(seed, "work")
    hosts = sizes.choice((2, 3, 4, 6, 8, 10))
    jobs = sizes.choice((1, 2, 3, 4, 6))
    faults = _faults(_stream(seed, "faults"), options, sorted(known_faults))
    network, disk = weather.choice(NETWORKS), weather.choice(DISKS)
    skewed = weather.random() < 0.5
    skews_ms = [weather.randint(-5_000, 5_000) for _ in range(options.nodes)]
    climate = Climate(
        nodes=options.nodes,
        hosts=options.hosts or hosts,
        jobs=options.jobs or jobs,
        clients=sizes.choice((1, 2, 3)),
        devices=sizes.choice((1, 2, 4)),
        network=network if faults else NETWORKS[0],
        disk=disk if faults else DISKS[0],
        fault_gap_s=weather.choice((0.5, 1.0, 2.0, 4.0, 8.0)),
        request_gap_s=work.choice((0.5, 1.0, 2.0, 4.0)),
        faults=faults,
        requests=_requests(work),
        patience_s=work.choice((2.0, 5.0, 10.0, 10.0)),
        crash_sites=_crash_sites(_stream(seed, "sites"), options, known_sites),
        skews_ms=tuple(skews_ms) if skewed and faults else (),
        snapshot_entries=weather.choice((20, 60, 200, 100_000)),
        keep_entries=weather.choice((2, 5, 20, 200)),
        readable_entries=weather.choice((0, 0, 100, 600)),
    )
    return _focused(climate, options) if options.focus else climate


def _focused(climate: Climate, options: WorldOptions) -> Climate:
    """As the focus says, where it says anything."""
    focus = FOCUSES[options.focus]
    allowed = chosen_faults(options.faults, focus.faults)
    faults = {
        name: focus.faults[name]
        for name in allowed
        if options.membership or not name.startswith(MEMBERSHIP_FAULTS)
    }
    return msgspec.structs.replace(climate, faults=faults, **focus.changes)


def _faults(rng: random.Random, options: WorldOptions, known: list[str]) -> dict[str, int]:
    """A subset with weights. Every known fault is drawn for, so that to deny one shifts no other;
    in every other run membership is left alone, because it makes some faults fatal together."""
    breadth = rng.choice((0.15, 0.3, 0.6, 1.0))
    calm = rng.random() < 0.04
    members_move = rng.random() < 0.5
    drawn = {name: (rng.random() < breadth, rng.choice((1, 1, 2, 4))) for name in known}
    allowed = chosen_faults(options.faults, known)
    return {
        name: weight
        for name, (enabled, weight) in drawn.items()
        if enabled
        and not calm
        and name in allowed
        and (not name.startswith(MEMBERSHIP_FAULTS) or (options.membership and members_move))
    }


def _requests(rng: random.Random) -> dict[str, int]:
    """Weights of what clients ask for; submitting is always among it."""
    weights = {name: rng.choice((0, 1, 2, 4)) for name in REQUESTS}
    return {**weights, "submit": max(1, weights["submit"])}


def _crash_sites(
    rng: random.Random, options: WorldOptions, known: Sequence[str]
) -> tuple[CrashSite, ...]:
    crashing = rng.random() < 0.5
    count = rng.choice((1, 2, 4))
    names = sorted(known)
    drawn = [
        CrashSite(rng.choice(names), int(rng.expovariate(1 / rng.choice(CRASH_VISITS))) + 1)
        for _ in range(count)
        if names
    ]
    if not crashing or "site.crash" not in chosen_faults(options.faults, ("site.crash",)):
        return ()
    return tuple(sorted(drawn, key=lambda crash: (crash.site, crash.visit)))


def _stream(seed: int, name: str) -> random.Random:
    return random.Random(f"climate/{seed}/{name}")
