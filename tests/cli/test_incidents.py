"""`coordctl incident list` and `show`, of a cluster that counts what incidents cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from coord.cli.exits import Exit
from coord.cli.incident_text import cost_rows, total_rows
from coord.cli.main import cli
from coord.client.errors import EventsGone
from coord.client.views import EventPage
from coord.model.cost import PHASES, DeviceTime, IncidentTotal
from coord.model.events import ClusterConfigured
from tests.cli.fake_client import FakeClient
from tests.cli.recordings import TWO_FAILURES, entries_of
from tests.conftest import Golden

GOLDEN = Path(__file__).parent / "golden" / "incidents"


def two_failures() -> FakeClient:
    """The two failures, under the rules of today."""
    entries = [
        replace(entry, event=replace(entry.event, logic_version=2))
        if isinstance(entry.event, ClusterConfigured)
        else entry
        for entry in entries_of(TWO_FAILURES)
    ]
    return FakeClient(entries)


@pytest.fixture
def fake() -> FakeClient:
    return two_failures()


def run(fake: FakeClient, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ("incident", *arguments), obj=fake.connect)


@pytest.mark.parametrize("command", ["list", "show 1", "show 2"])
def test_an_incident_is_told(fake: FakeClient, golden: Golden, command: str) -> None:
    """One golden output each; nothing on stderr, lines without trailing blanks."""
    result = run(fake, *command.split())
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    assert not [line for line in result.stdout.splitlines() if line != line.rstrip()]
    golden(GOLDEN / f"{command.replace(' ', '_')}.txt", result.stdout)


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ([], [1, 2]),
        (["--job", "digits"], [1, 2]),
        (["--job", "digit"], []),
        (["--host", "host-2"], [1, 2]),
        (["--host", "host-1"], []),
        (["--cause", "infrastructure"], [1, 2]),
        (["--cause", "user"], []),
        (["--open"], [2]),
        (["--since", "2s"], [2]),
        (["--since", "1h"], [1, 2]),
    ],
)
def test_a_list_holds_what_was_asked_for(
    fake: FakeClient, chosen: list[str], numbers: list[int]
) -> None:
    listed = json.loads(run(fake, "list", *chosen, "-o", "json").stdout)
    assert [one["incident"] for one in listed] == numbers


def test_totals_are_of_what_was_chosen_and_else_of_all(fake: FakeClient) -> None:
    """Of all that ever closed: a forgotten incident is still in them."""
    (ever,) = json.loads(run(fake, "list", "--totals", "-o", "json").stdout)
    assert (ever["cause"], ever["incidents"], ever["lost_steps"]) == ("infrastructure", 1, 3)
    fake.state.incidents.drop("1")
    assert json.loads(run(fake, "list", "--totals", "-o", "json").stdout) == [ever]
    chosen = run(fake, "list", "--totals", "--host", "host-2", "-o", "json").stdout
    assert json.loads(chosen) == []


def test_what_cannot_be_meant_is_refused(fake: FakeClient) -> None:
    for asked, code, told in (
        (["list", "--cause", "nobody"], Exit.USAGE, "'nobody' is not one of"),
        (["list", "--since", "soon"], Exit.USAGE, "no duration"),
        (["show", "0"], Exit.USAGE, "not in the range"),
        (["show", "9"], Exit.FAILED, "no incident 9 is kept"),
    ):
        result = run(fake, *asked)
        assert (result.exit_code, told in result.stderr) == (code, True), asked


def test_an_incident_is_one_document(fake: FakeClient) -> None:
    """The phases, the cost, and refs from the evidence to the incident."""
    told = json.loads(run(fake, "show", "2", "-o", "json").stdout)
    assert told["incident"]["host"] == "host-2"
    assert list(told["phases_ms"]) == [phase for phase in PHASES if phase != "work"]
    assert told["phases_ms"]["progress"] == -1
    assert told["story"]["why"] == ["4", "25", "25.0", "29", "29.0", "29.1"]


def test_an_incident_whose_log_is_gone_is_told_from_its_row(fake: FakeClient) -> None:
    """And it is said that its story is not kept."""

    async def gone(start: int = 1, limit: int = 1_000) -> EventPage:
        raise EventsGone(start, 999)

    fake.events = gone  # type: ignore[method-assign]
    result = run(fake, "show", "1")
    assert result.exit_code == Exit.OK
    assert "first progress" in result.stdout
    assert "what followed" not in result.stdout
    assert "the log of it is not kept any more" in result.stderr


def test_what_led_to_it_may_be_gone_alone(fake: FakeClient) -> None:
    events = fake.events

    async def from_29_on(start: int = 1, limit: int = 1_000) -> EventPage:
        if start < 29:
            raise EventsGone(start, 29)
        return await events(start, limit)

    fake.events = from_29_on  # type: ignore[method-assign]
    result = run(fake, "show", "2")
    assert "HostLost" in result.stdout
    assert "what led to it is not kept any more" in result.stderr


def test_shares_are_of_the_whole(fake: FakeClient) -> None:
    """Of device time; the bar of the longest phase is the longest."""
    rows = cost_rows(fake.state.incidents["1"])
    shares = {row[0]: int(row[3].rstrip("%")) for row in rows}
    bars: dict[str, int] = {row[0]: len(row[4].strip(".")) for row in rows}
    assert 96 <= sum(shares.values()) <= 100
    assert max(shares, key=lambda name: shares[name]) == max(bars, key=lambda name: bars[name])


def test_totals_of_several_causes_are_added_up() -> None:
    def total(cause: str) -> Any:
        return IncidentTotal(cause, 2, 1, 5, 60_000, DeviceTime(stop_ms=60_000))

    rows = total_rows([total("unknown"), total("user")])
    assert rows[-1] == ("all", "4", "2", "2m00s", "10", "2m00s", "0s")
    assert len(total_rows([total("user")])) == 1
