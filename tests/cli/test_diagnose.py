"""`coordctl diagnose` and what `host show` tells of a host's health."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coord.cli.exits import Exit
from coord.cli.host_evidence import evidence_pairs, health_text
from coord.cli.main import cli
from coord.client.views import HostView
from coord.core.machine import apply
from coord.model import events
from coord.model.entities import HostStatus, JobStatus
from coord.model.entry import Entry, Origin
from coord.model.health import CheckOccasion, HealthOutcome
from tests.cli.fake_client import FakeClient
from tests.cli.recordings import TWO_FAILURES, entries_of


def dump(*entries: tuple[int, str], ranks: str = "[0, 1, 2]") -> dict[str, Any]:
    return {
        "pg_config": {"7": {"name": "7", "desc": "DATA_PARALLEL_GROUP", "ranks": ranks}},
        "entries": [
            {
                "process_group": ("7", "DATA_PARALLEL_GROUP"), "pg_id": 1, "state": state,
                "collective_seq_id": seq, "profiling_name": "nccl:all_reduce",
                "time_created_ns": seq, "timeout_ms": 600_000,
            }
            for seq, state in entries
        ],
    }  # fmt: skip


def files(directory: Path) -> list[str]:
    """Ranks 0 and 2 wait in number 5; rank 1 came no further than 4. One JSON, two pickles."""
    (directory / "_dump_0.json").write_text(json.dumps(dump((5, "started"))))
    (directory / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump((4, "completed"))))
    (directory / "rank_2.pkl").write_bytes(pickle.dumps(dump((4, "completed"), (5, "scheduled"))))
    return [str(path) for path in sorted(directory.iterdir())]


def run(*arguments: str, fake: FakeClient | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, obj=fake.connect if fake else None)


def test_the_missing_rank_is_printed(tmp_path: Path) -> None:
    """With what the others wait in."""
    result = run("diagnose", "flight-recorder", *files(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "read       3 dumps",
        "missing    rank 1",
        "operation  all_reduce, number 5, time-out 10m00.000s",
        "group      7 DATA_PARALLEL_GROUP",
        "waiting    rank 0, 2",
    ]


def test_as_json_it_has_every_wait(tmp_path: Path) -> None:
    found = json.loads(run("diagnose", "flight-recorder", "-o", "json", *files(tmp_path)).stdout)
    assert (found["missing"], found["waiting"], len(found["waits"])) == ([1], [0, 2], 2)


class Exploit:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (eval, ("1/0",))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("trace", b"{}", "does not end with a rank"),
        ("dump_1.json", b"{", "is no JSON"),
        ("dump_1.json", b"{}", "has no `entries`"),
        ("dump_1", b"", "neither JSON nor a pickle"),
        ("dump_1", b"\x80\x04garbage", "neither JSON nor a pickle"),
        ("dump_1", pickle.dumps(Exploit()), "it names builtins.eval"),
        ("dump_1.json", b"[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_dump_is_refused_with_its_name(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    """And no code in it is run."""
    (tmp_path / name).write_bytes(content)
    result = run("diagnose", "flight-recorder", str(tmp_path / name))
    assert result.exit_code == Exit.USAGE
    assert name in result.output
    assert said in result.output


def running_job(fake: FakeClient) -> tuple[str, str]:
    for gang in fake.state.gangs.values():
        job = fake.state.jobs[gang.job]
        if job.status == JobStatus.RUNNING and len(gang.live) >= 2:
            return gang.job, gang.role
    raise AssertionError("the recording has no running gang")


def test_what_was_found_is_recorded_where_that_is_asked_for(tmp_path: Path) -> None:
    """As of whoever asks; what cannot be is refused."""
    fake = FakeClient(entries_of(TWO_FAILURES))
    job, role = running_job(fake)
    (tmp_path / "0.json").write_text(json.dumps(dump((5, "started"), ranks="[0, 1]")))
    name = str(tmp_path / "0.json")
    result = run("diagnose", "flight-recorder", "--send", f"{job}/{role}", name, fake=fake)
    assert result.exit_code == 0, result.output
    event = fake.records[-1].entry.event
    assert isinstance(event, events.CollectiveTimedOut)
    assert (event.missing, event.seq, event.actor, event.host) == ((1,), 5, "ann", "")
    assert "recorded" in result.output
    for wrong, said in ((job, "JOB/ROLE"), (f"{job}/absent", "no task of")):
        result = run("diagnose", "flight-recorder", "--send", wrong, name, fake=fake)
        assert result.exit_code == Exit.USAGE
        assert said in result.output


def view_after(*reports: events.AnyEvent) -> HostView:
    from coord.core.state import new_state

    state = new_state()
    told: list[events.AnyEvent] = [
        events.LeaderElected(1, 1),
        events.ClusterConfigured("c", logic_version=2),
        events.HostRegistered("h1", "agent", "boot", "h1.lan"),
        *reports,
    ]
    for index, event in enumerate(told, 1):
        record = apply(state, Entry(index, 1, index * 10, Origin("", 0, 0), event))
        assert not record.rejection, record
    evidence = state.evidence.get("h1")
    return HostView("h1", 0, 1, HostStatus.UP, "agent", "boot", "h1.lan", evidence=evidence)


def test_a_host_that_nobody_checked_is_not_called_healthy() -> None:
    missing = events.HealthChecked(
        "h1", 1, "health", HealthOutcome.MISSING, CheckOccasion.ON_REQUEST
    )
    assert health_text(None) == "unchecked"
    assert evidence_pairs(view_after()) == [("health", "unchecked")]
    assert evidence_pairs(view_after(missing)) == [
        ("health", "unchecked"),
        ("check", "health missing, on request, index 4"),
    ]


def test_checks_and_faults_are_told() -> None:
    """The newest fault first."""
    occasion = CheckOccasion.BEFORE_LAUNCH
    view = view_after(
        events.HealthChecked("h1", 1, "gpu", HealthOutcome.FAILED, occasion, 3, '{"ecc": 1}'),
        events.DeviceFaultSeen("h1", 1, "xid", 31, "0000:9b:00"),
        events.DeviceFaultSeen("h1", 1, "xid", 79, "0000:9b:00"),
    )
    assert evidence_pairs(view) == [
        ("health", "failed (gpu)"),
        ("check", 'gpu failed with exit code 3, before launch, index 4: {"ecc": 1}'),
        ("fault", "xid 79 of 0000:9b:00: fell off the bus (hardware, reboot host), index 6"),
        ("fault", "xid 31 of 0000:9b:00: page fault in device memory (program, restart app), "
                  "index 5"),
    ]  # fmt: skip
