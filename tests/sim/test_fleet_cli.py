"""What `coordctl sim fleet` prints, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from coord_sim.cli.fleet import fleet
from coord_sim.fleet.comparing import Fleet, Named, measures, run_fleet
from coord_sim.fleet.policy import JobPolicy, Policy
from coord_sim.fleet.telling import document
from msgspec.structs import replace

from coord.cli.exits import Exit
from tests.conftest import Golden

GOLDEN = Path(__file__).parent / "golden" / "fleet"
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--hosts", "40", "--days", "10", "--seed", "6")
FIRST = str(EXAMPLES / "fleet_policy.yaml")
SECOND = str(EXAMPLES / "fleet_policy_careful.yaml")


def fleet_prints(*arguments: str) -> Result:
    return CliRunner().invoke(fleet, arguments)


def test_one_policy_is_told(golden: Golden) -> None:
    result = fleet_prints(*SMALL, "--policy", FIRST)
    assert result.exit_code == Exit.OK
    assert re.fullmatch(r"simulated in \d+\.\d s\n", result.stderr)
    golden(GOLDEN / "one.txt", result.stdout)


def test_two_policies_are_told_beside_each_other(golden: Golden) -> None:
    result = fleet_prints(*SMALL, "--policy", FIRST, "--compare", SECOND, "--seeds", "2")
    assert result.exit_code == Exit.OK
    golden(GOLDEN / "two.txt", result.stdout)


def test_json_is_the_same_bytes_every_time() -> None:
    arguments = (*SMALL, "--policy", FIRST, "--compare", SECOND, "-o", "json")
    first, second = fleet_prints(*arguments), fleet_prints(*arguments)
    assert first.stdout == second.stdout
    told = json.loads(first.stdout)
    assert told["interrupted"] is False
    ettr = told["measures"][0]
    assert ettr["name"] == "ettr"
    results = [runs["results"][0] for runs in told["runs"]]
    assert ettr["difference"] == pytest.approx(results[1]["ettr"] - results[0]["ettr"])
    for one in results:
        assert one["ettr"] + sum(one["lost"].values()) == pytest.approx(1.0, abs=1e-4)


def test_the_keys_are_listed(golden: Golden) -> None:
    result = fleet_prints("--keys")
    assert result.exit_code == Exit.OK
    golden(GOLDEN / "keys.txt", result.stdout)


def test_a_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = fleet_prints(*SMALL, "--policy", FIRST, "--compare", SECOND, "--html", str(page))
    assert result.exit_code == Exit.OK
    text = page.read_text()
    assert "<h1>320 GPUs on 40 hosts" in text
    assert text.count('class="bar"') == 2
    assert "fleet_policy_careful.yaml" in text
    assert "http" not in text, "it stands alone"


def test_the_check_prints_model_and_formula() -> None:
    result = fleet_prints("--check", "--hosts", "8", "--days", "12", "--seeds", "1", "-o", "json")
    points = json.loads(result.stdout)
    assert [round(one["checked"]["expected"], 3) for one in points] == [0.907, 0.661, 0.934]
    agrees = all(one["agrees"] for one in points)
    assert result.exit_code == (Exit.OK if agrees else Exit.FAILED)


def test_a_policy_that_cannot_be_used_is_named_by_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("core:\n  lease: 5\n")
    result = fleet_prints(*SMALL, "--policy", str(bad))
    assert result.exit_code == Exit.USAGE
    assert "bad.yaml:2: unknown key 'lease' in core. Did you mean lease_ms?" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "absent.yaml"), "absent.yaml: No such file or directory"),
        (("--hosts", "4"), "--hosts is 4, but job.spares 16"),
        (("--check", "--policy", FIRST), "--check has policies of its own"),
        (("--seeds", "0"), "0 is not in the range"),
        (("--days", "0"), "0.0 is not in the range"),
        (("--days", "nan"), "'nan' is no number to count with"),
        (("--html", "absent/page.html"), "cannot be written: absent is no directory"),
    ],
)
def test_arguments_that_cannot_be(arguments: tuple[str, ...], said: str) -> None:
    result = fleet_prints(*arguments)
    assert result.exit_code == Exit.USAGE
    assert said in result.stderr


def test_policies_that_fail_otherwise_are_not_compared(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("job:\n  spares: 8\nfailures:\n  job_per_day: 9\n")
    result = fleet_prints(*SMALL, "--policy", FIRST, "--compare", str(other))
    assert result.exit_code == Exit.USAGE
    assert "failures.job_per_day is 2.2 in fleet_policy.yaml and 9 in other.yaml" in result.stderr


def test_what_was_found_is_kept_when_somebody_stops_it() -> None:
    """Ctrl-C arrives in the second policy's run: its result is that of the days until then."""
    plan = Fleet(hosts=12, gpus=8, days=3.0, seeds=(1, 2))
    policy = Policy(job=JobPolicy(spares=2))
    other = replace(policy, job=JobPolicy(spares=3))

    def stop_later(done: float, whole: float, what: str) -> None:
        if done > 4.0:
            raise KeyboardInterrupt

    comparison = run_fleet(plan, [Named("a", policy), Named("b", other)], stop_later)
    assert comparison.interrupted
    (first,), (second,) = (runs.results for runs in comparison.runs)
    assert first.days == 3.0
    assert 1.0 <= second.days < 1.1
    assert document(comparison)["interrupted"] is True
    assert measures(comparison)[0].difference() is not None
