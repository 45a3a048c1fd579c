"""Ten incidents of published training runs: what should have been decided is what is decided."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.core.machine import apply
from coord.core.state import new_state
from coord.model import decisions as d
from coord.model.entities import FailureCause, GangPhase, JobStatus
from coord.model.rollback_decisions import GangRolledBack
from coord.store.incident import IncidentReader
from tests.cli.recordings import entries_of, recorded
from tests.incidents.scenarios import GANG, HERE, SCENARIOS
from tests.incidents.story import Replayed, lines_of

BLAME = (d.HostQuarantined, d.HostBlamed, d.QuarantineProposed)


@cache
def replayed(name: str) -> Replayed:
    state = new_state()
    with path_of(name).open("rb") as file:
        records = [apply(state, one.record.entry) for one in IncidentReader(file, name)]
    assert [record for record in records if record.rejection] == []
    return Replayed(records, state)


def path_of(name: str) -> Path:
    return HERE / f"{name}.jsonl"


def nobody_is_blamed(told: Replayed) -> bool:
    return not any(told.all(kind) for kind in BLAME)


def restarts(told: Replayed) -> int:
    return len(told.all(d.TasksPlaced)) - 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kept_log_is_what_its_scenario_tells(name: str) -> None:
    """Written by `python -m tests.incidents.scenarios`."""
    assert path_of(name).read_bytes() == lines_of(SCENARIOS[name]())


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kept_log_replays(name: str, tmp_path: Path) -> None:
    """As it is kept, without digests; and recorded with them, to the same ones."""
    result = CliRunner().invoke(cli, ["replay", "--summary", str(path_of(name))])
    assert result.exit_code == Exit.OK, result.output
    assert "no digests recorded" in result.stderr
    again = tmp_path / "incident.log"
    again.write_bytes(recorded(entries_of(path_of(name))))
    result = CliRunner().invoke(cli, ["replay", "--summary", str(again)])
    assert (result.exit_code, result.stderr) == (Exit.OK, "")


def test_i01_one_restart_from_the_last_save_about_the_rank_that_died_first() -> None:
    """Its peers' aborted communicators are no second failure; the lost steps are told."""
    told = replayed("i01-crash-before-a-save")
    (opened,) = told.all(d.IncidentOpened)
    (closed,) = told.all(d.IncidentClosed)
    assert opened.subject == f"{GANG}/3#1"
    assert told.all(d.CauseRevised) == []
    assert (restarts(told), closed.lost_steps, closed.resolved) == (1, 247, True)
    assert closed.cost.lost.work_ms > 7 * 3_600_000 * 48
    assert nobody_is_blamed(told)


def test_i01_the_program_does_not_pay_for_an_unknown_error_of_the_device() -> None:
    (opened,) = replayed("i01-crash-before-a-save").all(d.IncidentOpened)
    assert opened.cause in (FailureCause.UNKNOWN, FailureCause.INFRASTRUCTURE)


def test_i02_the_slow_node_is_named_and_nothing_is_stopped() -> None:
    """What took days of excluding groups of nodes is one line."""
    told = replayed("i02-one-slow-node")
    (slow,) = told.all(d.SlowRankSuspected)
    assert (slow.host, slow.task) == ("iam05", f"{GANG}/5#1")
    assert told.all(d.IncidentOpened) == []
    assert restarts(told) == 0
    assert nobody_is_blamed(told)


def test_i03_a_hang_is_noticed_by_its_steps_and_not_repeated_for_ever() -> None:
    """Three times the same place: the job stops with that reason, and no host is to blame."""
    told = replayed("i03-stuck-evaluation")
    hangs = told.all(d.HangDetected)
    assert len(hangs) == len(told.all(d.IncidentOpened)) == 3
    assert max(hang.silent_ms for hang in hangs) < 3_600_000
    assert restarts(told) == 2
    (failed,) = told.all(d.JobFailed)
    assert failed.reason == "no_progress"
    assert nobody_is_blamed(told)


def test_i03_whoever_traced_the_ranks_can_say_which_one_it_was() -> None:
    told = replayed("i03-stuck-evaluation")
    (revised,) = told.all(d.CauseRevised)
    assert revised.subject == f"{GANG}/4#3"
    assert told.state.incidents["3"].host == "iam04"


def test_i05_the_run_goes_on_with_half_of_its_nodes() -> None:
    """Moved at its last save, so no step is lost; a planned move costs no budget."""
    told = replayed("i05-half-the-nodes-leave")
    (incident,) = told.all(d.IncidentClosed)
    first, second = told.all(d.TasksPlaced)
    assert (len(first.placements), len(second.placements)) == (12, 6)
    assert (second.restore_step, incident.lost_steps, incident.cause) == (94_767, 0, "drain")
    gang = told.state.gangs[GANG]
    assert (gang.restarts, gang.restarts_infrastructure, gang.restarts_user) == (1, 0, 0)
    assert nobody_is_blamed(told)


def test_i07_what_waits_says_why_and_goes_on_by_itself() -> None:
    """Neither running nor waiting is no state that a job can be in."""
    told = replayed("i07-nobody-queued-the-next")
    queued = told.all(d.JobQueued)
    assert queued[0].reason == "hosts_unavailable"
    (incident,) = told.all(d.IncidentClosed)
    assert (incident.cause, incident.lost_steps, incident.resolved) == ("preemption", 0, True)
    assert told.all(d.TasksPlaced)[-1].restore_step == 33_241
    assert told.state.jobs["train"].status == JobStatus.RUNNING
    assert told.state.gangs[GANG].restarts_infrastructure == 0


def test_i08_each_failure_is_one_restart_and_names_its_host() -> None:
    """Two nodes at once are one; the healthy node that was excluded is suspected of nothing."""
    told = replayed("i08-weeks-of-failing-nodes")
    opened = told.all(d.IncidentOpened)
    lost = told.all(d.HostLost)
    assert (len(opened), restarts(told), len(lost)) == (10, 10, 11)
    assert {one.cause for one in opened} == {"infrastructure"}
    assert [one.subject for one in opened] == [lost[0].host, *(one.host for one in lost[2:])]
    assert sum(one.lost_steps for one in told.all(d.IncidentClosed)) == 0
    assert told.all(d.SlowRankSuspected) == []
    assert nobody_is_blamed(told)
    assert told.state.gangs[GANG].phase == GangPhase.RUNNING


def test_i09_a_file_system_that_fails_is_one_restart_and_no_hosts_fault() -> None:
    told = replayed("i09-unreadable-corpus")
    assert (len(told.all(d.IncidentOpened)), restarts(told)) == (1, 1)
    assert told.all(d.TasksPlaced)[-1].restore_step == 100
    assert nobody_is_blamed(told)


def test_i09_the_program_does_not_pay_for_a_file_system() -> None:
    (opened,) = replayed("i09-unreadable-corpus").all(d.IncidentOpened)
    assert opened.cause in (FailureCause.UNKNOWN, FailureCause.INFRASTRUCTURE)


def test_i09_a_person_can_go_back_to_an_older_checkpoint() -> None:
    """What restore points otherwise never do, as a recorded action of an operator: one restart, at
    nobody's expense, and what is saved from then on is what counts."""
    told = replayed("i09-diverged")
    (back,) = told.all(GangRolledBack)
    assert (back.step, back.aside) == (33_600, (33_700,))
    assert (restarts(told), told.all(d.TasksPlaced)[-1].restore_step) == (1, 33_600)
    (closed,) = told.all(d.IncidentClosed)
    assert (closed.cause, closed.lost_steps, closed.resolved) == ("rollback", 150, True)
    newest = told.state.newest_checkpoint(GANG)
    assert newest is not None
    assert (newest.step, newest.generation) == (33_700, 2)
    assert nobody_is_blamed(told)


def test_i10_a_cluster_that_vanishes_waits_for_a_person_and_comes_back() -> None:
    """One incident for all hosts; machines that fail their checks get no work; the run goes on
    with the fewest possible, grows again, and survives the rest alone."""
    told = replayed("i10-a-deleted-cluster")
    assert len(told.all(d.EvictionsFrozen)) == 1
    vanished, grown, *failures = told.all(d.IncidentOpened)
    assert (vanished.cause, grown.cause) == ("infrastructure", "resize")
    failed = [f"m{at:02}" for at in range(5)]
    assert [one.host for one in told.all(d.HostQuarantined)][:5] == failed
    placed = told.all(d.TasksPlaced)
    assert (len(placed[1].placements), placed[1].restore_step) == (8, 500)
    assert len(failures) == len({one.subject for one in failures}) == 7
    used = {spot.host for one in placed[1:3] for spot in one.placements}
    assert used.isdisjoint(failed)
    assert told.state.jobs["train"].status == JobStatus.RUNNING


def test_i11_half_of_a_gang_that_fails_at_once_is_one_incident_of_its_first_rank() -> None:
    """Eight hosts reported the same; the first by its own clock is the root, and nobody is taken
    out of service for a domain whose counters did not move."""
    told = replayed("i11-contained-error")
    (opened,) = told.all(d.IncidentOpened)
    (closed,) = told.all(d.IncidentClosed)
    assert told.state.incidents["1"].subject == opened.subject == f"{GANG}/38#1"
    assert told.state.incidents["1"].host == "r09h2"
    assert (restarts(told), closed.lost_steps) == (1, 125)
    assert nobody_is_blamed(told)


def test_i11_the_machine_pays_for_a_contained_error() -> None:
    (opened,) = replayed("i11-contained-error").all(d.IncidentOpened)
    assert opened.cause == FailureCause.INFRASTRUCTURE


def test_i13_a_stall_with_every_sign_but_the_step_is_one_restart_within_minutes() -> None:
    """33 minutes it took by hand. All ranks stand in the same step: nobody is to blame."""
    told = replayed("i13-silent-stall")
    (hang,) = told.all(d.HangDetected)
    assert hang.silent_ms < 10 * 60_000
    assert len(hang.tasks) == 16
    (closed,) = told.all(d.IncidentClosed)
    assert (restarts(told), closed.lost_steps, closed.cause) == (1, 3, "unknown")
    assert nobody_is_blamed(told)
