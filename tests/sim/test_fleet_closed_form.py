"""The fleet model against arithmetic."""

from __future__ import annotations

import math

import pytest
from coord_sim.fleet.checking import TOLERANCE, check_points, policy_for
from coord_sim.fleet.closed_form import WORKED_POINTS, Point, expected_ettr, renewal_ettr
from coord_sim.fleet.policy import policy_problems


@pytest.mark.parametrize("point", WORKED_POINTS, ids=["1024", "16384", "16384-fast"])
def test_the_closed_form_gives_the_published_values(point: Point) -> None:
    assert round(expected_ettr(point), 3) == point.printed


def test_without_failures_only_writing_is_lost() -> None:
    point = Point(128, 0.0, 10.0, 60.0, 5.0)
    assert math.isclose(expected_ettr(point), 60 / 65)
    assert math.isclose(renewal_ettr(point), 60 / 65)


def test_where_failures_are_rare_both_formulas_say_the_same() -> None:
    point = Point(128, 0.0001, 10.0, 60.0, 5.0)
    assert math.isclose(expected_ettr(point), renewal_ettr(point), rel_tol=1e-4)


@pytest.mark.parametrize("point", WORKED_POINTS, ids=["1024", "16384", "16384-fast"])
def test_the_points_are_policies_that_may_be_given(point: Point) -> None:
    assert policy_problems(policy_for(point, 64)) == []


@pytest.mark.parametrize("point", WORKED_POINTS, ids=["1024", "16384", "16384-fast"])
def test_the_model_agrees_with_the_closed_form(point: Point) -> None:
    """On few hosts at a rate raised to match; full size is `coordctl sim fleet --check`."""
    (checked,) = check_points(hosts_limit=12, days=30.0, seeds=range(1, 3), points=(point,))
    assert min(checked.restarts) > point.failures_per_day * 30 / 2, "it must be put to the test"
    assert abs(checked.deviation) < TOLERANCE
    assert abs(checked.mean / checked.renewal - 1) < 0.03
