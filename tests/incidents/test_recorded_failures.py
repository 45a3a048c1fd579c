"""A slice of recorded failures: no invariant breaks, no job restarts twice for one incident.

`python -m tests.bench.recorded` drives all of them.
"""

from __future__ import annotations

import pytest

from tests.bench import recorded
from tests.bench.recorded_fleet import Broken, Fleet, Machine

pytestmark = pytest.mark.skipif(
    not recorded.is_there(), reason=f"the recorded failures are not at {recorded.RECORDED}"
)


def test_the_record_is_the_one_that_is_known() -> None:
    """23,739 failures, among them 170 minutes in which 4 or more nodes of a system failed."""
    systems = recorded.node_failures()
    assert sum(len(failures) for failures in systems.values()) == 23_739
    bursts = 0
    for failures in systems.values():
        minutes: dict[object, dict[int, None]] = {}
        for at, node, _ in failures:
            minutes.setdefault(at, {})[node] = None
        bursts += sum(len(nodes) >= 4 for nodes in minutes.values())
    assert bursts == 170
    assert sum(len(lives) for lives in recorded.gpu_lives().values()) == 37_343


@pytest.mark.parametrize(("system", "count"), [("2", 1_500), ("8", 400), ("20", 500)])
def test_failures_of_nodes_restart_each_job_once(system: str, count: int) -> None:
    """System 2 has most of the bursts; 20 is large."""
    counts = recorded.live_through(system, recorded.node_failures()[system][:count])
    assert counts.failures > count * 9 // 10
    assert counts.restarts > 0
    assert counts.decisions["JobFailed"] == 0
    if system == "2":
        assert counts.bursts > 10
        assert counts.decisions["DomainSilent"] > 0


def test_lives_of_gpus_restart_each_job_once() -> None:
    """Double-bit errors and parts that fell off the bus, in a row of cabinets."""
    counts = recorded.live_lives("0", recorded.gpu_lives()["0"], until=120)
    assert counts.failures > 100
    assert counts.decisions["HostQuarantined"] > 0
    assert counts.decisions["JobFailed"] == 0


def test_a_job_that_restarts_twice_for_one_incident_is_noticed() -> None:
    """The check itself can fail."""
    place = recorded.Place("z", "p", "r")
    fleet = Fleet("c", [Machine(f"h{at}", place) for at in range(10)], 2)
    fleet.fall_silent([fleet.state.gangs["job0/r"].hosts[0]])
    fleet.end_incident()
    fleet.insert(Machine(fleet.state.gangs["job0/r"].hosts[1], place, "2"))
    with pytest.raises(Broken, match="restarted 2 times for one incident"):
        fleet.end_incident()
