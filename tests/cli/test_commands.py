"""What the commands that ask a server print, and how they end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from coord.cli.describe import said_of_decision
from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.client.errors import (
    CoordError,
    DoneButUnread,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)
from coord.client.views import LogPage
from coord.model.decisions import IncidentClosed, JobQueued
from coord.model.entities import GangPhase, HostStatus, JobStatus, QueueReason
from tests.cli.fake_client import FakeClient
from tests.cli.recordings import TWO_FAILURES, entries_of
from tests.conftest import Golden

GOLDEN = Path(__file__).parent / "golden" / "commands"
JOB = "name: second\nroles: [{name: r, command: [x], replicas: 9, resources: {devices: 1}}]\n"


@pytest.fixture
def fake() -> FakeClient:
    """The cluster after the two failures."""
    return FakeClient(entries_of(TWO_FAILURES))


def run(fake: FakeClient, *arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(cli, arguments, obj=fake.connect, **more)


PRINTED = [
    "job list",
    "job show digits",
    "job why digits",
    "host list",
    "host show host-2",
    "cluster status",
    "incident list",
    "events",
    "events --last 3",
    "events --from 30 --host host-3",
]
DOCUMENTS: dict[str, Callable[[Any], bool]] = {
    "job list": lambda found: found[0]["status"] == "running",
    "job show digits": lambda found: len(found["job"]["gangs"][0]["tasks"]) == 2,
    "job why digits": lambda found: found["gangs"][0]["sieves"][0]["hosts"] == 3,
    "host list": lambda found: [host["host"] for host in found] == ["host-1", "host-2", "host-3"],
    "host show host-2": lambda found: found["status"] == "lost",
    "cluster status": lambda found: found["leader"] == 1,
    "incident list --open": lambda found: [one["incident"] for one in found] == [2],
    "events --from 29 --to 29": lambda found: [one["entry"]["index"] for one in found] == [29],
}


@pytest.mark.parametrize("command", PRINTED)
def test_a_command_prints(fake: FakeClient, golden: Golden, command: str) -> None:
    """One golden output each; nothing on stderr, lines without trailing blanks."""
    result = run(fake, *command.split())
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    assert not [line for line in result.stdout.splitlines() if line != line.rstrip()]
    golden(GOLDEN / f"{command.replace(' ', '_')}.txt", result.stdout)


@pytest.mark.parametrize("command", DOCUMENTS)
def test_json_is_one_document(fake: FakeClient, command: str) -> None:
    """With what the API says, whole."""
    result = run(fake, *command.split(), "-o", "json")
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    assert DOCUMENTS[command](json.loads(result.stdout))


def test_following_events_prints_json_lines(fake: FakeClient) -> None:
    """One entry a line, so that a program can read on."""
    lines = run(fake, "events", "-f", "-o", "json", "--from", "33").stdout.splitlines()
    assert [json.loads(line)["entry"]["index"] for line in lines] == [33, 34, 35]


def test_an_incident_of_which_only_the_end_is_told_claims_nothing_else(fake: FakeClient) -> None:
    """Whether its gang was placed again stands in entries that were not asked for."""
    closing = next(
        record.entry.index
        for record in fake.records
        if any(isinstance(decision, IncidentClosed) for decision in record.decisions)
    )
    told = run(fake, "events", "--from", str(closing), "--to", str(closing)).stdout
    assert "opened earlier, closed" in told
    assert "placed again" not in told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["events", "--from", "5", "--to", "3"], "--to 3 stands before --from 5"),
        (["events", "--last", "-1"], "not in the range"),
        (["events", "-f", "--to", "3"], "has no end"),
        (["note", "digits", " "], "TEXT is empty"),
    ],
)
def test_what_cannot_be_meant_is_usage(fake: FakeClient, command: list[str], told: str) -> None:
    result = run(fake, *command)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr


def test_no_events_are_told_from_no_output(fake: FakeClient) -> None:
    result = run(fake, "events", "--from", "99999")
    assert (result.exit_code, result.stdout) == (Exit.OK, "")
    assert result.stderr.startswith("no events to tell of")


def test_following_events_says_when_no_server_answers(fake: FakeClient) -> None:
    """Silence of the servers must not look like silence of the fleet."""
    fake.trouble = Unavailable("GET /v1/events: no server could answer within 10 s")
    result = run(fake, "events", "-f", "--from", "35")
    assert result.exit_code == Exit.OK
    assert "no server could answer within 10 s; trying on, Ctrl-C ends it" in result.stderr
    assert fake.asked == [("watch", math.inf)]
    assert "ProgressReported" in result.stdout


def test_tables_fit_eighty_columns(fake: FakeClient) -> None:
    """The lists that people look at most."""
    for command in ("job list", "host list", "cluster status"):
        for line in run(fake, *command.split()).stdout.splitlines():
            assert len(line) <= 80, (command, line)


def test_a_removed_host_is_listed_only_on_request(fake: FakeClient) -> None:
    """It was asked to be forgotten; the log has not."""
    host = fake.state.hosts["host-2"]
    fake.state.hosts.put("host-2", replace(host, status=HostStatus.REMOVED))
    assert "host-2" not in run(fake, "host", "list").stdout
    assert "host-2" in run(fake, "host", "list", "--all").stdout
    listed = json.loads(run(fake, "host", "list", "-o", "json").stdout)
    assert [view["host"] for view in listed] == ["host-1", "host-3"]


def test_a_back_off_is_told_as_what_is_left_of_it(fake: FakeClient) -> None:
    """Nobody knows what log time it is."""
    key, gang = next(iter(fake.state.gangs.items()))
    now_ms = fake.state.meta.now_ms
    waiting = replace(
        gang,
        queue_reason=QueueReason.BACKOFF,
        queue_detail=f"until {now_ms + 2_500} ms of log time",
        not_before_ms=now_ms + 2_500,
        phase=GangPhase.WAITING,
    )
    fake.state.gangs.put(key, waiting)
    for command in ("job list", "job show digits"):
        assert "backoff: 2.500s more" in run(fake, *command.split()).stdout
    queued = JobQueued((), "digits", "digits/trainer", QueueReason.BACKOFF, "until 9 ms")
    assert said_of_decision(queued, now_ms).text == "backoff"


def test_an_empty_list_prints_nothing_to_a_pipe() -> None:
    """The hint goes to stderr, so that a script reads no rows."""
    result = run(FakeClient([]), "job", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (Exit.OK, "", "no jobs\n")


def test_submit_says_why_the_job_waits(fake: FakeClient, tmp_path: Path) -> None:
    """A job that fits nowhere is queued, with the reason."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    result = run(fake, "job", "submit", str(path))
    assert result.exit_code == Exit.OK
    assert result.stdout.startswith("second  queued  devices:")
    submitted, *warned = result.stderr.splitlines()
    assert submitted == "submitted second at index 36"
    assert warned[0].startswith("warning: roles[0].replicas is 9; 3 fit on all hosts together")


def test_submit_reads_standard_input(fake: FakeClient) -> None:
    result = run(fake, "job", "submit", "-", "-o", "json", input=JOB)
    assert json.loads(result.stdout)["name"] == "second"


def test_dry_run_asks_no_server() -> None:
    fake = FakeClient([], raises=AssertionError("asked"))
    result = run(fake, "job", "submit", "--dry-run", "-", input=JOB)
    assert (result.exit_code, result.stdout) == (
        Exit.OK,
        "- is a valid job; without --dry-run it would be submitted\n",
    )


def test_a_job_file_that_is_not_there_is_usage(fake: FakeClient) -> None:
    result = run(fake, "job", "submit", "absent.yaml")
    assert result.exit_code == Exit.USAGE
    assert "'absent.yaml' does not exist" in result.stderr


def test_an_ended_job_waits_for_nothing(fake: FakeClient) -> None:
    """What it waited for when it was cancelled is no reason of its end."""
    assert run(fake, "job", "submit", "-", input=JOB).exit_code == Exit.OK
    assert "devices" in run(fake, "job", "list").stdout
    assert run(fake, "job", "cancel", "second").exit_code == Exit.OK
    listed = run(fake, "job", "list", "--all").stdout
    assert "cancelled" in listed
    assert "devices" not in listed


def test_a_wrong_job_file_is_usage(fake: FakeClient) -> None:
    """Nothing is submitted; the field and the line are named."""
    result = run(fake, "job", "submit", "-", input=JOB.replace("replicas", "replcas"))
    assert result.exit_code == Exit.USAGE
    assert "roles[0].replcas: unknown field, did you mean replicas? (stdin:2)" in result.stderr
    assert "second" not in fake.state.jobs


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (JobStatus.COMPLETED, "", Exit.OK),
        (JobStatus.FAILED, "budget", Exit.FAILED),
        (JobStatus.CANCELLED, "", Exit.FAILED),
    ],
)
def test_wait_ends_as_the_job_does(
    fake: FakeClient, status: JobStatus, reason: str, code: Exit
) -> None:
    """0 only when the job completed."""
    ending = fake.submit_job

    async def submit_and_end(spec: Any) -> Any:
        view = await ending(spec)
        fake.end_job(spec.name, status=status, reason=reason, ended=40, ended_ms=9_000)
        return view

    fake.submit_job = submit_and_end  # type: ignore[method-assign]
    result = run(fake, "job", "submit", "--wait", "-", input=JOB)
    assert result.exit_code == code
    assert (f"job second ended as {status}" in result.stderr) == (code != Exit.OK)


CHANGES = [
    ("job cancel digits --reason enough", "cancelling digits\n", "JobCancelRequested"),
    ("host drain host-1", "draining host-1; see `coordctl host show host-1`\n", "DrainRequested"),
    ("note host-2 looked", "noted at index 36\n", "NoteAdded"),
]


@pytest.mark.parametrize(("command", "printed", "event"), CHANGES)
def test_a_change_is_made(fake: FakeClient, command: str, printed: str, event: str) -> None:
    result = run(fake, *command.split())
    assert (result.exit_code, result.stdout) == (Exit.OK, printed)
    assert type(fake.records[-1].entry.event).__name__ == event


def test_a_refusal_names_the_reason_and_ends_with_1(fake: FakeClient) -> None:
    result = run(fake, "job", "resize", "digits", "trainer", "9")
    assert result.exit_code == Exit.FAILED
    assert "digits/trainer takes 2 replicas, not 9" in result.stderr
    result = run(fake, "job", "resize", "digits", "absent", "2")
    assert "unknown_role" in result.stderr


def test_something_absent_is_named(fake: FakeClient) -> None:
    result = run(fake, "job", "show", "absent")
    assert result.exit_code == Exit.FAILED
    assert "there is no job 'absent'" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (Rejected("job x", "duplicate_job", 7), Exit.FAILED, "a job of this name exists"),
        (Unavailable("no server answered in 10 s"), Exit.UNAVAILABLE, "Nothing was changed"),
        (OutcomeUnknown("no answer within 10 s"), Exit.UNKNOWN, "It may have happened"),
        (DoneButUnread("decided at index 7", 7), Exit.UNKNOWN, "It has happened: do not"),
        (PermissionError(13, "Permission denied", "/x"), Exit.FAILED, "Permission denied: /x"),
    ],
)
def test_an_error_is_a_paragraph_with_its_exit_code(
    error: CoordError, code: Exit, told: str
) -> None:
    """It says whether the request may have happened; there is no traceback."""
    result = run(FakeClient([], raises=error), "job", "list")
    assert result.exit_code == code
    assert result.stderr.startswith("coordctl: ")
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback() -> None:
    result = run(FakeClient([], raises=Unavailable("away")), "--debug", "job", "list")
    assert isinstance(result.exception, Unavailable)


def test_the_options_reach_the_client(fake: FakeClient) -> None:
    """Several servers, the actor and the time limit; flags go before the environment."""
    env = {"COORD_SERVER": "a:1,b:2", "COORD_ACTOR": "ann"}
    assert run(fake, "job", "list", "--timeout", "3", env=env).exit_code == Exit.OK
    assert fake.session is not None
    assert fake.session.servers == ("a:1", "b:2")
    assert (fake.session.actor, fake.session.timeout_s) == ("ann", 3.0)
    assert not fake.session.stale
    assert run(fake, "job", "list", "--stale").exit_code == Exit.OK
    assert fake.session.stale
    assert run(fake, "job", "list", "--server", "c:3", env=env).exit_code == Exit.OK
    assert fake.session.servers == ("c:3",)


def test_without_an_address_the_servers_of_up_are_asked(fake: FakeClient) -> None:
    """Any one of the three may be missing."""
    assert run(fake, "job", "list", env={"COORD_SERVER": ""}).exit_code == Exit.OK
    assert fake.session is not None
    assert fake.session.servers == tuple(f"http://127.0.0.1:{port}" for port in (7101, 7102, 7103))


def test_a_leader_that_is_not_reached_is_none(fake: FakeClient) -> None:
    """A server that hears of no new one goes on to name the last."""
    fake.connected = ()
    result = run(fake, "cluster", "status")
    assert result.exit_code == Exit.UNAVAILABLE
    assert "none; node 1 led last, and is away" in result.stdout
    assert "no leader" in result.stderr


def test_only_where_nobody_answered_the_addresses_are_doubted() -> None:
    for reason, doubted in (("unavailable", True), ("joiner_away", False)):
        fake = FakeClient([], raises=Unavailable("no", reason))
        result = run(fake, "job", "list")
        assert result.exit_code == Exit.UNAVAILABLE
        assert ("COORD_SERVER" in result.stderr) == doubted


def test_a_malformed_server_is_usage() -> None:
    result = CliRunner().invoke(cli, ["job", "list", "--server", "ftp://x"])
    assert result.exit_code == Exit.USAGE
    assert "use http or https" in result.stderr


def test_logs_are_copied_to_the_end(fake: FakeClient) -> None:
    """All pages of the newest run, byte by byte."""
    fake.pages = [LogPage(b"one\n", 0), LogPage(b"two\xff\n", 4, ended=True)]
    result = run(fake, "job", "logs", "digits", "--index", "1")
    assert (result.exit_code, result.stdout_bytes) == (Exit.OK, b"one\ntwo\xff\n")
    assert [(asked["generation"], asked["offset"]) for _, asked in fake.asked] == [(3, 0), (3, 4)]


def test_logs_as_json_are_a_document_a_line(fake: FakeClient) -> None:
    """However the pages cut them; the last line may have no end."""
    fake.pages = [LogPage(b"one\ntw", 0), LogPage(b"o\xff\nthree", 6, ended=True)]
    result = run(fake, "job", "logs", "digits", "-o", "json")
    task = {"task": "digits/trainer/0#3", "stream": "stdout"}
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {**task, "text": "one"},
        {**task, "text": "two\ufffd"},
        {**task, "text": "three"},
    ]


def test_logs_of_an_earlier_and_larger_run(fake: FakeClient) -> None:
    """Its tasks are not those of the role as it is now."""
    fake.pages = [LogPage(b"seven\n", 0, ended=True)]
    result = run(fake, "job", "logs", "digits", "--generation", "1", "--index", "7")
    assert (result.exit_code, result.stdout) == (Exit.OK, "seven\n")


def test_following_logs_outlives_the_host(fake: FakeClient) -> None:
    """What the lost host kept is skipped, and said to be; the next run is followed."""
    fake.end_job("digits", ended=40, status=JobStatus.COMPLETED)
    away = Unavailable("ran on host host-2, whose agent is away", "agent_away")
    fake.pages = [LogPage(b"old\n", 0), away, LogPage(b"new\n", 0, ended=True)]
    result = run(fake, "job", "logs", "-f", "digits", "--generation", "1")
    assert (result.exit_code, result.stdout) == (Exit.OK, "old\nnew\n")
    assert "the host of digits/trainer/0#1 is away" in result.stderr


def test_following_logs_waits_for_a_host_that_may_come_back(fake: FakeClient) -> None:
    away = Unavailable("ran on host host-2, whose agent is away", "agent_away")
    fake.pages = [away, away, LogPage(b"more\n", 0), Unavailable("gone", "unavailable")]
    result = run(fake, "job", "logs", "-f", "digits")
    assert result.stdout == "more\n"
    assert result.stderr.count("whose agent is away; trying on") == 1
    assert result.exit_code == Exit.UNAVAILABLE


def test_logs_of_an_ended_job_do_not_wait_for_its_host(fake: FakeClient) -> None:
    fake.end_job("digits", ended=40, status=JobStatus.COMPLETED)
    fake.pages = [Unavailable("ran on host host-2, whose agent is away", "agent_away")]
    result = run(fake, "job", "logs", "-f", "digits")
    assert result.exit_code == Exit.UNAVAILABLE


def test_following_logs_goes_on_into_the_next_run(fake: FakeClient) -> None:
    """From generation 1 to 3, with a line on stderr between; it ends with the job."""
    fake.end_job("digits", ended=40, status=JobStatus.COMPLETED)
    fake.pages = [LogPage(b"old\n", 0, ended=True), LogPage(b"new\n", 0, ended=True)]
    result = run(fake, "job", "logs", "-f", "digits", "--generation", "1")
    assert (result.exit_code, result.stdout) == (Exit.OK, "old\nnew\n")
    assert result.stderr == "--- digits/trainer/0#3 ---\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--role", "absent"], Exit.USAGE, "it has trainer"),
        (["--index", "7"], Exit.USAGE, "has no task 7"),
        ([], Exit.FAILED, "there is no stdout of digits/trainer/0#3"),
    ],
)
def test_logs_of_something_absent(
    fake: FakeClient, arguments: list[str], code: Exit, told: str
) -> None:
    fake.pages = [LogPage(b"", 0, exists=False)]
    result = run(fake, "job", "logs", "digits", *arguments)
    assert result.exit_code == code
    assert told in result.stderr


def test_export_writes_the_file_when_it_is_whole(
    fake: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never over an existing one, unless told to."""
    monkeypatch.chdir(tmp_path)
    assert run(fake, "incident", "export").exit_code == Exit.OK
    assert [path.name for path in tmp_path.iterdir()] == ["incident.log"]
    again = run(fake, "incident", "export")
    assert again.exit_code == Exit.USAGE
    assert "--force" in again.stderr
    assert run(fake, "incident", "export", "--force").exit_code == Exit.OK
    assert run(fake, "incident", "export", "-").stdout == "exported"


def test_names_are_completed_from_the_server(fake: FakeClient) -> None:
    """Jobs and hosts; and nothing when no server answers."""
    words = {
        "_COORDCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": "coordctl host show host-",
        "COMP_CWORD": "3",
    }
    result = run(fake, env=words, prog_name="coordctl")
    assert result.stdout.split() == ["plain,host-1", "plain,host-2", "plain,host-3"]
    away = run(FakeClient([], raises=Unavailable("away")), env=words, prog_name="coordctl")
    assert (away.stdout.strip(), away.stderr) == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == Exit.OK
    assert "_COORDCTL_COMPLETE" in result.stdout
