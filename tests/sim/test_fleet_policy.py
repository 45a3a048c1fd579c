"""Policy files: what they mean, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from coord_sim.fleet.causes import CAUSES
from coord_sim.fleet.comparing import Named, UnlikeFailures, check_comparable
from coord_sim.fleet.policy import Policy, policy_problems
from coord_sim.fleet.policy_file import PolicyError, load_policy, parse_policy, policy_keys

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_an_empty_file_is_the_default_policy() -> None:
    """So is a section without keys."""
    assert parse_policy("", "p.yaml") == Policy()
    assert parse_policy("job:\ncore: {}\n", "p.yaml") == Policy()


def test_the_default_policy_has_no_problems() -> None:
    assert policy_problems(Policy()) == []


def test_every_key_says_what_it_means() -> None:
    keys = list(policy_keys())
    assert [key.name for key in keys if not key.meaning] == []
    assert {key.name for key in keys if key.section == "rates"} == {one.name for one in CAUSES}


def test_every_default_is_a_value_that_may_be_given() -> None:
    """What `--keys` prints can be put into a file as it is."""
    for key in policy_keys():
        value = str(key.default).lower() if isinstance(key.default, bool) else key.default
        text = f"{key.section}:\n  {key.name}: {value}\n"
        assert parse_policy(text, "p.yaml") == Policy(), key.name


def test_the_examples_can_be_compared() -> None:
    first = load_policy(EXAMPLES / "fleet_policy.yaml")
    second = load_policy(EXAMPLES / "fleet_policy_careful.yaml")
    assert first != second
    check_comparable(Named("first", first), Named("second", second))


def test_policies_with_other_failures_are_not_compared() -> None:
    first, second = Policy(), parse_policy("rates:\n  nic: 0.5\n", "p.yaml")
    with pytest.raises(UnlikeFailures, match=r"rates.nic is 0.008 in a and 0.5 in b"):
        check_comparable(Named("a", first), Named("b", second))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "core:\n  lease_s: 5\n",
            "p.yaml:2: unknown key 'lease_s' in core. Did you mean lease_ms? "
            "The keys are: lease_ms, heartbeat_ms, suspect_ms",
        ),
        (
            "jobb:\n  spares: 5\n",
            "p.yaml:1: unknown key 'jobb' in a policy. Did you mean job? "
            "The keys are: core, job, budgets, operations, failures, rates",
        ),
        ("job:\n  lease_ms: 5\n", "p.yaml:2: unknown key 'lease_ms' in job. It belongs into"),
        ("job:\n  lease_mss: 5\n", "Did you mean lease_ms, in the section core?"),
        ("job:\n  spares: -3\n", "p.yaml:2: job.spares is '-3'; expected `int` >= 0"),
        ("job:\n  spares: many\n", "p.yaml:2: job.spares is 'many'; expected `int`, got `str`"),
        ("job:\n  spares: [1]\n", "p.yaml:2: job.spares is 'a list or mapping'"),
        ("\njob: {spares: 2, spares: 3}\n", "p.yaml:2: spares is given twice, first in line 2"),
        (
            "core:\n  fence_ms: 9\n  lease_ms: 3000\n",
            "p.yaml:3: core: heartbeat_ms 5000, suspect_ms 15000 and lease_ms 3000 must grow",
        ),
        ("job:\n  hang_s: 20\n", "p.yaml:2: job: hang_s is 20, but a checkpoint and two steps"),
        (
            "job:\n  checkpoint_write_s: 800\n  hang_s: 0\n",
            "p.yaml: job: collective_timeout_s is 600; it must exceed 820",
        ),
        ("failures:\n  flap_mean_s: 1\n", "flap_median_s is 2, above flap_mean_s 1"),
        ("- a\n", "p.yaml:1: a policy is a mapping; its keys are core, job"),
        ("job: 3\n", "p.yaml:1: job is a mapping; its keys are spares"),
        ("job: [\n", "p.yaml:2: not YAML: expected the node content"),
        ("\x00", "p.yaml: not YAML:"),
    ],
)
def test_a_bad_policy_is_refused_by_line_and_key(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(text, "p.yaml")
    assert said in str(refused.value)
