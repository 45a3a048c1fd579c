"""What each fault does to an execution; on a sound core none of them breaks a property."""

from __future__ import annotations

from pathlib import Path

import pytest
from coord_sim import world
from coord_sim.explore import watching
from coord_sim.explore.execute import Explored, Run, execute
from coord_sim.explore.incident import load
from coord_sim.explore.reacting import OWN_NUMBERS
from coord_sim.explore.schedule import (
    AgentCrash,
    AnyChange,
    ClockJump,
    Drop,
    Duplicate,
    InFlight,
    LeaderChange,
    LoseHosts,
    Pause,
    Schedule,
    SnapshotRestore,
)
from coord_sim.explore.search import search
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.surgery import applied
from msgspec.structs import replace

from coord.core import hosts, requests
from coord.core import state as state_module
from coord.core.invariants import INVARIANTS, violations
from coord.core.state import State
from coord.core.timers import Timers
from coord.model.decisions import HostJoined, HostLost, HostSuspected
from coord.model.entry import Recorded
from coord.model.events import (
    ClockAdvanced,
    HeartbeatsSeen,
    JobSubmitted,
    LeaderElected,
    TaskExited,
    TaskStarted,
)
from tests.fleet_story import Story

from .explored_stories import QUICK, crash_and_restart, explored, history, position

HOST = "host-0000"


@pytest.fixture(name="story", scope="module")
def _story() -> Story:
    story = crash_and_restart()
    story.wait(8_000)
    return story


@pytest.fixture(name="ready", scope="module")
def _ready(story: Story) -> Explored:
    return explored(story)


def run_with(ready: Explored, *changes: AnyChange) -> Run:
    run = execute(ready, Schedule(changes), to_the_end=True)
    assert run.violation is None
    return run


def kinds(run: Run, kind: type) -> list[int]:
    return [at for at, one in enumerate(run.records) if isinstance(one.entry.event, kind)]


def test_without_a_change_the_log_stays_as_it_is(ready: Explored, story: Story) -> None:
    run = execute(ready, Schedule())
    assert run.records[: len(story.records)] == tuple(story.records)
    assert run.consumed == len(story.records)


def test_a_lost_report_is_sent_again_and_the_next_one_is_too_early(
    ready: Explored, story: Story
) -> None:
    exited = position(story, TaskExited)
    run = run_with(ready, Drop(exited))
    early = run.records[exited]
    assert early.rejection == "report_gap"
    again = [at for at in kinds(run, TaskExited) if run.records[at].accepted]
    assert run.records[again[0]].now_ms >= story.records[exited].now_ms + 1_000


def test_a_lost_request_is_asked_again_under_the_same_number(ready: Explored, story: Story) -> None:
    submitted = position(story, JobSubmitted)
    run = run_with(ready, Drop(submitted))
    (at,) = kinds(run, JobSubmitted)
    assert at > submitted
    assert run.records[at].entry.origin == story.records[submitted].entry.origin


def test_a_lost_frame_is_not_repeated(ready: Explored, story: Story) -> None:
    run = run_with(ready, Drop(position(story, HeartbeatsSeen)))
    recorded = len([one for one in story.records if isinstance(one.entry.event, HeartbeatsSeen)])
    told = [run.records[at].entry.origin.seq for at in kinds(run, HeartbeatsSeen)]
    assert sum(1 for seq in told if seq < OWN_NUMBERS) == recorded - 1


def test_a_repeated_request_gets_its_first_outcome(ready: Explored, story: Story) -> None:
    submitted = position(story, JobSubmitted)
    run = run_with(ready, Duplicate(submitted, submitted + 2))
    _, again = kinds(run, JobSubmitted)
    assert run.records[again].duplicate_of == run.records[submitted].entry.index


def test_a_crashed_agent_registers_again_with_what_it_finds(ready: Explored, story: Story) -> None:
    run = run_with(ready, AgentCrash(HOST, position(story, HeartbeatsSeen, 4)))
    adopted = [
        decision.adopted
        for record in run.records
        for decision in record.decisions
        if isinstance(decision, HostJoined) and decision.incarnation == 2
    ]
    assert adopted == [("d/trainer/0#2",)]


def test_an_exit_that_was_not_sent_is_not_known_any_more(ready: Explored, story: Story) -> None:
    """With its notes the agent tells how the task ended, without them only that it did."""
    exited = position(story, TaskExited)
    for keeps, observed in ((True, True), (False, False)):
        run = run_with(ready, AgentCrash(HOST, exited, keeps_unsent=keeps))
        event = run.records[kinds(run, TaskExited)[0]].entry.event
        assert isinstance(event, TaskExited)
        assert event.observed is observed


def test_a_pause_beyond_the_lease_costs_the_host(ready: Explored, story: Story) -> None:
    run = run_with(ready, Pause(HOST, position(story, HeartbeatsSeen, 4), 5_000))
    assert _lost(run) == [HOST]


def test_a_short_pause_costs_nothing(ready: Explored, story: Story) -> None:
    run = run_with(ready, Pause(HOST, position(story, HeartbeatsSeen, 4), 1_000))
    assert _lost(run) == []


def _lost(run: Run) -> list[str]:
    decisions = [decision for record in run.records for decision in record.decisions]
    return [decision.host for decision in decisions if isinstance(decision, HostLost)]


def test_a_proposal_is_lost_with_its_leader_and_asked_again(ready: Explored, story: Story) -> None:
    submitted = position(story, JobSubmitted)
    run = run_with(ready, LeaderChange(submitted, InFlight.LOST))
    assert isinstance(run.records[submitted].entry.event, LeaderElected)
    (at,) = kinds(run, JobSubmitted)
    assert run.records[at].entry.term == 2


def test_a_proposal_is_committed_and_its_sender_asks_again(ready: Explored, story: Story) -> None:
    submitted = position(story, JobSubmitted)
    run = run_with(ready, LeaderChange(submitted, InFlight.COMMITTED_UNANSWERED))
    first, again = kinds(run, JobSubmitted)
    assert run.records[first].entry.term == 1
    assert run.records[again].duplicate_of == run.records[first].entry.index


def test_nobody_is_lost_for_an_election_that_takes_a_whole_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Log time may move by as much at once here, so that only the renewed leases help."""
    story = Story(hosts=2, settings=replace(QUICK, max_step_ms=10_000))
    story.submit("d", 2)
    story.wait(2_000)
    change = LeaderChange(position(story, ClockAdvanced, 2))
    assert _lost(run_with(explored(story), change)) == []
    monkeypatch.setattr(hosts, "renew_leases", lambda step: None)
    run = execute(explored(story), Schedule((change,)))
    assert run.violation is not None
    assert run.violation.sentence == "only a host that was silent for its lease is lost"


@pytest.mark.parametrize("at", [65, 67])
def test_what_was_not_launched_while_fenced_is_launched_once_heard(at: int) -> None:
    run = execute(Explored(history("transcript-exclusive")), Schedule((LeaderChange(at),)))
    assert run.violation is None


def test_every_election_takes_its_time(ready: Explored, story: Story) -> None:
    submitted = position(story, JobSubmitted)
    for in_flight in InFlight:
        run = run_with(ready, LeaderChange(submitted, in_flight))
        at = next(at for at in kinds(run, LeaderElected) if run.records[at].entry.term == 2)
        elected, before = run.records[at].entry, run.records[at - 1].entry
        wall_ms = before.wall_ms - story.records[at - 1].entry.wall_ms
        assert elected.wall_ms - before.wall_ms + wall_ms >= QUICK.lease_ms // 4


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("terms-grow", "terms only grow"),
        ("verdicts-in-term", "deadlines are judged in the term whose leader is recorded"),
        ("time-again-after-silence", "time out of sight counts against no task"),
        ("no-hang-out-of-sight", "time out of sight counts against no task"),
        ("clock-forward-only", "log time goes forward, and by no more than a step"),
        ("breaker", "no host is declared lost while much of the fleet is silent"),
    ],
)
def test_a_guard_that_was_taken_out_is_missed(name: str, sentence: str) -> None:
    """Within few schedules of a log in which it mattered to nobody."""
    told = {"terms-grow": "transcript-leader-change", "breaker": "fleet-14"}
    incident = history(told.get(name, "transcript-hang"))
    with applied(MUTANTS[name]):
        found = next(search(incident, budget_s=6, seed=1))
    assert found.run.violation is not None
    assert found.run.violation.sentence == sentence


def test_a_restored_server_goes_on_as_the_others(ready: Explored, story: Story) -> None:
    at = position(story, TaskStarted, 1)
    run = execute(ready, Schedule((SnapshotRestore(at),)))
    assert run.violation is None
    assert run.converged_at == at


def test_a_server_that_forgets_its_alarms_is_told_from_the_others(
    ready: Explored, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host falls silent: whoever was restored without alarms never notices."""
    derive = state_module._derive

    def forgetful(state: State) -> None:
        derive(state)
        state.timers = Timers()

    monkeypatch.setattr(state_module, "_derive", forgetful)
    silent = crash_and_restart()
    silent.lose("host-0001")
    silent.wait(5_000)
    lost = next(at for at, one in enumerate(silent.records) if _suspects(one))
    run = execute(explored(silent), Schedule((SnapshotRestore(lost - 1),)))
    assert run.violation is not None
    assert run.violation.sentence == "a server restored from a snapshot decides as the others do"


def _suspects(record: Recorded) -> bool:
    return any(isinstance(decision, HostSuspected) for decision in record.decisions)


@pytest.mark.parametrize("ms", [3_600_000, -3_600_000])
def test_a_clock_that_jumps_costs_nobody_its_host(ready: Explored, story: Story, ms: int) -> None:
    run = run_with(ready, ClockJump(position(story, ClockAdvanced, 4), ms))
    assert _lost(run) == []


def test_lost_hosts_are_back_in_the_end(ready: Explored, story: Story) -> None:
    run = run_with(ready, LoseHosts((HOST,), position(story, HeartbeatsSeen, 3)))
    assert HOST in _lost(run)
    assert run.state.hosts[HOST].status == "up"
    assert run.state.gangs["d/trainer"].phase == "running"


def test_a_request_that_takes_effect_twice_is_a_violation(
    ready: Explored, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_earlier_of_client", lambda state, client, seq: None)
    story = crash_and_restart()
    noted = position(story, JobSubmitted)
    registered = noted - 1
    run = execute(explored(story), Schedule((Duplicate(registered, registered),)))
    assert run.violation is not None
    assert run.violation.sentence == "no request is decided twice"


def test_every_invariant_is_looked_at_when_its_rows_change() -> None:
    """A new one in the core must be listed, or it is looked at after every entry."""
    listed = {check.__name__ for check in INVARIANTS.values()}
    assert listed == set(watching._READS)


def test_what_the_watch_leaves_out_holds(ready: Explored) -> None:
    """The whole list of invariants finds nothing where the watch found nothing."""
    for at in range(0, ready.recording.size, 5):
        run = run_with(ready, LoseHosts((HOST,), at))
        assert violations(run.state) == []


def test_a_log_that_was_silent_for_long_makes_no_silence_of_its_own(tmp_path: Path) -> None:
    """An entry moves log time by so much at the most; what the log's next entry makes up for must
    not come on top of what passed here meanwhile."""
    with world(seed=5, hosts=4) as idle:
        idle.run_for(60)
        idle.export(tmp_path / "incident.log")
    ready = Explored(load(tmp_path / "incident.log"))
    runs = [run_with(ready, LoseHosts((host,), at)) for host in ("h1", "h3") for at in range(8, 48)]
    assert any(_lost(run) for run in runs)
