"""What a lease rests on: the promise speaks up when it is broken, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coord_sim.world.lease_checks import LEASED, LeaseChecks
from coord_sim.world.violation import Violation

from tests.sim.small_fleet import SmallFleet


@pytest.fixture
def fleet() -> Iterator[SmallFleet]:
    with SmallFleet(hosts=0) as made:
        yield made


def joined(fleet: SmallFleet) -> None:
    """A host comes under the eyes of the check."""
    fleet.server.listeners.append(LeaseChecks(fleet.hosts).on_applied)
    fleet.hosts.add("h1", devices=1).power_on()
    fleet.until(lambda: len(fleet.state.hosts) == 1, "a host")


def test_a_lease_rests_on_beats_in_the_log(fleet: SmallFleet) -> None:
    """Also when its host is not heard for a while, and when its agent is killed."""
    joined(fleet)
    fleet.run_for(10.0)
    fleet.host().cut_network()
    fleet.run_for(6.0)
    fleet.host().heal_network()
    fleet.run_for(6.0)
    fleet.host().agent_kill()
    fleet.run_for(10.0)


def test_a_lease_on_a_beat_that_nobody_recorded_is_found(fleet: SmallFleet) -> None:
    """As an agent would have whose server answers what the log never holds."""
    joined(fleet)
    fleet.run_for(5.0)
    fleet.server.listeners.pop()
    with pytest.raises(Violation, match=LEASED):
        fleet.run_for(5.0)
