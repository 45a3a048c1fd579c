"""A finding's files: the smallest log, the bad order as a log of its own, and the schedule."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from coord_sim.explore.exploration import repeat_command
from coord_sim.explore.files import write_finding
from coord_sim.explore.findings import Finding, Findings
from coord_sim.explore.found import Found
from coord_sim.explore.given import BadSchedule, check_schedule, parse_schedule
from coord_sim.explore.run import Run
from coord_sim.explore.schedule import Flip, LoseHosts, Reorder, Schedule
from coord_sim.explore.shrink import shrink
from coord_sim.explore.span import read_span

from coord.cli.exits import Exit
from coord.cli.main import cli

from .planted import execute_orders, planted, two_failures

__all__ = ["planted"]


@pytest.fixture
def finding(planted: None) -> Finding:
    incident = two_failures()
    schedule = Schedule((Flip(6, 14),))
    findings = Findings(incident)
    findings.add(Found(schedule, execute_orders(incident, schedule), "test", 1, 0.0))
    (found,) = findings
    return shrink(found, execute_orders)


@pytest.mark.parametrize("suffix", ["log", "jsonl"])
def test_both_orders_replay(finding: Finding, tmp_path: Path, suffix: str) -> None:
    """In both formats; the bad one ends in the state that breaks the rule, and replay says so."""
    told = write_finding(tmp_path / "finding-1", finding)
    assert len(told) == 3
    assert "`coordctl replay` ends in the broken state" in told[-1]
    good = CliRunner().invoke(cli, ["replay", str(tmp_path / "finding-1" / f"incident.{suffix}")])
    assert good.exit_code == Exit.OK
    assert "7 of 7 verified" in good.stdout
    bad = CliRunner().invoke(cli, ["replay", str(tmp_path / "finding-1" / f"broken.{suffix}")])
    assert bad.exit_code == Exit.FAILED
    assert "7 of 7 verified" in bad.stdout
    assert "broken invariant: a task that runs on a plan" in bad.stdout
    assert bad.stdout.rindex("TaskStarted") > bad.stdout.rindex("TasksStopping")


def test_the_files_break_again(finding: Finding, tmp_path: Path) -> None:
    """The smallest log under the schedule beside it."""
    write_finding(tmp_path, finding)
    incident = read_span(str(tmp_path / "incident.log")).incident
    schedule = parse_schedule(f"@{tmp_path / 'schedule.json'}")
    check_schedule(incident, schedule)
    run = execute_orders(incident, schedule)
    assert run.violation == finding.run.violation


def test_an_order_that_entries_alone_do_not_show_is_not_written(
    finding: Finding, tmp_path: Path
) -> None:
    """As when the state was lost in part: a log of it would not replay."""
    run = finding.run
    other = msgspec.structs.replace(run.records[-1], digest="0" * 32)
    again = Run((*run.records[:-1], other), run.violation, 0, 0, None, run.state)
    told = write_finding(tmp_path, msgspec.structs.replace(finding, run=again))
    assert len(told) == 2
    assert not (tmp_path / "broken.log").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "a schedule is"),
        ('{"changes":[{"type":"Nonsense"}]}', "a schedule is"),
        ('{"changes":[]}', "it changes nothing"),
        ("@absent.json", "absent.json cannot be read"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadSchedule, match=told):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Schedule((Flip(3, 99),)), "second of Flip is 99; the log has positions 0 to 34"),
        (Schedule((Flip(9, 3),)), "moves 9 after 3, where it is already"),
        (Schedule((Reorder(3, (4, 5)),)), "order of Reorder must hold each of 3 to 4 once"),
        (Schedule((LoseHosts(("host-9",), 3),)), "host 'host-9', of which the log does not tell"),
    ],
)
def test_a_schedule_for_another_log_is_refused(schedule: Schedule, told: str) -> None:
    with pytest.raises(BadSchedule, match=told):
        check_schedule(two_failures(), schedule)


def test_the_command_can_be_pasted_into_a_shell() -> None:
    """Quoted; a schedule too long for that is left to its file."""
    assert repeat_command("a b.log", Schedule((Flip(3, 9),)), ("--from", "7")) == (
        "coordctl sim explore 'a b.log' --from 7 --schedule "
        """'{"changes":[{"type":"Flip","first":3,"second":9}]}'"""
    )
    assert repeat_command("a.log", Schedule((Reorder(0, tuple(range(2_000))),))) == ""
