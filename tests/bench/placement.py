"""Placement at the size of fleets: how long, how that grows, and what it leaves unusable.

Milliseconds are those of `machine.apply` alone: one entry, all that follows from it, digest
included; none of the network or the disk.
"""

from __future__ import annotations

import csv
import math
import statistics
import time
from pathlib import Path

from coord.core.machine import apply
from coord.core.state import State, new_state
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import (
    AnyEvent,
    ClusterConfigured,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
)
from coord.model.place import Place
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Placing, Resources, RoleSpec
from tests.bench import filling
from tests.bench.figures import Figure, reference_s

GANG_HOSTS = 1_280
DEVICES = 8
SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)
QUEUED = 1_000
INVENTORY = (
    Path(__file__).parents[3]
    / "shared"
    / "data"
    / "placement"
    / "alibaba_spot_gpu_v2026"
    / "node_info_df.csv"
)
SEEDS = (1, 2, 3)


class Log:
    """Applies events one after the other."""

    def __init__(self) -> None:
        self.state: State = new_state()
        self._sent = 0
        self.send(LeaderElected(1, 1))
        self.send(ClusterConfigured("c", Settings(), 2))

    def send(self, event: AnyEvent) -> Recorded:
        self._sent += 1
        origin = Origin("client:bench", 0, self._sent)
        entry = Entry(self.state.meta.applied_index + 1, 1, 1_000_000 + self._sent, origin, event)
        record = apply(self.state, entry)
        assert record.accepted, record
        return record

    def add_hosts(self, count: int) -> None:
        """8 devices each; 16 hosts a rack, 16 racks a pod."""
        for number in range(count):
            rack = number // 16
            self.send(
                HostRegistered(
                    f"h{number:05}",
                    f"a{number}",
                    "b",
                    "h",
                    devices=DEVICES,
                    cpu_millis=128_000,
                    memory_mib=1_048_576,
                    place=Place("z1", f"p{rack // 16:03}", f"r{rack % 16:02}"),
                )
            )


def measure(runs: int) -> list[Figure]:
    gang = Figure("placement: 10,240 devices, 1,280 hosts, one gang", "ms", 200, True, [], [])
    ranks = Figure("placement: the same, a task for each device", "ms", None, True, [], [])
    slope = Figure("placement: growth from 1,000 to 16,000 hosts", "exponent", 1.2, True, [], [])
    full = Figure("placement: pass, 4,278 hosts, 1,000 jobs wait", "ms", 500, True, [], [])
    empty = Figure("placement: 1,000 jobs started, 4,278 hosts", "ms", None, True, [], [])
    figures = [gang, ranks, slope]
    if INVENTORY.exists():
        figures += [full, empty]
    for _ in range(runs):
        for figure in figures:
            figure.references.append(reference_s())
        gang.values.append(gang_ms(GANG_HOSTS, DEVICES))
        ranks.values.append(gang_ms(GANG_HOSTS, 1))
        times = {size: small_job_ms(size) for size in SIZES}
        slope.values.append(exponent(times))
        slope.note = ", ".join(f"{size:,}: {ms:.2f} ms" for size, ms in times.items())
        if INVENTORY.exists():
            waits, starts = pass_ms()
            full.values.append(waits)
            empty.values.append(starts)
    return figures + (unusable() if filling.RECORDED.exists() else [])


def gang_ms(hosts: int, each: int) -> float:
    """One entry that places as many replicas of `each` devices as the fleet has room for."""
    log = Log()
    log.add_hosts(hosts)
    role = RoleSpec("t", ("train",), replicas=hosts * DEVICES // each, resources=Resources(each))
    began_s = time.process_time()
    log.send(JobSubmitted(JobSpec("big", (role,))))
    took_ms = (time.process_time() - began_s) * 1_000
    assert len(log.state.tasks) == role.replicas
    return took_ms


def small_job_ms(hosts: int) -> float:
    """A gang over a tenth of the fleet, within one pod of which is room for 64, and one of 1."""
    log = Log()
    log.add_hosts(hosts)
    specs = (
        RoleSpec("t", ("train",), replicas=hosts // 10, resources=Resources(DEVICES)),
        RoleSpec(
            "t",
            ("train",),
            replicas=64,
            resources=Resources(DEVICES),
            placement=Placing(within="pod", spread="rack"),
        ),
        RoleSpec("t", ("train",), resources=Resources(2, 4_000, 1_024)),
    )
    began_s = time.process_time()
    for number, role in enumerate(specs):
        log.send(JobSubmitted(JobSpec(f"j{number}", (role,))))
    return (time.process_time() - began_s) * 1_000


def exponent(times: dict[int, float]) -> float:
    """Of the power law that fits best: 1 is linear."""
    sizes = [math.log(size) for size in times]
    costs = [math.log(ms) for ms in times.values()]
    return statistics.linear_regression(sizes, costs).slope


def inventory() -> list[tuple[str, int, int]]:
    """(type, devices, CPUs) of each node."""
    with INVENTORY.open() as file:
        return [
            (row["gpu_model"], int(row["gpu_capacity_num"]), int(float(row["cpu_num"])))
            for row in csv.DictReader(file)
        ]


def pass_ms() -> tuple[float, float]:
    """(a pass over 1,000 different jobs that wait on a full fleet, one that starts 1,000)."""
    log = Log()
    nodes = inventory()
    for number, (kind, devices, cpus) in enumerate(nodes):
        log.send(
            HostRegistered(
                f"h{number:05}",
                f"a{number}",
                "b",
                "h",
                devices=devices,
                cpu_millis=cpus * 1_000,
                memory_mib=524_288,
                device_type=kind,
                place=Place("z1", f"p{number // 256:03}", f"r{number // 16:03}"),
            )
        )
    types = sorted({kind for kind, _, _ in nodes})
    roles = tuple(_role(number, types) for number in range(QUEUED))
    began_s = time.process_time()
    for at in range(0, QUEUED, 50):
        log.send(JobSubmitted(JobSpec(f"starts{at}", roles[at : at + 50])))
    starts_ms = (time.process_time() - began_s) * 1_000
    assert len(log.state.waiting) < QUEUED // 10
    for each in (8, 4, 2, 1):  # Whatever is left is taken.
        role = RoleSpec(
            "f", ("x",), replicas=12_000, min_replicas=1, resources=Resources(devices=each)
        )
        log.send(JobSubmitted(JobSpec(f"f{each}", (role,))))
    for at in range(0, QUEUED, 50):
        log.send(JobSubmitted(JobSpec(f"waits{at}", roles[at : at + 50])))
    assert len(log.state.waiting) >= QUEUED
    began_s = time.process_time()
    log.send(HostRegistered("new", "a", "b", "h"))
    return (time.process_time() - began_s) * 1_000, starts_ms


def _role(number: int, types: list[str]) -> RoleSpec:
    """No two alike; every third of one type, every fifth within a rack."""
    return RoleSpec(
        f"t{number}",
        ("train",),
        replicas=1 + number % 4,
        resources=Resources(
            devices=1 + number % 2,
            cpu_millis=1_000 + number,
            memory_mib=1_024,
            device_types=(types[number % len(types)],) if number % 3 == 0 else (),
        ),
        placement=Placing(within="rack") if number % 5 == 0 else Placing(),
    )


def unusable() -> list[Figure]:
    """The table of policies: percent of the GPUs that nobody has when nothing fits any more."""
    fleet = filling.hosts()
    capacity = sum(host.devices for host in fleet) * 1_000
    figures = []
    for name in filling.LISTS:
        needs = filling.pods(name)
        for policy, choose in filling.POLICIES.items():
            figure = Figure(f"unusable GPUs: {name}, {policy}", "%", None, True, [], [])
            for seed in SEEDS:
                figure.references.append(reference_s())
                left = filling.unusable_millis(fleet, needs, seed, choose)
                figure.values.append(left * 100 / capacity)
            figures.append(figure)
    return figures
