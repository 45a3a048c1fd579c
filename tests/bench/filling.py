"""Filling a recorded cluster until nothing fits, by the placement of the core and by others.

The cluster: 1,523 nodes with 6,212 GPUs and three lists of pods (Weng et al., Beware of
Fragmentation, USENIX ATC 2023). The protocol: the list is shuffled with a seed, and drawn from its
start, again and again, until the GPUs asked for reach 130 % of those there are. Each pod is a job
of one replica; one that has no place when it comes is dropped. Nothing ends. What counts is which
GPUs nobody has in the end, in thousandths.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from coord.core.placement import Room, Rooms, place, remember_shapes
from coord.core.placement.room import Kind
from coord.core.state import State, new_state
from coord.model.entities import Gang, GangPhase, Host, HostStatus
from coord.model.spec import JobSpec, Resources, RoleSpec

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "placement" / "alibaba_gpu_v2023"
LISTS = ("default", "gpuspec33", "multigpu50")
ARRIVALS_PERCENT = 130


def hosts() -> list[Host]:
    with (RECORDED / "openb_node_list_all_node.csv").open() as file:
        return [
            Host(
                host=row["sn"],
                slot=slot,
                incarnation=1,
                status=HostStatus.UP,
                agent="a",
                boot="b",
                address="h",
                devices=int(row["gpu"]),
                cpu_millis=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                device_type=row["model"],
            )
            for slot, row in enumerate(csv.DictReader(file))
        ]


def pods(name: str) -> list[Resources]:
    with gzip.open(RECORDED / f"openb_pod_list_{name}.csv.gz", "rt") as file:
        return [_need_of(row) for row in csv.DictReader(file)]


def _need_of(row: dict[str, str]) -> Resources:
    gpus, millis = int(row["num_gpu"]), int(row["gpu_milli"])
    part = millis if gpus == 1 and millis < 1_000 else 0
    return Resources(
        devices=0 if part else gpus,
        cpu_millis=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        device_millis=part,
        device_types=tuple(filter(None, row.get("gpu_spec", "").split("|"))) if gpus else (),
    )


def arrivals(needs: list[Resources], seed: int, capacity_millis: int) -> Iterator[Resources]:
    shuffled = list(needs)
    Random(seed).shuffle(shuffled)
    asked = 0
    while True:
        for need in shuffled:
            if asked * 100 >= capacity_millis * ARRIVALS_PERCENT:
                return
            asked += need.devices * 1_000 + need.device_millis
            yield need


Chooser = Callable[[State, Rooms, Resources], None]
"""Takes a place for one replica where it finds one."""


def unusable_millis(fleet: list[Host], needs: list[Resources], seed: int, choose: Chooser) -> int:
    """What is free in the end."""
    state = new_state()
    state.meta.logic_version = 2
    rooms = Rooms(Room(host) for host in fleet)
    for need in arrivals(needs, seed, free_millis(rooms)):
        choose(state, rooms, need)
    return free_millis(rooms)


def free_millis(rooms: Rooms) -> int:
    return sum(kind.free_millis * len(orders) for kind, orders in rooms.kinds.items())


_GANG = Gang("j/r", "j", "r", -1, GangPhase.WAITING, 1)


def ours(state: State, rooms: Rooms, need: Resources) -> None:
    """As a job submitted to the core: remembered, then placed."""
    role = RoleSpec("r", ("x",), resources=need)
    remember_shapes(state, JobSpec("j", (role,)))
    place(state, rooms, _GANG, role, 1)


Score = Callable[[Kind, Resources, Kind], tuple[float, ...]]
"""Of a host of this kind, for this need, beside the kind with most of each: the least is best."""


def by_score(score: Score) -> Chooser:
    known: dict[Resources, dict[Kind, tuple[float, ...] | None]] = {}

    def choose(state: State, rooms: Rooms, need: Resources) -> None:
        scores = known.setdefault(need, {})
        fitting = []
        for kind, orders in rooms.enough_for(need):
            if kind not in scores:
                scores[kind] = score(kind, need, LARGEST) if kind.replicas(need) else None
            found = scores[kind]
            if found is not None:
                fitting.append((found, orders[0]))
        if not fitting:
            return
        room = rooms[min(fitting)[1][-1]]
        role = RoleSpec("r", ("x",), resources=need)
        rooms.put(room.take(room.hold(need, spare=False), _GANG.key, role.placement))

    return choose


LARGEST = Kind("", 0, 8, (), 128_000, 1_048_576)


def best_fit(kind: Kind, need: Resources, largest: Kind) -> tuple[float, ...]:
    """The least left over, each resource as a share of the most that a host has of it."""
    left = kind.after(need)
    return (
        left.free_millis / largest.free_millis
        + left.cpu_millis / largest.cpu_millis
        + left.memory_mib / largest.memory_mib,
    )


def dot_product(kind: Kind, need: Resources, largest: Kind) -> tuple[float, ...]:
    """The least product of what is free with what is needed."""
    wanted = need.devices * 1_000 + need.device_millis
    return (
        kind.free_millis * wanted / largest.free_millis**2
        + kind.cpu_millis * need.cpu_millis / largest.cpu_millis**2
        + kind.memory_mib * need.memory_mib / largest.memory_mib**2,
    )


def aligned_dot_product(kind: Kind, need: Resources, largest: Kind) -> tuple[float, ...]:
    """The greatest product of what is free with what is needed (Tetris)."""
    return (-dot_product(kind, need, largest)[0],)


def packing(kind: Kind, need: Resources, largest: Kind) -> tuple[float, ...]:
    """Devices in use first, then the host on which most is in use."""
    shared = any(free >= need.device_millis > 0 for free in kind.parts)
    return (0 if shared else 1, kind.free_millis, kind.cpu_millis)


POLICIES: dict[str, Chooser] = {
    "ours": ours,
    "best fit": by_score(best_fit),
    "dot product": by_score(dot_product),
    "dot product, greatest": by_score(aligned_dot_product),
    "packing": by_score(packing),
}
