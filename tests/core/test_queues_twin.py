"""The order of turns and the choice of victims against second implementations, deliberately dumb.

The twins are written from the docstrings of `turns.py`, `preemption.py` and `backfill.py`: one
looks at all that wait for every turn, one tries every set of victims, one every set of hosts.
"""

from __future__ import annotations

import itertools
from random import Random

from coord_sim.core_world.driver import Driver
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coord.core.placement import rooms_of
from coord.core.queueing.backfill import reserved_hosts
from coord.core.queueing.claims import DEVICE, charge_of
from coord.core.queueing.preemption import cost_of, is_preemptible, lost_ms_of, make_way
from coord.core.queueing.shares import Shares
from coord.core.queueing.turns import Turns, rank_of
from coord.core.state import State
from coord.model.entities import Gang
from coord.model.events import ClusterConfigured, HostRegistered, JobSubmitted, QueueConfigured
from coord.model.events import LeaderElected as Elected
from coord.model.queue import QueueSpec
from coord.model.spec import JobSpec, Resources, RoleSpec

SEEDS = st.integers(0, 2**32 - 1)
CASES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def cluster(rng: Random, may_preempt: bool) -> Driver:
    """Up to three hosts, three queues, and jobs that run; some are due to be moved."""
    driver = Driver(twin=False, check=False)
    driver.send(ClusterConfigured("c", logic_version=2))
    driver.send(Elected(1, 1))
    for number in range(rng.randrange(1, 4)):
        devices = rng.randrange(2, 6)
        driver.send(HostRegistered(f"h{number}", f"a{number}", "b", "c", devices=devices))
    for name in "pqr":
        quota = rng.randrange(0, 6)
        weight, priority = rng.randrange(1, 3), rng.randrange(2)
        driver.send(
            QueueConfigured(
                QueueSpec(name, quota, priority=priority, weight=weight, may_preempt=may_preempt)
            )
        )
    return driver


def job(rng: Random, name: str, queue: str) -> JobSpec:
    role = RoleSpec(
        "t",
        ("x",),
        replicas=rng.randrange(1, 3),
        resources=Resources(devices=rng.randrange(1, 3)),
    )
    return JobSpec(
        name,
        (role,),
        queue=queue,
        priority=rng.randrange(2),
        owner=rng.choice("ab"),
        preemptible=rng.random() < 0.8,
    )


# Turns


def dumb_turn(state: State, shares: Shares, left: list[Gang]) -> Gang:
    """Whose turn it is among those left."""

    def within_queue(gang: Gang) -> tuple[object, ...]:
        spec = state.jobs[gang.job].spec
        used = shares.owners.get((spec.queue, spec.owner), 0)
        return (-spec.priority, -1 if gang.reserving else used, rank_of(state, gang))

    heads = []
    for queue in sorted({state.jobs[gang.job].spec.queue for gang in left}):
        ours = [gang for gang in left if state.jobs[gang.job].spec.queue == queue]
        head = min(ours, key=within_queue)
        role = state.jobs[head.job].spec.roles[0]
        spec, used = shares.spec(queue), shares.use.get(queue, 0)
        quota = spec.quota * DEVICE
        if used + role.replicas * role.resources.devices * DEVICE <= quota:
            share = (0, -spec.priority, -1 if head.reserving else used * 1_000_000 // quota)
        else:
            borrowed = max(used - quota, 0) * 1_000_000 // spec.weight
            share = (1, -spec.priority, -1 if head.reserving else borrowed)
        heads.append((share, rank_of(state, head), head))
    return min(heads, key=lambda one: one[:2])[2]


@CASES
@given(SEEDS)
def test_turns_agree_with_a_dumb_twin(seed: int) -> None:
    """Also while those whose turn it was start, or do not."""
    rng = Random(seed)
    driver = cluster(rng, may_preempt=False)
    for host in list(driver.state.hosts):  # So that all of them wait.
        driver.state.hosts.drop(host)
    driver.state.rooms = None
    for number in range(rng.randrange(1, 14)):
        driver.send(JobSubmitted(job(rng, f"j{number}", rng.choice("pqr")), "me"))
    state = driver.state
    waiting = [state.gangs[key] for key in state.waiting]
    if rng.random() < 0.4:
        chosen = rng.choice(waiting)
        state.put_gang(replace(chosen, reserving=True))
        waiting = [state.gangs[key] for key in state.waiting]
    shares = Shares(state)
    turns = Turns(state, shares, waiting)
    left = list(waiting)
    while left:
        expected = dumb_turn(state, shares, left)
        assert turns.next() == expected
        left.remove(expected)
        if rng.random() < 0.6:
            shares.charge(replace(expected, claim=expected.desired), 1)
    assert turns.next() is None


# Victims


def dumb_victims(state: State, gang: Gang, now_ms: int) -> tuple[str, ...] | None:
    """Every set of those that may be stopped is tried; None when none makes room, or none need."""
    spec = state.jobs[gang.job].spec
    role = spec.roles[0]
    need, wanted = role.resources.devices, role.replicas
    used: dict[str, int] = {}
    for other in state.gangs.values():
        queue = state.jobs[other.job].spec.queue
        used[queue] = used.get(queue, 0) + charge_of(other, state.jobs[other.job])
    quotas = {name: row.spec.quota * DEVICE for name, row in state.queues.items()}

    def room(gone: tuple[Gang, ...]) -> bool:
        count = 0
        for host in state.hosts.values():
            tasks = [state.tasks[key] for key in host.tasks]
            stays = [task for task in tasks if task.gang not in [one.key for one in gone]]
            count += (host.devices - sum(len(task.devices) for task in stays)) // need
        return count >= wanted

    def allowed(gone: tuple[Gang, ...]) -> bool:
        own = sum(charge(one) for one in gone if queue_of(one) == spec.queue)
        entitled = used[spec.queue] - own + need * wanted * DEVICE <= quotas[spec.queue]
        for queue in {queue_of(one) for one in gone} - {spec.queue}:
            charges = sorted(charge(one) for one in gone if queue_of(one) == queue)
            if not entitled or sum(charges[:-1]) >= used[queue] - quotas[queue]:
                return False
        return True

    def queue_of(one: Gang) -> str:
        return state.jobs[one.job].spec.queue

    def charge(one: Gang) -> int:
        return charge_of(one, state.jobs[one.job])

    used.setdefault(spec.queue, 0)
    others = [one for one in state.gangs.values() if is_preemptible(state, one)]
    borrowers = [one for one in others if queue_of(one) != spec.queue]
    lower = [
        one
        for one in others
        if queue_of(one) == spec.queue and state.jobs[one.job].spec.priority < spec.priority
    ]
    if room(()):
        return None
    for candidates in (borrowers, borrowers + lower):
        found = [
            gone
            for size in range(1, len(candidates) + 1)
            for gone in itertools.combinations(candidates, size)
            if allowed(gone) and room(gone)
        ]
        if found:
            least = min(found, key=lambda gone: dumb_cost(state, gone, now_ms))
            return tuple(sorted(one.key for one in least))
    return None


def dumb_cost(state: State, gone: tuple[Gang, ...], now_ms: int) -> tuple[object, ...]:
    priorities = []
    for one in gone:
        spec = state.jobs[one.job].spec
        priorities.append((state.queues[spec.queue].spec.priority, spec.priority))
    placed = [min(state.tasks[key].placed_ms for key in one.live) for one in gone]
    return (
        len(gone),
        sorted(priorities, reverse=True),
        sum(lost_ms_of(state, one, now_ms) for one in gone),
        sorted(-at_ms for at_ms in placed),
        sorted(one.key for one in gone),
    )


@CASES
@given(SEEDS)
def test_victims_agree_with_an_exhaustive_search(seed: int) -> None:
    """The fewest, then the cheapest; nobody where nobody would do."""
    rng = Random(seed)
    driver = cluster(rng, may_preempt=False)
    for number in range(rng.randrange(2, 8)):
        driver.wall_ms += rng.randrange(1, 900)
        driver.send(JobSubmitted(job(rng, f"j{number}", rng.choice("pqr")), "me"))
    driver.send(JobSubmitted(replace(job(rng, "wants", rng.choice("pqr")), priority=1), "me"))
    state = driver.state
    gang = state.gangs["wants/t"]
    if gang.live:
        return
    shares, now_ms = Shares(state), state.meta.now_ms
    way = make_way(state, shares, rooms_of(state), gang, gang.desired, now_ms)
    expected = dumb_victims(state, gang, now_ms)
    found = tuple(sorted(victim.gang.key for victim in way.victims)) if way else None
    assert found == expected
    if way:
        assert len(way.plan.places) == gang.desired
        assert cost_of(way.victims)[0] == len(way.victims)


# Hosts that are kept


def dumb_wait(state: State, name: str) -> tuple[int, int]:
    """(how long the oldest gang on a host has run, how many are there)."""
    tasks = [state.tasks[key] for key in state.hosts[name].tasks]
    ages = [state.meta.now_ms - task.placed_ms for task in tasks]
    return (max(ages, default=0), len({task.gang for task in tasks}))


def dumb_longest(state: State, gang: Gang) -> tuple[int, int] | None:
    """The least that the host waited for longest can cost, over every set of hosts to be left by
    all; None when even all of them are too few."""
    role = state.jobs[gang.job].spec.roles[0]
    need = role.resources.devices
    used = {
        name: sum(len(state.tasks[key].devices) for key in host.tasks)
        for name, host in state.hosts.items()
    }
    found = []
    for size in range(len(state.hosts) + 1):
        for left in itertools.combinations(sorted(state.hosts), size):
            fit = sum(
                (host.devices - (0 if name in left else used[name])) // need
                for name, host in state.hosts.items()
            )
            if fit >= role.replicas:
                found.append(max((dumb_wait(state, name) for name in left), default=(0, 0)))
    return min(found) if found else None


@CASES
@given(SEEDS)
def test_the_hosts_kept_are_those_that_are_sooner_free(seed: int) -> None:
    """Of every set that would do: the one whose host that is waited for longest costs least."""
    rng = Random(seed)
    driver = cluster(rng, may_preempt=False)
    for number in range(rng.randrange(2, 8)):
        driver.wall_ms += rng.randrange(1, 900)
        driver.send(JobSubmitted(job(rng, f"j{number}", ""), "me"))
    driver.send(JobSubmitted(replace(job(rng, "wants", ""), priority=9), "me"))
    state = driver.state
    gang = state.gangs["wants/t"]
    if gang.live:
        return
    role = state.jobs["wants"].spec.roles[0]
    rooms, now = rooms_of(state), replace(gang, reserving=False, reserved=())
    hosts = reserved_hosts(state, rooms, now, role, gang.desired)
    expected = dumb_longest(state, gang)
    if hosts is None:
        assert expected is None
        return
    need = role.resources.devices
    waited = [
        dumb_wait(state, name)
        for name in dict.fromkeys(hosts)
        if len(rooms[name].devices) // need < hosts.count(name)
    ]
    assert len(hosts) == gang.desired
    assert max(waited, default=(0, 0)) == expected
