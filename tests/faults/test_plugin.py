"""The pytest plugin, in suites of its own: what it loads, judges, and says of a failure."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jepsen_lite
import pytest
from jepsen_lite import pytest_plugin

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from jepsen_lite import Register

def write(history, value):
    with history.asking("x", "write", value, client="a"):
        pass

def read(history, value):
    with history.asking("x", "read", client="b") as asked:
        asked.answered(value)

def test_stale(history, fault_seed):
    fault = history.fault("kill-leader", f"seed {fault_seed}", ("s1",))
    history.fault_ended(fault)
    write(history, 1)
    write(history, 2)
    read(history, 1)
    history.judge(Register())

def test_stale_in_the_end(history):
    history.judge_at_end(Register())
    write(history, 1)
    read(history, 2)

async def test_sound(history):
    history.judge_at_end(Register())
    write(history, 1)
    read(history, 1)

def test_nothing_to_judge(history):
    history.judge(Register())

def test_other():
    pass
"""


@pytest.fixture(autouse=True)
def _settings(request: pytest.FixtureRequest) -> None:
    """What one other plugin wants to be told, and without one that takes long to load."""
    if "pytester" in request.fixturenames:
        suite: pytest.Pytester = request.getfixturevalue("pytester")
        suite.makeini(
            "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
            "addopts = -p no:hypothesispytest --strict-markers\n"
        )


def repeated(result: pytest.RunResult) -> list[str]:
    """The lines that repeat what failed, without where its folder is."""
    return [line.partition("  #")[0] for line in result.outlines if line.startswith("pytest ")]


def test_it_is_installed_as_a_plugin_beside_that_of_the_simulator() -> None:
    """pytest loads it by itself wherever coord is installed. Where this fails, install again."""
    points = metadata.entry_points(group="pytest11", name="jepsen_lite")
    assert [point.value for point in points] == [pytest_plugin.__name__]
    assert metadata.entry_points(group="pytest11", name="coord_sim")


def test_the_public_names_are_there_and_loading_the_plugin_loads_nothing_else() -> None:
    """Every pytest on the machine pays for it."""
    for name in jepsen_lite.__all__:
        assert getattr(jepsen_lite, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        jepsen_lite.nothing  # noqa: B018
    program = (
        "import sys, jepsen_lite, jepsen_lite.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith(('coord', 'jepsen_lite.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['jepsen_lite.pytest_plugin']", done.stderr


def test_a_history_is_judged_when_asked_to_and_a_failure_says_what_to_look_at(
    pytester: pytest.Pytester,
) -> None:
    """The seed, the folder, what was broken, and a picture of what cannot be."""
    pytester.makepyfile(test_it=SUITE)
    result = pytester.runpytest("--fault-seed", "17", "--fault-directory", "left")
    result.assert_outcomes(passed=2, failed=3)
    names = ("test_stale", "test_stale_in_the_end", "test_nothing_to_judge")
    assert repeated(result) == [f"pytest test_it.py::{name} --fault-seed 17" for name in names]
    left = Path(pytester.path) / "left" / "test_it-py-test_stale"
    result.stdout.fnmatch_lines(
        [
            "*Violated: linearizable: register*",
            f"history and logs: {left}",
            "* s to * s: kill-leader: seed 17",
        ]
    )
    assert "to repeat it: pytest test_it.py::test_stale --fault-seed 17" in result.outlines
    assert "nothing was broken on purpose" in result.outlines
    assert jepsen_lite.read_history(left / "history.jsonl").facts["seed"] == 17


def test_what_an_earlier_run_left_is_set_aside(pytester: pytest.Pytester) -> None:
    """Nothing recorded is lost."""
    pytester.makepyfile(test_it=SUITE)
    for _ in range(2):
        result = pytester.runpytest("-k", "sound", "--fault-directory", "left")
        result.assert_outcomes(passed=1, deselected=4)
    names = {found.name for found in (Path(pytester.path) / "left").iterdir()}
    assert names == {"test_it-py-test_sound", "test_it-py-test_sound.before-1"}


def test_it_works_with_xdist_and_a_random_seed_is_the_same_everywhere(
    pytester: pytest.Pytester,
) -> None:
    """What failed is told once, in the end."""
    pytester.makepyfile(test_it=SUITE)
    result = pytester.runpytest_subprocess("-n", "2", "--fault-seed", "random")
    result.assert_outcomes(passed=2, failed=3)
    seeds = {line.rpartition(" ")[2] for line in repeated(result)}
    assert len(repeated(result)) == 3
    assert len(seeds) == 1
    (seed,) = seeds
    result.stdout.fnmatch_lines([f"faults: --fault-seed {seed}"])


@pytest.mark.parametrize("seed", ["-1", "many"])
def test_a_seed_is_checked(pytester: pytest.Pytester, seed: str) -> None:
    """Before anything runs."""
    result = pytester.runpytest_subprocess(f"--fault-seed={seed}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--fault-seed: is {seed}; it must be a number or `random`"])


def test_what_cannot_be_is_refused_with_what_can(pytester: pytest.Pytester) -> None:
    """Of markers, nemeses, clusters that do not answer."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.coord_cluster(servers=0)
        def test_none(coord_cluster): pass

        @pytest.mark.coord_cluster(settings={"leese_ms": 3})
        def test_setting(coord_cluster): pass

        @pytest.mark.coord_cluster(attach=["ftp://x"])
        def test_url(coord_cluster): pass

        def test_nobody(nemesis):
            nemesis("kill-leader")

        def test_unknown(nemesis):
            nemesis("kill-leeder")
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(errors=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*marker coord_cluster: 0 servers and 1 hosts; there may be*",
            "*marker coord_cluster: there is no setting 'leese_ms'; there are *",
            "*marker coord_cluster: server address 'ftp://x' starts with ftp*",
            "*there is no cluster to befall: let the test use coord_cluster*",
            "*there is no nemesis 'kill-leeder'; there are none, kill-leader*",
        ]
    )


def test_other_suites_are_left_alone(pytester: pytest.Pytester) -> None:
    """Nothing of it is loaded, and fixtures of theirs with the same names are theirs."""
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.fixture
        def history():
            return "theirs"

        def test_theirs(history):
            assert history == "theirs"
            assert not [name for name in sys.modules if name.startswith("jepsen_lite.testing")]
            assert "coord" not in sys.modules
        """
    )
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(passed=1)
    assert repeated(result) == []
