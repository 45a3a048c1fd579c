"""What is compared, and what ours is to reach. A row is a key of what the parts measure."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import msgspec

from tests.bench.etcd import ours, theirs
from tests.bench.etcd.ours import Values
from tests.bench.etcd.sizes import Sizes

Measure = Callable[[Sizes], Values]

PARTS: dict[str, tuple[Measure, Measure]] = {
    "heartbeats": (ours.heartbeats, theirs.heartbeats),
    "writes": (ours.writes, theirs.writes),
    "packed": (ours.packed, theirs.packed),
    "deaths": (ours.deaths, theirs.deaths),
    "failover": (ours.failover, theirs.failover),
    "change": (ours.change, theirs.change),
}


class Goal(msgspec.Struct, frozen=True):
    """`times_theirs`: the limit is of ours/etcd and needs both; else it is of ours alone."""

    limit: float
    at_most: bool = True
    times_theirs: bool = False

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.limit:,g}{' x etcd' if self.times_theirs else ''}"


class Work(msgspec.Struct, frozen=True):
    """One row. `worst`: its value is the largest of all runs and not their median."""

    key: str
    name: str
    unit: str
    goal: Goal | None = None
    worst: bool = False

    def value(self, measured: list[float]) -> float:
        return max(measured) if self.worst else statistics.median(measured)


class Row(msgspec.Struct):
    """A work measured. `ratio` is ours/etcd; `reached` is None where there is nothing to judge."""

    key: str
    name: str
    unit: str
    ours: float | None
    ours_spread: tuple[float, float] | None
    theirs: float | None
    theirs_spread: tuple[float, float] | None
    ratio: float | None
    goal: str
    reached: bool | None
    runs: int
    ours_values: list[float]
    theirs_values: list[float]


def works(sizes: Sizes) -> list[Work]:
    """Every row, in the order of the table."""
    rows = [
        Work("beat_us", "heartbeat: server CPU", "us", Goal(0.2, times_theirs=True)),
        Work("beat_rate", "heartbeats acknowledged", "1/s"),
        Work("beat_p99_ms", "heartbeat to its acknowledgement, p99", "ms"),
        Work("beats_lost", "connections lost meanwhile", ""),
        Work("beat_generator_us", "heartbeat: CPU of the generator", "us"),
        Work("connect_s", "all agents connected and registered", "s"),
        Work("memory_mib", "memory of the largest server", "MiB", Goal(0.25, times_theirs=True)),
        Work("log_bytes", "log on disk, a heartbeat", "B", Goal(3)),
        Work("journal_bytes", "raft's journal, until a snapshot shortens it", "B"),
    ]
    for writers in sizes.writers:
        limit = 2.0 if writers >= 256 else 1.0
        goal = Goal(limit, at_most=False, times_theirs=True)
        of = f"{writers} writer{'s' if writers > 1 else ''}"
        rows += [
            Work(f"writes_{writers}", f"acknowledged events, {of}", "1/s", goal),
            Work(f"write_p50_ms_{writers}", f"latency p50, {of}", "ms"),
            Work(f"write_us_{writers}", f"server CPU an event, {of}", "us"),
            Work(f"write_client_us_{writers}", f"client CPU an event, {of}", "us"),
        ]
    rows += [
        Work("packed_rate", "packed events", "1/s", Goal(30_000, at_most=False)),
        Work("packed_us", "packed: server CPU an event", "us", Goal(40)),
        Work("packed_generator_us", "packed: CPU of the generator", "us"),
        Work("death_s", "one death noticed, past its lease: median", "s"),
        Work("death_worst_s", "one death noticed: worst", "s", Goal(0.3), worst=True),
        Work("deaths_middle_s", f"{sizes.dying:,} deaths at once, past the lease: p50", "s"),
        Work("deaths_last_s", f"{sizes.dying:,} deaths at once: the last", "s", Goal(1.0)),
        Work("death_false", "verdicts against the living", "", Goal(0), worst=True),
        Work("failover_s", "leader killed: first write, median", "s", Goal(1, times_theirs=True)),
        Work("failover_s", "the same, worst", "s", Goal(1, times_theirs=True), worst=True),
        Work("failover_client_s", "the same through etcd's own client", "s"),
        Work("failover_false", "verdicts against the living", "", Goal(0), worst=True),
        Work("change_ms", f"one change to {sizes.receivers:,} agents: last has it", "ms", Goal(60)),
        Work("placed_ms", f"a gang of {sizes.receivers:,} hosts placed: last has it", "ms"),
    ]
    return rows


def row(work: Work, own: list[float], other: list[float]) -> Row | None:
    """None when neither side measured it."""
    if not own and not other:
        return None
    mine = work.value(own) if own else None
    their = work.value(other) if other else None
    ratio = mine / their if mine is not None and their else None
    return Row(
        work.key,
        work.name,
        work.unit,
        mine,
        (min(own), max(own)) if own else None,
        their,
        (min(other), max(other)) if other else None,
        ratio,
        str(work.goal) if work.goal else "",
        _reached(work.goal, mine, ratio),
        max(len(own), len(other)),
        own,
        other,
    )


def _reached(goal: Goal | None, mine: float | None, ratio: float | None) -> bool | None:
    judged = ratio if goal is not None and goal.times_theirs else mine
    if goal is None or judged is None:
        return None
    return judged <= goal.limit if goal.at_most else judged >= goal.limit
