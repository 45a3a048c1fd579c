"""What incidents cost, held against a second count of the same logs."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.state import State, new_state, state_digest, state_from_rows, state_rows
from coord.model import events as e
from coord.model.cost import PHASES, DeviceTime, added
from coord.model.decisions import IncidentClosed, IncidentOpened, TasksPlaced
from coord.model.entry import Entry, Origin
from coord.model.settings import IncidentSettings, Policy, Settings
from coord.model.spec import JobSpec, RestartPolicy, RoleSpec
from tests.incidents.scenarios import SCENARIOS
from tests.incidents.test_scenarios import replayed


def test_phases_fill_the_time_from_the_last_sign_to_the_close() -> None:
    """Devices times that time, but for what is rounded off; idle places are a part of it, and the
    work that is done again is no longer than what was done."""
    checked = 0
    for name in SCENARIOS:
        for one in replayed(name).state.incidents.values():
            if one.closed_ms < 0:
                continue
            checked += 1
            begin_ms = one.opened_ms if one.follows else one.last_sign_ms
            lost = one.cost.lost
            alone = one.device_millis * (one.opened_ms - begin_ms)
            whole = (alone + one.cost.device_millis * (one.closed_ms - one.opened_ms)) // 1_000
            told = lost.total_ms - lost.work_ms
            assert whole - len(PHASES) <= told <= whole, one
            assert lost.idle_ms <= lost.placement_ms
            worked_ms = max(one.last_sign_ms - one.began_ms, 0)
            assert lost.work_ms * 1_000 <= one.device_millis * worked_ms
            assert bool(lost.work_ms) <= bool(one.lost_steps)
    assert checked > 20


@pytest.mark.parametrize("name", SCENARIOS)
def test_totals_are_the_sums_of_what_was_decided(name: str) -> None:
    """Counted from the decisions alone, by the cause that each incident closed with."""
    told = replayed(name)
    counts: Counter[str] = Counter()
    sums: dict[str, DeviceTime] = defaultdict(DeviceTime)
    for one in told.all(IncidentClosed):
        counts[one.cause] += 1
        sums[one.cause] = added(sums[one.cause], one.cost.lost)
    totals = told.state.incident_totals
    assert {cause: total.incidents for cause, total in totals.items()} == counts
    assert {cause: total.lost for cause, total in totals.items()} == sums


def test_an_incident_costs_the_devices_of_its_generation() -> None:
    """As many as were placed, whatever the next generation gets."""
    for name in ("i05-half-the-nodes-leave", "i10-a-deleted-cluster"):
        told = replayed(name)
        placed = {
            (one.gang, one.generation): sum(len(spot.devices) for spot in one.placements)
            for one in told.all(TasksPlaced)
        }
        opened = told.all(IncidentOpened)
        costs = [told.state.incidents[str(one.incident)].device_millis for one in opened]
        assert costs == [1_000 * placed[one.gang, one.generation] for one in opened]


class Failing:
    """One rank that fails again and again, under the rules of a logic version."""

    def __init__(self, logic_version: int, kept: int) -> None:
        self.state: State = new_state()
        policy = Policy(incidents=IncidentSettings(kept=kept))
        self.send(e.LeaderElected(1, 1))
        self.send(e.ClusterConfigured("c", Settings(policy=policy), logic_version))
        self.send(
            e.HostRegistered("h", "agent", "boot", "h", devices=1, cpu_millis=0, memory_mib=0)
        )
        self.submit()

    def submit(self) -> None:
        restart = RestartPolicy(infrastructure_limit=10**6, no_progress_limit=10**6, backoff_ms=0)
        self.send(e.JobSubmitted(JobSpec("j", (RoleSpec("r", ("x",)),), restart), "me"))

    def fail(self) -> None:
        key = f"j/r/0#{self.state.gangs['j/r'].generation}"
        report = {"host": "h", "incarnation": 1, "task": key}
        self.send(e.TaskStarted(**report, pid=1))
        self.send(e.TaskExited(**report, signal=9))
        self.send(e.TaskReaped(**report))

    def send(self, event: e.AnyEvent) -> None:
        index = self.state.meta.applied_index + 1
        entry = Entry(index, 1, 1_000 + 10 * index, Origin("client:me", 0, index), event)
        assert not apply(self.state, entry).rejection
        assert violations(self.state) == []


def test_the_newest_incidents_are_kept_and_what_all_cost() -> None:
    """Memory is bounded however often something fails; a restarted server keeps the same ones."""
    failing = Failing(logic_version=2, kept=3)
    for _ in range(12):
        failing.fail()
    assert sorted(map(int, failing.state.incidents)) == [10, 11, 12]
    assert failing.state.incident_totals["infrastructure"].incidents == 11
    again = state_from_rows(state_rows(failing.state))
    assert state_digest(again) == state_digest(failing.state)
    failing.state = again
    failing.fail()
    assert sorted(map(int, failing.state.incidents)) == [11, 12, 13]


def test_under_the_first_rules_nothing_is_counted_and_nothing_forgotten() -> None:
    """Digests of old logs hang on it."""
    failing = Failing(logic_version=1, kept=3)
    for _ in range(12):
        failing.fail()
    assert len(failing.state.incidents) == 12
    assert not failing.state.incident_totals
    assert {one.cost.device_millis for one in failing.state.incidents.values()} == {0}
