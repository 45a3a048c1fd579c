"""What agents owe their hosts, by when: each promise speaks up when it is broken, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.surgery import applied
from coord_sim.world.host_checks import FENCED, STOPPED, UNDER_LEASE, HostChecks
from coord_sim.world.violation import Violation

from coord.agent.ports import LaunchSpec
from coord.core.state import State
from coord.model.decisions import HostFenced
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import ClockAdvanced
from tests.sim.small_fleet import SmallFleet, role

TASK = "job/trainer/0#1"


@pytest.fixture
def fleet() -> Iterator[SmallFleet]:
    with SmallFleet(hosts=1) as made:
        yield made


def fenced(fleet: SmallFleet, checks: HostChecks) -> None:
    """The log says that host h1 is fenced, and no more than that is true."""
    entry = Entry(10_000, 1, 0, Origin("node:1"), ClockAdvanced())
    record = Recorded(entry, 0, "", (HostFenced((), "h1"),), "")
    fleet.kernel.call_later(0.0, checks.on_applied, 1, (record,), State())
    fleet.run_for(0.1)


def start(fleet: SmallFleet, index: int) -> None:
    """A process that no agent started."""
    task, host = f"alone/trainer/{index}#1", fleet.host()
    env = {
        "COORD_TASK": task,
        "COORD_JOB": "alone",
        "COORD_ROLE": "trainer",
        "COORD_INDEX": str(index),
        "COORD_GENERATION": "1",
        "COORD_DEVICES": str(index),
    }
    host.start_rank(LaunchSpec(task, ("train",), env, "", host.data_dir / "o", host.data_dir / "e"))


def test_nothing_exclusive_lives_on_a_fenced_host(fleet: SmallFleet) -> None:
    """What is not exclusive may."""
    checks = HostChecks(fleet.hosts)
    fleet.submit(role(replicas=1, last_step=80))
    fleet.until_running(TASK)
    fenced(fleet, checks)
    fleet.submit(role(replicas=1, last_step=80, exclusive=True), name="alone")
    fleet.until_running("alone/trainer/0#1")
    checks = HostChecks(fleet.hosts)
    with pytest.raises(Violation, match=FENCED):
        fenced(fleet, checks)


def test_nothing_exclusive_starts_without_a_lease(fleet: SmallFleet) -> None:
    """As its host counts it, which hears nothing; before that it may."""
    HostChecks(fleet.hosts)
    fleet.hosts.exclusive_roles["alone", "trainer"] = None
    fleet.kernel.call_later(0.0, start, fleet, 0)
    fleet.run_for(0.1)
    fleet.host().cut_network()
    fleet.run_for(fleet.hosts.settings.lease_ms / 1000)
    fleet.kernel.call_later(0.0, start, fleet, 1)
    with pytest.raises(Violation, match=UNDER_LEASE):
        fleet.run_for(0.1)


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_told_to_stop_is_gone_soon(fleet: SmallFleet, whole: bool) -> None:
    """Also when its agent is killed in between: the next one goes on, or is found out."""
    HostChecks(fleet.hosts)
    fleet.submit(role(replicas=1, last_step=80, env={"SIM_ON_SIGTERM": "ignore"}))
    fleet.until_running(TASK)
    fleet.cancel()
    fleet.run_for(0.3)
    fleet.host().agent_kill(0.2)
    if whole:
        fleet.run_for(15.0)
        assert fleet.rank(TASK) is None
        return
    with applied(MUTANTS["agent-goes-on-stopping"]), pytest.raises(Violation, match=STOPPED):
        fleet.run_for(15.0)
