"""Every constraint of placement against a dumb twin: all assignments of small gangs, tried out.

The twin knows what is forbidden, in the words of `model/spec.py`, and nothing of how places are
found. Placement must find one if there is any, of as many replicas as can be, and keep the rules.
"""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coord.core.placement import Plan, place, refusal, rooms_of
from coord.core.state import State, new_state
from coord.model.entities import (
    Gang,
    GangPhase,
    Host,
    HostStatus,
    Job,
    JobStatus,
    QueueReason,
    Task,
    TaskStatus,
)
from coord.model.place import LEVELS, Place, Rail, domain
from coord.model.spec import JobSpec, Placing, Resources, RoleSpec, spec_problems

SEEDS = st.integers(0, 2**32 - 1)
LEVEL_CHOICES = ("", "", "pod", "rack", "host")
OTHERS = (
    ("o/a", Placing()),
    ("o/b", Placing(whole_hosts=True)),
    ("o/c", Placing(apart_from=("job/j",))),
    ("j/anchor", Placing()),
    ("j/shy", Placing(apart_from=("r",))),
)


class Case:
    """A small fleet with others on it, and a role that wants places."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.state: State = new_state()
        self.state.meta.logic_version = 2
        for number in range(rng.randrange(1, 6)):
            self._add_host(rng, f"h{number}")
        self.role = _role(rng)
        self.anchors: list[str] = []
        self.others: dict[str, list[str]] = {name: [] for name in self.state.hosts}
        jobs: dict[str, list[RoleSpec]] = {"o": [], "j": []}
        for key, placing in OTHERS:
            job, name = key.split("/")
            jobs[job].append(RoleSpec(name, ("x",), placement=placing))
        jobs["j"].append(self.role)
        self.spec = JobSpec("j", tuple(jobs["j"]))
        for name, roles in jobs.items():
            spec = JobSpec(name, tuple(roles))
            keys = tuple(key for key, _ in OTHERS if key.startswith(f"{name}/"))
            self.state.put_job(Job(name, spec, JobStatus.RUNNING, 1, 0, (1,), gangs=keys))
        for key, _ in OTHERS:
            if rng.random() < 0.35:
                self._run(rng, key)
        self.gang = Gang(
            "j/r",
            "j",
            "r",
            -1,
            GangPhase.WAITING,
            self.role.replicas,
            hosts=tuple(
                rng.choice([*self.state.hosts, "gone"]) for _ in range(rng.choice((0, 0, 2, 4)))
            ),
        )

    def _add_host(self, rng: Random, name: str) -> None:
        slot = len(self.state.slots)
        self.state.slots.append(name)
        self.state.live_incarnations.append(0)
        self.state.last_seen_ms.append(0)
        pod = rng.choice(("", "p1", "p2"))
        rack = rng.choice(("", "r1", "r2"))
        self.state.put_host(
            Host(
                name,
                slot,
                1,
                rng.choice((HostStatus.UP, HostStatus.UP, HostStatus.UP, HostStatus.SUSPECT)),
                "a",
                "b",
                name,
                devices=rng.randrange(4),
                cpu_millis=rng.randrange(1, 5),
                device_type=rng.choice(("A", "B")),
                place=Place("", pod, rack),
                rails=(Rail("1"), Rail("2"))[: rng.randrange(3)],
            )
        )

    def _run(self, rng: Random, key: str) -> None:
        """One task of another gang, on a host that has room for it."""
        name = rng.choice(list(self.state.hosts))
        host = self.state.hosts[name]
        used = Counter(device for task in host.tasks for device in self.state.tasks[task].devices)
        free = [device for device in range(host.devices) if device not in used]
        part = rng.choice((0, 300, 600)) if free else 0
        task = Task(
            key=f"{key}/0#1",
            job=key.split("/", maxsplit=1)[0],
            role=key.split("/")[1],
            index=0,
            generation=1,
            gang=key,
            host=name,
            status=TaskStatus.RUNNING,
            placed_ms=0,
            devices=tuple(free[:1]),
            device_millis=part,
        )
        self.state.tasks.put(task.key, task)
        self.state.put_host(replace(host, tasks=(*host.tasks, task.key)))
        gang = Gang(
            key, task.job, task.role, -1, GangPhase.RUNNING, 1, live=(task.key,), hosts=(name,)
        )
        self.state.put_gang(gang)
        self.others[name].append(key)
        if key == "j/anchor":
            self.anchors.append(name)

    # What is forbidden

    def unfit(self, name: str) -> bool:
        """Whatever the gang does there, it must not be there."""
        host, need, placing = self.state.hosts[name], self.role.resources, self.role.placement
        if host.status != HostStatus.UP or len(host.rails) < need.rails:
            return True
        if need.device_types and host.device_type not in need.device_types:
            return True
        if any(key in ("o/b", "o/c", "j/shy") for key in self.others[name]):
            return True
        if any(f"job/{key.split('/')[0]}" in placing.apart_from for key in self.others[name]):
            return True
        if any(key.startswith("j/") and key[2:] in placing.apart_from for key in self.others[name]):
            return True
        return placing.near_required and not self.near(name)

    def near(self, name: str) -> bool:
        level = self.role.placement.near_level
        ours = self.domain(name, level)
        return bool(ours) and ours in [self.domain(anchor, level) for anchor in self.anchors]

    def domain(self, name: str, level: str) -> str:
        return domain(self.state.hosts[name].place, name, level)

    def room_for(self, name: str, count: int) -> bool:
        host, need = self.state.hosts[name], self.role.resources
        tasks = [self.state.tasks[key] for key in host.tasks]
        if need.cpu_millis * count > host.cpu_millis:
            return False
        taken = Counter[int]()
        for task in tasks:
            for device in task.devices:
                taken[device] += task.device_millis or 1_000
        free = [1_000 - taken[device] for device in range(host.devices)]
        if need.device_millis:
            return sum(left // need.device_millis for left in free) >= count
        return sum(left == 1_000 for left in free) >= need.devices * count

    def allowed(self, hosts: tuple[str, ...]) -> bool:
        placing = self.role.placement
        counts = Counter(hosts)
        for name, count in counts.items():
            if self.unfit(name) or not self.room_for(name, count):
                return False
            if placing.per_host and count > placing.per_host:
                return False
            if placing.whole_hosts and self.others[name]:
                return False
        inside = ""
        if placing.within:
            domains = {self.domain(name, placing.within) for name in hosts}
            if len(domains) != 1 or "" in domains:
                return False
            (inside,) = domains
        return not placing.spread or self._is_spread(hosts, inside)

    def _is_spread(self, hosts: tuple[str, ...], inside: str) -> bool:
        placing = self.role.placement
        grounds = {
            self.domain(name, placing.spread): 0
            for name in self.state.hosts
            if not self.unfit(name)
            and self.domain(name, placing.spread)
            and (not inside or self.domain(name, placing.within) == inside)
        }
        for name in hosts:
            ours = self.domain(name, placing.spread)
            if ours not in grounds:
                return False
            grounds[ours] += 1
        return max(grounds.values()) - min(grounds.values()) <= placing.spread_skew

    def assignments(self, count: int) -> list[tuple[str, ...]]:
        names = sorted(self.state.hosts)
        every = itertools.combinations_with_replacement(names, count)
        return [hosts for hosts in every if self.allowed(hosts)]

    def place(self) -> Plan | None:
        return place(self.state, rooms_of(self.state), self.gang, self.role, self.role.smallest)


def _role(rng: Random) -> RoleSpec:
    part = rng.choice((0, 0, 0, 300, 500))
    spread = rng.choice(LEVEL_CHOICES)
    within = rng.choice(LEVEL_CHOICES)
    if spread and within and LEVELS.index(spread) <= LEVELS.index(within):
        within = ""
    prefer = rng.choice(LEVEL_CHOICES) if not spread else ""
    if prefer and within and LEVELS.index(prefer) <= LEVELS.index(within):
        prefer = ""  # Whatever stands within a rack stands within its pod.
    near = rng.random() < 0.2
    skew, near_level = rng.randrange(1, 3), rng.choice(("rack", "pod"))
    replicas = rng.randrange(1, 5)
    return RoleSpec(
        "r",
        ("x",),
        replicas=replicas,
        min_replicas=rng.randrange(1, replicas + 1),
        resources=Resources(
            devices=0 if part else rng.randrange(3),
            cpu_millis=rng.randrange(3),
            device_millis=part,
            device_types=("A",) if rng.random() < 0.2 and part else (),
            rails=rng.choice((0, 0, 0, 1, 2)),
        ),
        placement=Placing(
            within=within,
            prefer_within=prefer,
            spread=spread,
            spread_skew=skew if spread else 1,
            whole_hosts=rng.random() < 0.15 and not part,
            per_host=0 if within == "host" else rng.choice((0, 0, 1, 2)),
            apart_from=rng.choice(((), (), ("anchor",), ("job/o",))),
            near="anchor" if near else "",
            near_level=near_level if near else "rack",
            near_required=near and rng.random() < 0.6,
        ),
    )


@settings(max_examples=2_000, deadline=None, derandomize=True)
@given(SEEDS)
def test_a_place_is_found_whenever_there_is_one(seed: int) -> None:
    """As many replicas as any assignment has, by the rules; none when there is none."""
    case = Case(seed)
    wanted = case.role.replicas
    possible = [count for count in range(wanted, 0, -1) if case.assignments(count)]
    expected = possible[0] if possible and possible[0] >= case.role.smallest else 0
    plan = case.place()
    hosts = tuple(sorted(place.host for place in plan.places)) if plan else ()
    assert len(hosts) == expected
    if plan is not None:
        assert case.allowed(hosts)
        _assert_devices(case, plan)
        _assert_preference(case, hosts)


def _assert_devices(case: Case, plan: Plan) -> None:
    """No device gives more than it has."""
    need = case.role.resources
    millis: Counter[tuple[str, int]] = Counter()
    for task in case.state.tasks.values():
        millis.update({(task.host, one): task.device_millis or 1_000 for one in task.devices})
    for place_ in (*plan.places, *plan.spares):
        assert len(place_.devices) == (1 if need.device_millis else need.devices)
        for device in place_.devices:
            assert 0 <= device < case.state.hosts[place_.host].devices
            millis[place_.host, device] += need.device_millis or 1_000
    assert not [one for one, taken in millis.items() if taken > 1_000]


def _assert_preference(case: Case, hosts: tuple[str, ...]) -> None:
    """In as few domains as any assignment of so many. A host without a domain counts as its own
    worst: it is used last."""
    level = case.role.placement.prefer_within
    if not level:
        return

    def cost(names: tuple[str, ...]) -> tuple[int, int]:
        domains = [case.domain(name, level) for name in names]
        return (domains.count(""), len({one for one in domains if one}))

    assert cost(hosts) == min(cost(one) for one in case.assignments(len(hosts)))


@settings(max_examples=600, deadline=None, derandomize=True)
@given(SEEDS)
def test_a_refused_gang_leaves_everything_and_is_told_why(seed: int) -> None:
    """The rooms are as before, and the reason is one that the case has."""
    case = Case(seed)
    rooms = rooms_of(case.state)
    before = {name: (room.devices, room.parts, room.kind) for name, room in rooms.items()}
    if place(case.state, rooms, case.gang, case.role, case.role.smallest) is not None:
        return
    after = {name: (room.devices, room.parts, room.kind) for name, room in rooms.items()}
    assert after == before
    why = refusal(case.state, rooms, case.gang, case.role, case.role.smallest)
    assert why.detail
    placing = case.role.placement
    if why.reason == QueueReason.TOPOLOGY:
        assert placing.within or placing.spread
    if why.reason == QueueReason.NEAR:
        assert placing.near_required
    if why.reason == QueueReason.RAILS:
        assert case.role.resources.rails


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SEEDS)
def test_ranks_follow_the_topology(seed: int) -> None:
    """Placed anew, ranks are numbered along the tree; placed again there, each keeps its own."""
    case = Case(seed)
    case.gang = replace(case.gang, hosts=())
    plan = case.place()
    if plan is None:
        return
    hosts = [place.host for place in plan.places]
    keys = [(*(case.domain(name, level) for level in LEVELS[:-1]), name) for name in hosts]
    assert keys == sorted(keys)
    shuffled = list(hosts)
    Random(seed).shuffle(shuffled)
    case.gang = replace(case.gang, hosts=tuple(shuffled))
    if case.role.placement == Placing():
        again = case.place()
        assert again is not None
        assert [place.host for place in again.places] == shuffled


def test_the_cases_are_possible_jobs_and_meet_every_rule() -> None:
    """Most are placed, some are refused for each reason: neither side of the twin is idle."""
    reasons: Counter[str] = Counter()
    for seed in range(1_500):
        case = Case(seed)
        assert spec_problems(case.spec) == []
        if case.place() is not None:
            reasons["placed"] += 1
            continue
        rooms = rooms_of(case.state)
        reasons[refusal(case.state, rooms, case.gang, case.role, case.role.smallest).reason] += 1
    asked = ("placed", "devices", "cpus", "rails", "device_type", "topology", "near", "apart")
    assert not [reason for reason in asked if not reasons[reason]], reasons
