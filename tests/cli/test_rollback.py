"""`coordctl job rollback`: a job goes on from an older checkpoint."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from coord.cli.describe import said_of_decision, said_of_event
from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.core.machine import apply
from coord.model import events
from coord.model.entities import GangPhase
from coord.model.entry import Entry, Origin
from coord.model.rollback_decisions import GangRolledBack
from tests.cli.fake_client import FakeClient
from tests.cli.recordings import TWO_FAILURES, entries_of

GANG = "digits/trainer"


@pytest.fixture
def fake() -> FakeClient:
    """A job that has saved steps 10, 20 and 30, and runs."""
    client = FakeClient(entries_of(TWO_FAILURES))
    for saved in (20, 30):
        for task in client.state.gangs[GANG].live:
            say(client, task, saved)
    return client


def say(client: FakeClient, task: str, saved: int) -> None:
    """One rank has saved its shard."""
    state = client.state
    host = state.hosts[state.tasks[task].host]
    path = f"/checkpoints/step-{saved}"
    event = events.ShardSaved(host.host, host.incarnation, task, saved, path, "s", f"d{saved}")
    origin = Origin(f"host:{host.host}", host.incarnation, host.report_seq + 1)
    index = state.meta.applied_index + 1
    record = apply(state, Entry(index, state.meta.term, state.meta.wall_ms + 10, origin, event))
    assert not record.rejection
    client.records.append(record)


def run(fake: FakeClient, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ("job", *arguments), obj=fake.connect)


def test_a_job_goes_back_by_two_checkpoints(fake: FakeClient) -> None:
    """It stops to begin there; the newer ones are set aside and still listed."""
    result = run(fake, "rollback", "digits", "--back", "2", "--reason", "loss spike")
    assert (result.exit_code, result.stdout) == (0, f"{GANG} goes on from step 10\n"), result
    assert fake.state.gangs[GANG].phase == GangPhase.STOPPING
    assert "  checkpoints: 10; set aside: 20, 30" in run(fake, "show", "digits").stdout
    shown = json.loads(run(fake, "show", "digits", "-o", "json").stdout)["job"]
    aside = [one["step"] for one in shown["gangs"][0]["checkpoints"] if one.get("set_aside")]
    assert (aside, shown["checkpoint"]["step"]) == ([20, 30], 10)


def test_the_step_may_be_named_and_asked_for_twice(fake: FakeClient) -> None:
    """The second time there is nothing to do, and it says so."""
    asked = ("rollback", "digits", "--to", "20", "--role", "trainer", "--reason", "loss spike")
    assert run(fake, *asked).stdout == f"{GANG} goes on from step 20\n"
    incidents = fake.state.meta.incidents
    again = run(fake, *asked)
    assert again.exit_code == Exit.FAILED
    assert "it is so already; nothing was changed" in again.stderr
    assert fake.state.meta.incidents == incidents


def test_what_is_not_there_is_refused(fake: FakeClient) -> None:
    result = run(fake, "rollback", "digits", "--to", "25", "--reason", "x")
    assert result.exit_code == Exit.FAILED
    assert "unknown_checkpoint" in result.stderr
    assert fake.state.gangs[GANG].phase == GangPhase.RUNNING


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--reason", "x"), "either --to STEP or --back N"),
        (("--to", "1", "--back", "1", "--reason", "x"), "either --to STEP or --back N"),
        (("--back", "0", "--reason", "x"), "0 is not in the range"),
        (("--to", "20"), "--reason"),
    ],
)
def test_a_request_that_says_too_little_or_too_much_is_not_sent(
    fake: FakeClient, options: tuple[str, ...], told: str
) -> None:
    before = len(fake.records)
    result = run(fake, "rollback", "digits", *options)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr
    assert len(fake.records) == before


def test_the_log_says_who_went_back_and_why() -> None:
    asked = events.RollbackRequested("d", 100, 0, "t", "ann", "loss spike")
    assert said_of_event(asked).subject == "d/t"
    assert said_of_event(asked).text.startswith("back to the checkpoint of step 100, ")
    by = events.RollbackRequested("d", back=2, actor="ann")
    assert said_of_event(by).text.startswith("back by 2 checkpoints, ")
    decided = GangRolledBack((), "d", "d/t", 3, 100, "/c", (200, 300))
    assert said_of_decision(decided, 0).text == "to step 100 in /c, set aside: 200, 300"
