"""Placement against a second implementation, deliberately dumb, and against the order of arrival.

The twin is written from the docstrings in `placement.py`: it looks at every host for every replica,
and searches exhaustively where the question is whether a gang fits at all.
"""

from __future__ import annotations

import itertools
from random import Random

from coord_sim.core_world.driver import Driver
from hypothesis import given, settings
from hypothesis import strategies as st

from coord.core.placement import Place, Plan, Room, Rooms, place, refusal
from coord.core.state import new_state
from coord.model.entities import Gang, GangPhase, Hold, Host, HostStatus, QueueReason, TaskStatus
from coord.model.events import HostRegistered, JobSubmitted
from coord.model.spec import JobSpec, Resources, RoleSpec

from .notation import parse

SEEDS = st.integers(0, 2**32 - 1)
Free = dict[str, tuple[list[int], int, int]]
"""Host -> (free devices, thousandths of CPUs, mebibytes)."""


class Case:
    """A small fleet, partly taken, and a gang that wants a place."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.free: Free = {}
        for number in range(rng.randrange(0, 5)):
            devices = sorted(rng.sample(range(5), rng.randrange(0, 5)))
            self.free[f"h{number}"] = (devices, rng.randrange(-1, 5), rng.randrange(0, 5))
        self.need = Resources(rng.randrange(3), rng.randrange(3), rng.randrange(3))
        self.desired = rng.randrange(1, 5)
        self.smallest = rng.randrange(1, self.desired + 1)
        self.spares = rng.randrange(3)
        names = [*self.free, "gone"]
        self.before = tuple(rng.choice(names) for _ in range(rng.randrange(5)))
        self.holds = tuple(self._hold(rng) for _ in range(rng.randrange(4)))

    def _hold(self, rng: Random) -> Hold:
        """Of numbers from 10 on: a hold never overlaps with what is free."""
        host = rng.choice([*self.free, "gone"])
        first = rng.randrange(10, 1_000)
        devices = tuple(range(first, first + self.need.devices))
        return Hold(host, rng.random() < 0.5, devices, self.need.cpu_millis, self.need.memory_mib)

    def gang(self) -> Gang:
        return Gang(
            "j/r",
            "j",
            "r",
            -1,
            GangPhase.WAITING,
            self.desired,
            hosts=self.before,
            holds=self.holds,
        )

    def role(self) -> RoleSpec:
        return RoleSpec("r", ("x",), spares=self.spares, resources=self.need)

    def rooms(self) -> Rooms:
        rooms = Rooms()
        for name, (devices, cpu_millis, memory_mib) in self.free.items():
            room = Room(Host(name, 0, 1, HostStatus.UP, "a", "b", "c"))
            room.devices, room.cpu_millis, room.memory_mib = tuple(devices), cpu_millis, memory_mib
            rooms.put(room)
        return rooms


def contents(rooms: Rooms) -> Free:
    return {
        name: (list(room.devices), room.cpu_millis, room.memory_mib) for name, room in rooms.items()
    }


# The twin


def fits(free: Free, name: str, need: Resources) -> bool:
    """What is not needed is not asked for, even of a host that has less than nothing left."""
    if name not in free:
        return False
    devices, cpu_millis, memory_mib = free[name]
    return (
        (not need.devices or len(devices) >= need.devices)
        and (not need.cpu_millis or cpu_millis >= need.cpu_millis)
        and (not need.memory_mib or memory_mib >= need.memory_mib)
    )


def take(free: Free, name: str, need: Resources) -> tuple[int, ...]:
    devices, cpu_millis, memory_mib = free[name]
    free[name] = (
        devices[need.devices :],
        cpu_millis - need.cpu_millis,
        memory_mib - need.memory_mib,
    )
    return tuple(devices[: need.devices])


def with_holds(case: Case) -> Free:
    free = {name: (list(room[0]), room[1], room[2]) for name, room in case.free.items()}
    for hold in case.holds:
        if hold.host in free:
            devices, cpu_millis, memory_mib = free[hold.host]
            free[hold.host] = (
                sorted([*devices, *hold.devices]),
                cpu_millis + hold.cpu_millis,
                memory_mib + hold.memory_mib,
            )
    return free


def most_that_fit(case: Case) -> int:
    """By trying every assignment of every number of replicas."""
    for count in range(case.desired, 0, -1):
        for hosts in itertools.combinations_with_replacement(sorted(case.free), count):
            free = with_holds(case)
            if all(fits(free, name, case.need) and [take(free, name, case.need)] for name in hosts):
                return count
    return 0


def tightest(free: Free, names: list[str]) -> str:
    return min(names, key=lambda name: (len(free[name][0]), free[name][1], free[name][2], name))


def dumb_place(case: Case) -> Plan | None:
    if most_that_fit(case) < case.smallest:
        return None
    free = with_holds(case)
    chosen: dict[int, Place] = {}
    for index in range(case.desired):  # Each back to its own host.
        if index < len(case.before) and fits(free, case.before[index], case.need):
            name = case.before[index]
            chosen[index] = Place(name, take(free, name, case.need))
    for index in range(case.desired):
        if index in chosen:
            continue
        before = [name for name in sorted(set(case.before)) if fits(free, name, case.need)]
        spare = [
            name
            for name in sorted({hold.host for hold in case.holds if hold.spare})
            if fits(free, name, case.need)
        ]
        others = [name for name in free if fits(free, name, case.need)]
        if before:
            chosen[index] = Place(before[0], take(free, before[0], case.need))
        elif spare:
            chosen[index] = Place(spare[0], take(free, spare[0], case.need), True)
        elif others:
            name = tightest(free, others)
            chosen[index] = Place(name, take(free, name, case.need))
    places = tuple(chosen[index] for index in sorted(chosen))
    return Plan(places, dumb_spares(case, free, places))


def dumb_spares(case: Case, free: Free, places: tuple[Place, ...]) -> tuple[Hold, ...]:
    """Hosts that the gang does not run on first, each in its turn of the best fit, filled up."""
    ours = [spot.host for spot in places]
    kept: list[Hold] = []
    elsewhere = sorted(set(free) - set(ours))
    for group in (elsewhere, sorted(set(ours))):
        left = [name for name in group if fits(free, name, case.need)]
        order = []
        while left:
            order.append(tightest(free, left))
            left.remove(order[-1])
        for name in order:
            while len(kept) < case.spares and fits(free, name, case.need):
                devices = take(free, name, case.need)
                kept.append(Hold(name, True, devices, case.need.cpu_millis, case.need.memory_mib))
    return tuple(kept)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(SEEDS)
def test_placement_agrees_with_a_dumb_twin(seed: int) -> None:
    """The same places, spares and refusals; a refused gang leaves everything as it was."""
    case = Case(seed)
    rooms = case.rooms()
    before = contents(rooms)
    plan = place(new_state(), rooms, case.gang(), case.role(), case.smallest)
    assert plan == dumb_place(case)
    if plan is None:
        assert contents(rooms) == before
        why = refusal(new_state(), rooms, case.gang(), case.role(), case.smallest)
        assert why.reason == QueueReason.NO_HOSTS  # That state has none.
        assert contents(rooms) == before
        return
    taken: dict[tuple[str, int], None] = {}
    for spot in (*plan.places, *plan.spares):
        for device in spot.devices:
            assert (spot.host, device) not in taken
            taken[spot.host, device] = None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEEDS)
def test_places_do_not_depend_on_the_order_in_which_hosts_came(seed: int) -> None:
    """The same fleet and the same wish give the same places, whatever order they arrived in."""
    rng = Random(seed)
    hosts = [
        HostRegistered(
            f"h{number}",
            f"agent-{number}",
            "b",
            "c",
            devices=rng.randrange(5),
            cpu_millis=rng.randrange(5),
            memory_mib=8,
        )
        for number in range(6)
    ]
    role = RoleSpec(
        "r",
        ("x",),
        replicas=rng.randrange(1, 6),
        min_replicas=1,
        spares=rng.randrange(3),
        resources=Resources(rng.randrange(3), rng.randrange(3), 1),
    )
    outcomes = []
    for _ in range(3):
        driver = Driver(twin=False)
        driver.send(parse("leader 1", driver.state).events[0])
        driver.send(parse("configure", driver.state).events[0])
        for host in hosts:
            driver.send(host)
        driver.send(JobSubmitted(JobSpec("j", (role,))))
        tasks = {
            key: (task.host, task.devices)
            for key, task in driver.state.tasks.items()
            if task.status == TaskStatus.PLACED
        }
        outcomes.append((tasks, driver.state.gangs["j/r"].holds))
        rng.shuffle(hosts)
    assert outcomes[0] == outcomes[1] == outcomes[2]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEEDS)
def test_a_refusal_names_what_is_short(seed: int) -> None:
    """The first of devices, CPUs, memory of which alone too little is free; else all together."""
    case = Case(seed)
    rooms = case.rooms()
    state = new_state()
    if not rooms or place(state, case.rooms(), case.gang(), case.role(), case.smallest):
        return
    state.hosts.put("h0", Host("h0", 0, 1, HostStatus.UP, "a", "b", "c"))
    why = refusal(state, rooms, case.gang(), case.role(), case.smallest)
    case.desired = case.smallest
    whole = case.need
    for reason, need in (
        (QueueReason.DEVICES, Resources(devices=whole.devices)),
        (QueueReason.CPUS, Resources(cpu_millis=whole.cpu_millis)),
        (QueueReason.MEMORY, Resources(memory_mib=whole.memory_mib)),
    ):
        case.need = need
        count = most_that_fit(case)
        if count < case.smallest:
            assert why.reason == reason
            assert why.detail.startswith(f"{count} of {case.smallest} replicas fit: each needs ")
            return
    assert "together" in why.detail
