"""A whole simulated cluster is led along a finding, and breaks the same or does not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from coord_sim.explore import cluster
from coord_sim.explore.cluster import attempt, in_cluster
from coord_sim.explore.findings import Finding, Findings
from coord_sim.explore.found import Found
from coord_sim.explore.scenario import (
    AgentPause,
    AgentRestart,
    Ask,
    CutOff,
    EndRank,
    Hold,
    JumpClock,
    NewLeader,
    PowerOff,
    PowerOn,
    RestartServers,
    StallLeader,
    scenario_of,
)
from coord_sim.explore.schedule import (
    AgentCrash,
    AnyChange,
    ClockJump,
    Drop,
    Duplicate,
    Flip,
    LeaderChange,
    LoseHosts,
    Pause,
    Schedule,
    SnapshotRestore,
)
from coord_sim.explore.shrink import shrink

from coord.core.step import HANDLERS
from coord.core.tasks import _started
from coord.model.events import JobSubmitted, TaskStarted

from .planted import SENTENCE, execute_orders, planted, two_failures

__all__ = ["planted"]


def finding_of(schedule: Schedule) -> Finding:
    incident = two_failures()
    findings = Findings(incident)
    findings.add(Found(schedule, execute_orders(incident, schedule), "test", 1, 0.0))
    (finding,) = findings
    return shrink(finding, execute_orders)


@pytest.fixture
def finding(planted: None) -> Finding:
    return finding_of(Schedule((Flip(6, 14),)))


def test_a_cluster_breaks_too(finding: Finding) -> None:
    """Its agents and servers have a pace of their own; what must be late is late in it."""
    tried = in_cluster(finding)
    assert tried.confirmed
    assert tried.words == "it broke there too, with 1 server, seed 1, late by 1,380 ms"


def test_a_silence_is_acted_too(planted: None) -> None:
    """A host that is lost in the log is cut off in the cluster."""
    finding = finding_of(Schedule((Flip(18, 28),)))
    scenario = scenario_of(finding)
    assert [type(act) for act in scenario.acts] == [PowerOn, PowerOn, Ask, CutOff]
    assert in_cluster(finding).confirmed


def test_a_sound_cluster_does_not_break(finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same script, with the guard in its place."""
    monkeypatch.setitem(HANDLERS, TaskStarted, _started)
    tried = in_cluster(finding)
    assert not tried.confirmed
    assert tried.words == "6 attempts with 1 server did not come to it"


def test_an_attempt_is_the_same_every_time(finding: Finding) -> None:
    """From its seed."""
    scenario = scenario_of(finding)
    assert [attempt(scenario, 5, 500) for _ in range(3)] == [SENTENCE] * 3


def test_a_finding_becomes_a_script(finding: Finding) -> None:
    """Machines, people and ends by themselves; what agents do they do by themselves."""
    scenario = scenario_of(finding)
    assert [host.host for host in scenario.hosts] == ["host-1", "host-2"]
    first, second, asked, ended = scenario.acts
    assert (first, second) == (
        PowerOn(100, (), "host-1"),
        PowerOn(110, (("HostRegistered host-1", 1),), "host-2"),
    )
    assert isinstance(asked, Ask)
    assert isinstance(asked.event, JobSubmitted)
    assert asked.event.spec.roles[0].env["SIM_LAST_STEP"] == "0"
    # The start that is late is not waited for; the other is.
    assert isinstance(ended, EndRank)
    assert (ended.task, ended.signal) == ("digits/trainer/1", 9)
    assert [name for name, _ in ended.after][2:] == ["TaskStarted digits/trainer/1"]
    assert scenario.holds == (Hold("host-1", "TaskStarted", "digits/trainer/0", 880),)


@pytest.mark.parametrize(
    ("change", "act"),
    [
        (AgentCrash("host-1", 4), AgentRestart(519, (), "host-1")),
        (Pause("host-1", 4, 900), AgentPause(519, (), "host-1", 900)),
        (LeaderChange(4), NewLeader(519, ())),
        (SnapshotRestore(4), RestartServers(519, ())),
        (ClockJump(4, -900), JumpClock(519, (), -900)),
        (LoseHosts(("host-2",), 4), PowerOff(519, (), "host-2")),
        (Flip(0, 4), StallLeader(0, (), 520)),
    ],
)
def test_every_fault_becomes_an_act(finding: Finding, change: AnyChange, act: object) -> None:
    """Just before the event that it strikes before."""
    changed = msgspec.structs.replace(finding, schedule=Schedule((change,)))
    scenario = scenario_of(changed)
    assert act in scenario.acts
    assert scenario.servers == (3 if isinstance(act, NewLeader) else 1)


@pytest.mark.parametrize("change", [Drop(3), Duplicate(4, 6), AgentCrash("host-1", 4, False)])
def test_what_no_script_brings_about_is_not_tried(finding: Finding, change: AnyChange) -> None:
    """And it says why."""
    changed = msgspec.structs.replace(finding, schedule=Schedule((change,)))
    tried = in_cluster(changed)
    assert not tried.confirmed
    assert tried.words.startswith("not tried, since no script brings about ")


def test_a_lost_message_comes_late(finding: Finding) -> None:
    """By what the bad order says: on a connection that keeps its order there is no other way."""
    changed = msgspec.structs.replace(finding, schedule=Schedule((Drop(4),)))
    assert scenario_of(changed).holds == (Hold("host-1", "TaskStarted", "digits/trainer/0", 880),)


def test_acts_are_performed_on_three_servers(
    finding: Finding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elections, snapshots, clocks, pauses and power: the sound cluster takes them all."""
    monkeypatch.setitem(HANDLERS, TaskStarted, _started)
    changes = (
        AgentCrash("host-1", 4), Pause("host-1", 5, 900), LeaderChange(5), SnapshotRestore(5),
        ClockJump(6, 900), LoseHosts(("host-2",), 6),
    )  # fmt: skip
    changed = msgspec.structs.replace(finding, schedule=Schedule(changes))
    scenario = scenario_of(changed)
    assert len(scenario.acts) == 10
    assert attempt(scenario, 1, 500, cluster.judge.IN_THE_END) == ""


def test_a_host_that_the_smallest_log_does_without_is_not_acted_on(finding: Finding) -> None:
    """Of hosts that were lost together, one alone may have mattered."""
    change = LoseHosts(("host-2", "host-9"), 4)
    changed = msgspec.structs.replace(finding, schedule=Schedule((change,)))
    scenario = scenario_of(changed)
    lost = [act.host for act in scenario.acts if isinstance(act, PowerOff)]
    assert lost == ["host-2"]
    assert not in_cluster(changed).confirmed
