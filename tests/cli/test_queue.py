"""What `coordctl queue` prints and changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from coord_sim.core_world.driver import Driver

from coord.cli.exits import Exit
from coord.cli.main import cli
from tests.cli.fake_client import FakeClient
from tests.conftest import Golden
from tests.core.notation import parse

GOLDEN = Path(__file__).parent / "golden" / "queue"
STORY = """\
leader 1
configure logic=2
set-queue research quota=4 borrowing_limit=2 may_preempt=true notice_ms=60000 priority=1
set-queue guests quota=2 quotas.h100=1 lendable_permille=250 weight=3
host h1 devices=8
submit big: t x1 devices=4 | queue=guests owner=bob
submit small: t x1 devices=2 | queue=research owner=ann
submit claims: t x1 devices=4 | queue=research owner=cid priority=2
submit waits: t x1 devices=2 | queue=research owner=ann preemptible=false
submit last: t x2 devices=4
"""


@pytest.fixture
def fake() -> FakeClient:
    """Two queues: one has borrowed, the other wants more than is free."""
    driver = Driver(twin=False)
    for line in STORY.splitlines():
        for event in parse(line, driver.state).events:
            driver.send(event)
    return FakeClient(driver.entries)


def run(fake: FakeClient, *arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(cli, arguments, obj=fake.connect, **more)


@pytest.mark.parametrize(
    "command",
    ["queue list", "queue show research", "queue show guests", "job list", "job show waits"],
)
def test_a_command_prints(fake: FakeClient, golden: Golden, command: str) -> None:
    """One golden output each; nothing on stderr."""
    result = run(fake, *command.split())
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    golden(GOLDEN / f"{command.replace(' ', '_')}.txt", result.stdout)


def test_json_has_everything(fake: FakeClient) -> None:
    found = json.loads(run(fake, "queue", "list", "-o", "json").stdout)
    assert [row["name"] for row in found] == ["guests", "research", ""]
    assert (found[0]["used"], found[0]["borrowed"]) == (4_000, 2_000)
    assert found[1]["waiting"] == ["claims", "waits"]


def test_a_queue_is_set_up_and_changed_field_by_field(fake: FakeClient) -> None:
    """What is not given stays."""
    made = run(fake, "queue", "set", "new", "--quota", "3", "--type-quota", "h100=2", "--preempt")
    assert (made.exit_code, made.stdout) == (Exit.OK, "queue new: quota 3 devices\n")
    assert run(fake, "queue", "set", "new", "--borrow", "5").exit_code == Exit.OK
    spec = fake.state.queues["new"].spec
    assert (spec.quota, spec.borrowing_limit, spec.may_preempt) == (3, 5, True)
    assert spec.quotas == {"h100": 2}
    assert run(fake, "queue", "remove", "new").stdout == "removed queue new\n"
    assert "new" not in fake.state.queues


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--quota", "-1"), "quota is -1; it must be 0 to"),
        (("--borrow", "-2"), "borrowing_limit is -2; it must be -1 to"),
        (("--lend", "1001"), "lendable_permille is 1001; it must be 0 to 1000"),
        (("--weight", "0"), "weight is 0; it must be 1 to"),
        (("--type-quota", "h100=9"), "quotas.h100 is 9, above the quota of all types"),
        (("--type-quota", "h100"), "'h100' is not TYPE=DEVICES"),
    ],
)
def test_a_wrong_queue_is_usage_that_names_the_field(
    fake: FakeClient, options: tuple[str, ...], told: str
) -> None:
    before = dict(fake.state.queues)
    result = run(fake, "queue", "set", "research", *options)
    assert result.exit_code == Exit.USAGE
    assert told in " ".join(result.stderr.split())
    assert fake.state.queues == before


def test_a_queue_that_is_needed_or_absent_is_not_removed(fake: FakeClient) -> None:
    busy = run(fake, "queue", "remove", "research")
    assert (busy.exit_code, "jobs of it have not ended" in " ".join(busy.stderr.split())) == (
        1,
        True,
    )
    assert run(fake, "queue", "remove", "absent").exit_code == 1
    assert run(fake, "queue", "show", "absent").exit_code == 1


def test_a_job_for_an_unknown_queue_is_refused(fake: FakeClient) -> None:
    text = "name: x\nqueue: absent\nroles: [{name: r, command: [x]}]\n"
    result = run(fake, "job", "submit", "-", input=text)
    assert result.exit_code == 1
    assert "no such queue" in " ".join(result.stderr.split())
