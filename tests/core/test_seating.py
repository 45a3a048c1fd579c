"""Ranks of large gangs are seated once for all hosts, and as a single host would count them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from coord_sim.core_world.driver import Driver

from coord.core.plans import KEPT_FROM, Seating, host_plan
from coord.core.state import State
from coord.model import events
from coord.model.spec import JobSpec, Resources, RoleSpec


@pytest.mark.parametrize("seed", range(20))
def test_a_seating_says_what_counting_ranks_says(seed: int) -> None:
    """The second implementation is deliberately dumb: it looks through all ranks for each host."""
    rng = Random(seed)
    hosts = tuple(f"h{rng.randrange(12)}" for _ in range(rng.randrange(1, 60)))
    seating = Seating(hosts)
    for name in dict.fromkeys(hosts):
        here = [rank for rank, other in enumerate(hosts) if other == name]
        assert seating.on(name).local_ranks == {rank: at for at, rank in enumerate(here)}
        assert seating.on(name).group_rank == list(dict.fromkeys(hosts)).index(name)


def test_a_large_gang_that_moves_is_seated_anew() -> None:
    """Plans never tell the seating of an earlier generation."""
    driver = Driver(twin=False)
    driver.send(events.LeaderElected(1, 1))
    driver.send(events.ClusterConfigured("c"))
    for number in range(KEPT_FROM + 1):
        name = f"h{number:03d}"
        driver.send(events.HostRegistered(name, f"a-{name}", "b1", "127.0.0.1", devices=1))
    ranks = RoleSpec("ranks", ("train",), replicas=KEPT_FROM, resources=Resources(devices=1))
    driver.send(events.JobSubmitted(JobSpec("j", (ranks,))))
    _seated_by_counting(driver.state)
    driver.send(events.DrainRequested("h003", "me"))
    for key in list(driver.state.gangs["j/ranks"].live):
        host = driver.state.tasks[key].host
        driver.send(events.TaskReaped(host, 1, key))
    assert driver.state.gangs["j/ranks"].generation == 2
    _seated_by_counting(driver.state)


def _seated_by_counting(state: State) -> None:
    hosts = state.gangs["j/ranks"].hosts
    assert len(hosts) == KEPT_FROM
    groups: Counter[str] = Counter()
    for rank, name in enumerate(hosts):
        (order,) = host_plan(state, name).tasks
        assert order.env["RANK"] == str(rank)
        assert order.env["LOCAL_RANK"] == "0"
        assert order.env["LOCAL_WORLD_SIZE"] == "1"
        groups[order.env["GROUP_RANK"]] += 1
    assert groups == Counter({str(group): 1 for group in range(KEPT_FROM)})
