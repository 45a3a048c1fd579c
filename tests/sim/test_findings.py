"""What a search finds is kept once for each kind, counted, and its smallest example kept."""

from __future__ import annotations

import pytest
from coord_sim.explore.confirm import Tried, confirmed
from coord_sim.explore.findings import Findings, Key, Status, kinds_of, merged
from coord_sim.explore.found import Found
from coord_sim.explore.incident import Incident
from coord_sim.explore.schedule import (
    AgentCrash,
    ClockJump,
    Delay,
    Drop,
    Flip,
    InFlight,
    LeaderChange,
    LoseHosts,
    Pause,
    Reorder,
    Schedule,
    SnapshotRestore,
)

from .planted import SENTENCE, execute_orders, planted, two_failures

__all__ = ["planted"]


@pytest.fixture
def incident() -> Incident:
    return two_failures()


def found(incident: Incident, *changes: Flip | Delay | Reorder, number: int = 1) -> Found:
    schedule = Schedule(changes)
    return Found(schedule, execute_orders(incident, schedule), "single flips", number, 0.5)


def test_a_kind_is_kept_once_and_counted(planted: None, incident: Incident) -> None:
    """However often it is met; the first one is new, the others are not."""
    findings = Findings(incident)
    news = [findings.add(found(incident, Flip(18, at))) for at in (28, 29, 28, 29)]
    assert [new is not None for new in news] == [True, False, False, False]
    (finding,) = findings
    assert finding.count == 4
    assert finding.status is Status.CANDIDATE
    assert finding.key == Key(SENTENCE, ("TaskStarted after ClockAdvanced",), finding.key.fields)
    assert finding.key.fields == ("gangs.phase", "gangs.started")


def test_the_smallest_example_is_kept(planted: None, incident: Incident) -> None:
    """Of two schedules of a kind the one that moves an event less far, whichever came first."""
    for order in ((28, 29), (29, 28)):
        findings = Findings(incident)
        for number, at in enumerate(order, 1):
            findings.add(found(incident, Flip(18, at), number=number))
        (finding,) = findings
        assert finding.schedule == Schedule((Flip(18, 28),))
        assert finding.schedules_so_far == 1


def test_other_kinds_are_other_findings(planted: None, incident: Incident) -> None:
    """The same property, broken by pairs of other kinds."""
    findings = Findings(incident)
    assert findings.add(found(incident, Flip(6, 14))) is not None
    assert findings.add(found(incident, Flip(18, 28))) is not None
    assert len(findings) == 2


def test_of_very_many_only_some_are_compared(planted: None, incident: Incident) -> None:
    """The rest is counted: a broken rule breaks in every second schedule."""
    findings = Findings(incident)
    one = found(incident, Flip(18, 28))
    for _ in range(500):
        findings.add(one)
    assert [finding.count for finding in findings] == [500]


def test_a_run_that_broke_nothing_is_refused(incident: Incident) -> None:
    whole = Found(Schedule(), execute_orders(incident, Schedule()), "replay", 1, 0.1)
    with pytest.raises(ValueError, match="broke nothing"):
        Findings(incident).add(whole)


def test_findings_that_turn_out_to_be_the_same_are_merged(
    planted: None, incident: Incident
) -> None:
    """Counted together, and told once."""
    findings = Findings(incident)
    findings.add(found(incident, Flip(18, 28)))
    (finding,) = findings
    (both,) = merged([finding, finding])
    assert both.count == 2
    assert both.key == finding.key


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (Flip(6, 14), "TaskStarted after TaskExited"),
        (Delay(6, 14), "TaskStarted after TaskExited"),
        (Reorder(6, (7, 6, 8)), "TaskStarted after TaskStarted"),
        (Drop(6), "lost TaskStarted"),
        (AgentCrash("host-1", 6), "agent crash"),
        (AgentCrash("host-1", 6, keeps_unsent=False), "agent crash without unsent reports"),
        (Pause("host-1", 6, 9_000), "agent pause"),
        (LeaderChange(6), "leader change"),
        (LeaderChange(6, InFlight.LOST), "leader change, TaskStarted in flight lost"),
        (SnapshotRestore(6), "snapshot and restore"),
        (ClockJump(6, 9_000), "clock jump"),
        (LoseHosts(("host-1",), 6), "loss of a host"),
        (LoseHosts(("host-1", "host-2"), 6), "loss of hosts"),
    ],
)
def test_a_change_is_of_a_kind(incident: Incident, change: Flip, kind: str) -> None:
    """The same whoever it strikes, so that findings of many hosts are one."""
    assert kinds_of(incident, Schedule((change,))) == (kind,)


def test_a_finding_is_confirmed_only_by_a_confirmer(planted: None, incident: Incident) -> None:
    """Without one it stays a candidate."""
    findings = Findings(incident)
    findings.add(found(incident, Flip(18, 28)))
    (alone,) = confirmed(findings, None)
    (tried,) = confirmed(findings, lambda _: Tried(False, "6 attempts did not come to it"))
    (shown,) = confirmed(findings, lambda _: Tried(True, "it broke there too"))
    assert (alone.status, alone.tried) == (Status.CANDIDATE, "")
    assert (tried.status, tried.tried) == (Status.CANDIDATE, "6 attempts did not come to it")
    assert (shown.status, shown.tried) == (Status.CONFIRMED, "it broke there too")
