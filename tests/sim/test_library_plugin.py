"""The pytest plugin, in suites of its own: seeds, repetition, other tests, xdist."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from coord_sim import pytest_plugin

from coord.store.incident import IncidentReader

pytest_plugins = ["pytester"]

SUITE = """
import pytest

def test_seeds(world, sim_seed):
    with world(nodes=1, hosts=0) as w:
        assert w.seed == sim_seed
        w.run_for(1.0)
        assert sim_seed != 2, "two is broken"

def test_other():
    pass
"""


@pytest.fixture(autouse=True)
def _settings(request: pytest.FixtureRequest) -> None:
    """What one other plugin wants to be told, and without one that takes long to load."""
    if "pytester" in request.fixturenames:
        suite: pytest.Pytester = request.getfixturevalue("pytester")
        suite.makeini(
            "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
            "addopts = -p no:hypothesispytest\n"
        )


def failures(result: pytest.RunResult) -> list[str]:
    """The lines that repeat what failed."""
    return [line for line in result.outlines if line.startswith("pytest ")]


def test_it_is_installed_as_a_plugin() -> None:
    """pytest loads it by itself wherever coord is installed. Where this fails, install again."""
    points = metadata.entry_points(group="pytest11", name="coord_sim")
    assert [point.value for point in points] == [pytest_plugin.__name__]


def test_a_test_runs_once_for_each_seed_and_a_failure_says_how_to_repeat_it(
    pytester: pytest.Pytester,
) -> None:
    """The line works, and runs that seed alone."""
    pytester.makepyfile(test_it=SUITE)
    result = pytester.runpytest("--sim-seeds", "3")
    result.assert_outcomes(passed=3, failed=1)
    line = "pytest 'test_it.py::test_seeds[seed2]' --sim-seed 2"
    assert failures(result) == [line]
    assert f"to repeat it: {line}" in result.outlines
    result.stdout.fnmatch_lines(["E *in a simulated world of seed 2, at * s"])
    again = pytester.runpytest("test_it.py::test_seeds[seed2]", "--sim-seed", "2")
    again.assert_outcomes(failed=1)


def test_the_line_can_be_typed_where_pytest_was_started(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the root of the suite, node ids would not do."""
    folder = pytester.mkdir("deep")
    (folder / "test_it.py").write_text(SUITE)
    monkeypatch.chdir(folder)
    result = pytester.runpytest_subprocess("--sim-seed", "2")
    assert failures(result) == ["pytest 'test_it.py::test_seeds[seed2]' --sim-seed 2"]


def test_seeds_come_from_the_line_the_marker_or_by_default(pytester: pytest.Pytester) -> None:
    """In this order."""
    pytester.makepyfile(
        """
        import pytest

        def test_default(sim_seed): pass

        @pytest.mark.sim(seeds=2)
        def test_marked(sim_seed): pass
        """
    )
    pytester.runpytest().assert_outcomes(passed=pytest_plugin.DEFAULT_SEEDS + 2)
    pytester.runpytest("--sim-seeds", "3").assert_outcomes(passed=6)
    pytester.runpytest("--sim-seed", "7", "--sim-seed", "900").assert_outcomes(passed=4)
    pytester.runpytest("--strict-markers", "-k", "seed2").assert_outcomes(passed=2, deselected=5)


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_a_count_of_seeds_is_checked(pytester: pytest.Pytester, count: str) -> None:
    """Before anything runs."""
    result = pytester.runpytest_subprocess(f"--sim-seeds={count}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--sim-seeds: is {count}; it must be 1 or more"])


def test_a_marker_that_says_nonsense_is_told(pytester: pytest.Pytester) -> None:
    """It would otherwise run nothing."""
    pytester.makepyfile("import pytest\n@pytest.mark.sim(seeds=0)\ndef test_it(sim_seed): pass\n")
    result = pytester.runpytest()
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*marker sim says seeds=0; it must be 1 or more*"])


def test_a_failure_leaves_its_log_where_it_is_asked_to(pytester: pytest.Pytester) -> None:
    """For `coordctl replay` and `coordctl sim explore`."""
    pytester.makepyfile(test_it=SUITE)
    result = pytester.runpytest("--sim-seeds", "3", "--sim-artefacts", "left/here")
    (log,) = Path(pytester.path / "left" / "here").iterdir()
    assert log.name == "test_it-py-test_seeds-seed2.log"
    result.stdout.fnmatch_lines([f"*its log: left/here/{log.name}"])
    with log.open("rb") as file:
        assert list(IncidentReader(file))


def test_other_suites_are_left_alone(pytester: pytest.Pytester) -> None:
    """Nothing of the simulator is loaded, and a fixture of theirs with the same name is theirs."""
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.fixture
        def world():
            return "theirs"

        def test_theirs(world):
            assert world == "theirs"
            assert not [name for name in sys.modules if name.startswith("coord_sim.scenario")]
            assert "coord" not in sys.modules
        """
    )
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(passed=1)
    assert failures(result) == []


def test_a_world_that_was_left_open_is_closed(pytester: pytest.Pytester) -> None:
    """So that the next test finds the collector and the logs as they were."""
    pytester.makepyfile(
        """
        import gc

        def test_left_open(world):
            world(nodes=1, hosts=0).__enter__()
            assert not gc.isenabled()

        def test_next():
            assert gc.isenabled()
        """
    )
    pytester.runpytest_subprocess("--sim-seed", "1").assert_outcomes(passed=2)


def test_it_works_with_xdist(pytester: pytest.Pytester) -> None:
    """Seeds are spread over processes; what failed is told once, in the end."""
    pytester.makepyfile(test_it=SUITE)
    result = pytester.runpytest_subprocess("-n", "2", "--sim-seeds", "4")
    result.assert_outcomes(passed=4, failed=1)
    assert failures(result) == ["pytest 'test_it.py::test_seeds[seed2]' --sim-seed 2"]
