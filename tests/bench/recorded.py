"""Recorded failures of clusters driven through the core: nodes of 23 systems over nine years, and
the lives of the GPUs of one machine over six.

`python -m tests.bench.recorded` drives all of it, and tells how far it is.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import io
import lzma
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from coord.model.place import Place
from tests.bench.figures import Figure, reference_s
from tests.bench.recorded_fleet import Counts, Fleet, Machine

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "failures"
BLOCK = 32
"""Nodes to a rack, which the record does not tell."""
DOUBLE_BIT, OFF_THE_BUS = 48, 79
TOGETHER = 4
"""So many parts taken out in one minute were switched off, not drained one by one."""

Told = Callable[[str], None]


def is_there() -> bool:
    return RECORDED.exists()


# Nodes of 23 systems


def node_failures() -> dict[str, list[tuple[datetime, int, int]]]:
    """System -> (minute, node, minutes down), in order of time."""
    found: dict[str, list[tuple[datetime, int, int]]] = defaultdict(list)
    (path,) = (RECORDED / "lanl_1996_2005").glob("*.csv.xz")
    with lzma.open(path) as packed:
        for row in csv.DictReader(io.TextIOWrapper(packed, encoding="latin1")):
            at = datetime.strptime(row["Prob Started"], "%m/%d/%Y %H:%M")
            found[row["System"]].append(
                (at, int(row["nodenumz"] or row["nodenum"] or 0), int(row["Down Time"]))
            )
    return {name: sorted(found[name]) for name in sorted(found, key=int)}


def live_through(system: str, failures: list[tuple[datetime, int, int]]) -> Counts:
    """All failures of one system, each with its repair."""
    nodes = sorted({node for _, node, _ in failures})
    machines = {node: _machine(system, node) for node in nodes}
    fleet = Fleet(system, [machines[node] for node in nodes], max(min(16, len(nodes) // 8), 1))
    minutes: dict[datetime, dict[int, int]] = defaultdict(dict)
    for at, node, down in failures:
        minutes[at][node] = max(down, minutes[at].get(node, 0))
    repairs: list[tuple[datetime, int, int]] = []
    boots = dict.fromkeys(nodes, 1)
    now = min(minutes)
    told = 0
    for at in sorted(minutes):
        while repairs and repairs[0][0] <= at:
            back, node, boot = heapq.heappop(repairs)
            if boot != boots[node]:
                continue  # it failed again before it was back
            now = _advance(fleet, now, back)
            fleet.insert(_with_boot(machines[node], boot))
        now = _advance(fleet, now, at)
        failed = [node for node in minutes[at] if fleet.is_live(machines[node].host)]
        told += len(minutes[at])
        if failed:
            fleet.fall_silent([machines[node].host for node in sorted(failed)])
        for node, down in minutes[at].items():
            boots[node] += 1
            heapq.heappush(repairs, (at + timedelta(minutes=max(down, 2)), node, boots[node]))
    fleet.end_incident()
    fleet.check()
    return fleet.counts


def _advance(fleet: Fleet, now: datetime, at: datetime) -> datetime:
    """Log time is ahead by what verdicts took; a recorded moment that has passed is now."""
    if at > now:
        fleet.pass_time(int((at - now).total_seconds()) * 1_000)
    return max(now, at)


def _machine(system: str, node: int) -> Machine:
    return Machine(f"n{node}", Place("site", f"system{system}", f"block{node // BLOCK}"))


def _with_boot(machine: Machine, boot: int) -> Machine:
    return Machine(machine.host, machine.place, str(boot))


# GPUs of one machine

Life = tuple[datetime, datetime, str, str, str]
"""Inserted, removed, location, serial number, event."""


def gpu_lives() -> dict[str, list[Life]]:
    """Row of cabinets -> lives in it."""
    found: dict[str, list[Life]] = defaultdict(list)
    with gzip.open(RECORDED / "titan_gpu" / "gc_full.csv.gz", "rt") as packed:
        for row in csv.DictReader(packed):
            cabinet = row["location"].partition("c")[2].partition("c")[0]
            end = datetime.fromisoformat(row["remove"])
            # Of some it was never noted when they came: they were there from the beginning.
            begin = datetime.fromisoformat(row["insert"]) if row["insert"] else datetime.min
            life = (begin, end, row["location"], row["SN"], row["event"] or "")
            found[cabinet.partition("-")[2]].append(life)
    return {name: found[name] for name in sorted(found)}


def live_lives(row: str, lives: list[Life], *, until: int = 0) -> Counts:
    """Parts are inserted, fail and are taken out as recorded; `until`: so many ends of lives."""
    last = max(end for _, end, *_ in lives)
    ends: dict[datetime, list[Life]] = defaultdict(list)
    for life in lives:
        if life[1] < last:  # all that were there at the end of the record were well
            ends[life[1].replace(second=0)].append(life)
    begins: dict[datetime, list[Life]] = defaultdict(list)
    noted = min(begin for begin, *_ in lives if begin > datetime.min)
    for life in lives:
        begins[max(life[0], noted).replace(second=0)].append(life)
    moments = sorted({*ends, *begins})
    first = next(at for at in moments if at in begins)
    fleet = Fleet(row, [_gpu(life) for life in _one_each(begins.pop(first))], 16)
    now, ended = first, 0
    for at in moments:
        now = _advance(fleet, now, at)
        ended += len(ends.get(at, ()))
        _end_lives(fleet, ends.get(at, []))
        _begin_lives(fleet, begins.get(at, []))
        if until and ended >= until:
            break
    fleet.pass_time(60_000)
    fleet.end_incident()
    fleet.check()
    return fleet.counts


def _begin_lives(fleet: Fleet, lives: list[Life]) -> None:
    """Where another part is still at work, the place is switched off first."""
    came = list(_one_each(lives))
    occupied = [life[2] for life in came if fleet.is_live(life[2])]
    if occupied:
        fleet.fall_silent(occupied)
    for life in came:
        fleet.insert(_gpu(life))


def _end_lives(fleet: Fleet, lives: list[Life]) -> None:
    silent, planned = [], []
    for _, _, location, _, event in _one_each(lives):
        if not fleet.is_live(location):
            continue
        if event == "DBE":
            fleet.fault(location, DOUBLE_BIT)
        elif event == "OTB":
            fleet.fault(location, OFF_THE_BUS)
        (silent if event else planned).append(location)
    if len(planned) >= TOGETHER:
        silent, planned = [*silent, *planned], []
    if silent:
        fleet.fall_silent([name for name in silent if fleet.is_live(name)])
    for location in planned:
        if fleet.is_live(location):
            fleet.take_out(location)


def _one_each(lives: list[Life]) -> Iterator[Life]:
    """The last one of each location, in the order of the record."""
    yield from {life[2]: life for life in lives}.values()


def _gpu(life: Life) -> Machine:
    """`c11-2c1s4n1`: cabinet, cage, slot, node."""
    location = life[2]
    cabinet, cage = location[1:].split("c")
    return Machine(
        location, Place("titan", f"c{cabinet}", f"c{cage[0]}", cage.partition("n")[0]), life[3]
    )


# All of it


def drive(told: Told, *, systems: int = 0, rows: int = 0) -> dict[str, tuple[Counts, float]]:
    """What was lived through -> counts and CPU seconds; 0 for all systems, all rows."""
    found = {}
    for name, failures in list(node_failures().items())[: systems or None]:
        found[f"nodes, system {name}"] = _timed(
            told, f"system {name}", partial(live_through, name, failures)
        )
    for name, lives in list(gpu_lives().items())[: rows or None]:
        found[f"GPUs, row {name}"] = _timed(told, f"row {name}", partial(live_lives, name, lives))
    return found


def _timed(told: Told, name: str, work: Callable[[], Counts]) -> tuple[Counts, float]:
    began = time.process_time()
    counts = work()
    took_s = time.process_time() - began
    told(
        f"{name}: {counts.failures:,} failures, {counts.bursts} bursts, {counts.restarts:,} "
        f"restarts, {counts.entries:,} entries, {counts.checks:,} checks, {took_s:.1f} CPU s"
    )
    return counts, took_s


def measure(runs: int) -> list[Figure]:
    """Once, whatever `runs` says: it is the same every time."""
    if not is_there():
        return []
    found = drive(lambda line: print(line, file=sys.stderr, flush=True))
    entries = sum(counts.entries for counts, _ in found.values())
    took_s = sum(seconds for _, seconds in found.values())
    restarts = sum(counts.restarts for counts, _ in found.values())
    failures = sum(counts.failures for counts, _ in found.values())
    reference = [reference_s()]
    note = f"{failures:,} failures, {restarts:,} restarts; no invariant broken, one restart each"
    return [
        Figure(
            "recorded failures: entries", "1/s", None, False, [entries / took_s], reference, note
        ),
        Figure("recorded failures: all of them", "CPU s", None, True, [took_s], reference),
    ]


if __name__ == "__main__":
    for figure in measure(1):
        print(f"{figure.name}: {figure.median:,.0f} {figure.unit}. {figure.note}")
