"""Recorded arrivals through queues: `python -m tests.bench.queues [--days N] [--profile]`.

The Philly arrivals (30,940 jobs of 11 virtual clusters in 14 days; minutes) on 160 hosts of 8
devices, each virtual cluster a queue whose quota is its share of the nodes; and the language-model
gangs of Kalos (319 jobs, up to 1,024 devices) in the time of 14 days on 302 hosts of 8, with the
daily quotas of the Helios Earth cluster. Both by the first rules (first come) and by queues.
"""

from __future__ import annotations

import cProfile
import csv
import gzip
import pstats
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from coord.model.queue import QueueSpec
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.bench.arrivals import Arrival, Lived, Replay, never_placed, waits_by_size

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "placement"
MINUTE_MS = 60_000
DAY_MS = 1_440 * MINUTE_MS
EACH = 8
PHILLY_HOSTS = 160
KALOS_HOSTS = 302


def philly(days: int, kind: str = "MIX1") -> tuple[list[QueueSpec], list[Arrival]]:
    """(its virtual clusters as queues, its jobs of the first days)."""
    with (RECORDED / "philly" / "philly_vc.csv").open() as file:
        nodes = {row["vc"]: int(row["node num"]) for row in csv.DictReader(file)}
    total = sum(nodes.values())
    queues = [
        QueueSpec(vc, count * PHILLY_HOSTS * EACH // total, may_preempt=True, notice_ms=60_000)
        for vc, count in sorted(nodes.items())
    ]
    arrivals = []
    with gzip.open(RECORDED / "philly" / f"chronus_trace_job_Philly_{kind}.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            at_ms = int(row["submit_time"]) * MINUTE_MS
            if at_ms < days * DAY_MS:
                spec = job(f"p{row['job_id']}", int(row["num_gpu"]), row["user"][3:], "")
                runs_ms = int(row["duration"]) * MINUTE_MS
                arrivals.append(Arrival(at_ms, spec, runs_ms, int(row["num_gpu"])))
    return queues, sorted(arrivals, key=lambda one: (one.at_ms, int(one.spec.name[1:])))


def kalos(days: int) -> tuple[list[QueueSpec], list[Arrival], list[tuple[int, QueueSpec]]]:
    """(queues of the first day, gangs, later quotas): 90 days of arrivals in the time of 14."""
    daily: list[dict[str, int]] = []
    with (RECORDED / "helios" / "Earth_gpu_number.csv").open() as file:
        for row in csv.DictReader(file):
            counts = {name: int(row[name]) for name in row if name not in ("date", "total")}
            daily.append({name: count for name, count in counts.items() if count})
    names = sorted(set.intersection(*(set(day) for day in daily[:days])))

    def specs(day: dict[str, int]) -> list[QueueSpec]:
        total = sum(day[name] for name in names)
        return [
            QueueSpec(
                name,
                day[name] * KALOS_HOSTS * EACH // total,
                may_preempt=True,
                notice_ms=60_000,
            )
            for name in names
        ]

    arrivals = []
    with (RECORDED / "acme" / "converted_kalos_trace.csv").open() as file:
        rows = list(csv.DictReader(file))
    last_s = max(float(row["arrival_time"]) for row in rows)
    for row in rows:
        at_ms = int(float(row["arrival_time"]) * 14 * DAY_MS / last_s)
        step_s = float(row["iteration_computing_time"]) + float(row["iteration_networking_time"])
        devices = int(float(row["gpu_workers"]) * float(row["gpu_per_worker"]))
        number = int(row["job_id"])
        spec = job(f"k{number}", devices, names[number % len(names)], f"u{number % 5}")
        runs_ms = max(int(float(row["num_iteration"]) * step_s * 1_000), 1)
        if at_ms <= days * DAY_MS:
            arrivals.append(Arrival(at_ms, spec, runs_ms, devices))
    changes = [
        (at * DAY_MS, spec) for at, day in enumerate(daily[1:days], 1) for spec in specs(day)
    ]
    return specs(daily[0]), sorted(arrivals, key=lambda one: one.at_ms), changes


def job(name: str, devices: int, queue: str, owner: str) -> JobSpec:
    """One replica of up to a host's devices, or whole hosts; without devices, four CPUs."""
    if devices > EACH:
        replicas, need = -(-devices // EACH), Resources(devices=EACH)
    elif devices:
        replicas, need = 1, Resources(devices=devices)
    else:
        replicas, need = 1, Resources(cpu_millis=4_000)
    role = RoleSpec("t", ("train",), replicas=replicas, resources=need, grace_ms=20_000)
    return JobSpec(name, (role,), queue=queue, owner=owner)


def first_come(arrivals: list[Arrival]) -> list[Arrival]:
    """The same without queues, which the first rules do not know."""
    from msgspec.structs import replace

    return [replace(one, spec=replace(one.spec, queue="")) for one in arrivals]


def run_philly(days: int, logic_version: int, kind: str = "MIX1") -> Lived:
    queues, arrivals = philly(days, kind)
    if logic_version < 2:
        return Replay(PHILLY_HOSTS, EACH, (), logic_version).live(first_come(arrivals))
    return Replay(PHILLY_HOSTS, EACH, queues, logic_version).live(arrivals)


def run_kalos(days: int, logic_version: int) -> Lived:
    queues, arrivals, changes = kalos(days)
    if logic_version < 2:
        return Replay(KALOS_HOSTS, EACH, (), logic_version).live(first_come(arrivals))
    return Replay(KALOS_HOSTS, EACH, queues, logic_version).live(arrivals, changes)


def show(console: Console, name: str, lived: Lived) -> None:
    """Waits by size, and what else came of it. Invariants are looked at after one entry in
    `CHECK_ONE_IN`: to look at all of them takes a hundred times as long as an entry, and more."""
    table = Table("devices", "jobs", "median wait", "95 %", "longest", title=name)
    for size, waits in waits_by_size(lived):
        marks = [waits[min(len(waits) * part // 100, len(waits) - 1)] for part in (50, 95)]
        table.add_row(size, f"{len(waits):,}", *(_hours(ms) for ms in (*marks, waits[-1])))
    console.print(table)
    console.print(
        f"  utilisation {lived.utilisation:.1%}, preempted {lived.preempted:,} "
        f"({lived.lost_ms / 3_600_000:,.0f} device-hours since their last save), restarts "
        f"{lived.restarts:,}, finished {lived.finished:,}, never placed "
        f"{sum(never_placed(lived).values())}, most waiting {lived.most_waiting:,}\n"
        f"  {lived.entries:,} entries in {lived.cpu_s:.1f} s of CPU; invariants checked "
        f"{lived.checked:,} times, broken {len(lived.broken)}"
        f"{': ' + lived.broken[0] if lived.broken else ''}\n"
    )


def _hours(ms: int) -> str:
    return f"{ms / 3_600_000:.2f} h"


@click.command()
@click.option("--days", type=click.IntRange(1, 14), default=14, show_default=True)
@click.option("--only", type=click.Choice(["philly", "kalos"]))
@click.option("--rules", type=click.Choice(["1", "2"]), help="Of this logic version alone.")
@click.option("--profile", is_flag=True, help="Say where the time goes.")
def main(days: int, only: str | None, rules: str | None, profile: bool) -> None:
    """Print a table for each workload and each set of rules."""
    console = Console(width=120)
    for name, run in (("philly", run_philly), ("kalos", run_kalos)):
        for version in (1, 2):
            if only not in (None, name) or rules not in (None, str(version)):
                continue
            profiler = cProfile.Profile()
            if profile:
                profiler.enable()
            lived = run(days, version)
            profiler.disable()
            show(console, f"{name}, {days} days, rules of version {version}", lived)
            if profile:
                pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
