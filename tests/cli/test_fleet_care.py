"""What `coordctl host` and `coordctl maintenance` say of hosts that leave the fleet and return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.model.entry import Entry, Origin
from coord.model.events import (
    AnyEvent,
    ClusterConfigured,
    DrainRequested,
    HealthChecked,
    HostQuarantineRequested,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
    TaskStarted,
)
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.place import Place
from coord.model.settings import Policy, QuarantineSettings, Settings
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.cli.fake_client import FakeClient
from tests.conftest import Golden

GOLDEN = Path(__file__).parent / "golden" / "care"
SETTINGS = Settings(policy=Policy(quarantine=QuarantineSettings(free_hosts=2)))

QUARANTINED_AT = 12
"""Log index at which the empty `host-3` was taken out, and its test asked for."""


def checked(host: str, outcome: HealthOutcome, occasion: CheckOccasion) -> HealthChecked:
    code = 3 if outcome == HealthOutcome.FAILED else 0
    test = QUARANTINED_AT if occasion == CheckOccasion.ON_REQUEST else 0
    return HealthChecked(host, 1, "gpu", outcome, occasion, code, test=test)


@pytest.fixture
def fake() -> FakeClient:
    """Six hosts of two racks: one in quarantine, tested, proposed, on probation each, one draining
    by a deadline."""
    failed, passed = HealthOutcome.FAILED, HealthOutcome.PASSED
    periodic, on_request = CheckOccasion.PERIODIC, CheckOccasion.ON_REQUEST
    role = RoleSpec("trainer", ("train",), 2, resources=Resources(devices=1))
    events: list[AnyEvent] = [LeaderElected(1, 1), ClusterConfigured("c", SETTINGS, 2)]
    for number in range(1, 7):
        place = Place("z1", "p1", f"r{number // 4}")
        name = f"host-{number}"
        events.append(HostRegistered(name, f"a{number}", "boot", name, 1, place=place))
    events += [
        JobSubmitted(JobSpec("digits", (role,)), "ann"),
        TaskStarted("host-1", 1, "digits/trainer/0#1", 100),
        TaskStarted("host-2", 1, "digits/trainer/1#1", 100),
        HostQuarantineRequested("host-3", "ann", "smoke"),
        checked("host-3", passed, on_request),
        checked("host-1", failed, periodic),
        checked("host-4", failed, periodic),
        checked("host-5", failed, periodic),
        DrainRequested("host-2", "ann", "firmware", 1_800_000),
    ]
    entries = []
    for at, event in enumerate(events):
        host = getattr(event, "host", "")
        reports = isinstance(event, (TaskStarted, HealthChecked))
        earlier = [
            one for one in events[:at] if isinstance(one, (TaskStarted, HealthChecked))
            and one.host == host
        ]  # fmt: skip
        origin = (
            Origin(f"host:{host}", 1, len(earlier) + 1)
            if reports
            else Origin("client:1", 0, at + 1)
        )
        entries.append(Entry(at + 1, 1, 1_000_000 + 10 * at, origin, event))
    fake = FakeClient(entries)
    assert [record.rejection for record in fake.records if record.rejection] == []
    return fake


def run(fake: FakeClient, *arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(cli, arguments, obj=fake.connect, **more)


PRINTED = [
    "host list",
    "host show host-1",
    "host show host-2",
    "host show host-3",
    "host show host-5",
    "events --from 12",
]


@pytest.mark.parametrize("command", PRINTED)
def test_a_command_prints(fake: FakeClient, golden: Golden, command: str) -> None:
    result = run(fake, *command.split())
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    golden(GOLDEN / f"{command.replace(' ', '_')}.txt", result.stdout)


def test_a_maintenance_is_started_shown_and_cancelled(fake: FakeClient, golden: Golden) -> None:
    told = []
    for command in (
        "maintenance list",
        "maintenance start --rack p1/r0 --limit 1 --deadline 30m --safe --reason firmware",
        "maintenance list",
        "maintenance show 1",
        "maintenance cancel 1",
        "maintenance list --all",
    ):
        result = run(fake, *command.split())
        assert result.exit_code == Exit.OK, result.stderr
        told.append(f"$ coordctl {command}\n{result.stdout}{result.stderr}")
    golden(GOLDEN / "maintenance.txt", "\n".join(told))


def test_json_says_all_of_it(fake: FakeClient) -> None:
    """State, since when, reason, next step, for programs as well."""
    listed = json.loads(run(fake, "host", "list", "-o", "json").stdout)
    found = {view["host"]: (view.get("quarantined") or {}).get("state", "") for view in listed}
    assert found == {
        "host-1": "quarantined",
        "host-2": "",
        "host-3": "probation",
        "host-4": "testing",
        "host-5": "proposed",
        "host-6": "",
    }
    assert "coordctl host approve" in listed[4]["next_step"]
    run(fake, "maintenance", "start", "--rack", "r1")
    shown = json.loads(run(fake, "maintenance", "list", "-o", "json").stdout)
    assert [one["out"][0]["host"] for one in shown] == ["host-4"]


CHANGES = [
    ("host quarantine host-6 --reason smoke", "quarantined host-6; next: the health check", ""),
    ("host release host-3 --repaired", "released host-3", ""),
    ("host approve host-5", "quarantined host-5", ""),
    ("host decline host-5 --reason known", "host-5 stays in the fleet", ""),
    ("host drain host-6 --deadline 1h30m", "draining host-6", ""),
    ("host drain host-2 --now", "draining host-2", ""),
    ("host approve host-5 --version 3", "", "the proposal has changed since"),
    ("host approve host-6", "", "no quarantine of it is proposed"),
    ("host release host-6", "", "nothing was changed"),
    ("maintenance start --rack r9", "", "no domain of that level, or several"),
    ("maintenance cancel 4", "", "none of that number goes on"),
    ("maintenance show 4", "", "no maintenance 4"),
]


@pytest.mark.parametrize(("command", "printed", "refused"), CHANGES)
def test_a_change_is_made_or_refused_with_the_reason(
    fake: FakeClient, command: str, printed: str, refused: str
) -> None:
    result = run(fake, *command.split())
    assert result.exit_code == (Exit.FAILED if refused else Exit.OK), result.stderr
    assert printed in result.stdout
    assert refused in result.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("host drain host-1 --deadline soon", "'soon' is no duration; write 30m"),
        ("host drain host-1 --deadline 30d", "is not between 1ms and 11 days"),
        ("host drain host-1 --deadline 0s", "is not between 1ms"),
        ("host drain host-1 --now --deadline 30m", "contradict each other"),
        ("host quarantine host-1", "Missing option '--reason'"),
        ("maintenance start --limit 2", "name one domain"),
        ("maintenance start --rack r1 --pod p1", "name one domain"),
        ("maintenance start --rack r1 --limit 0", "not in the range"),
    ],
)
def test_what_cannot_be_meant_is_usage(fake: FakeClient, command: str, told: str) -> None:
    result = run(fake, *command.split())
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr
