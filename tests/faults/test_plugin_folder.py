"""What a test that failed leaves: a folder with a page, that can be judged once more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jepsen_lite.history.journal import HistoryWriter, read_history
from jepsen_lite.history.operation import Modelled
from jepsen_lite.judge.models import KNOWN, Register, Switch, model_named, name_of

from coord.cli.exits import Exit
from coord.cli.main import cli

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from jepsen_lite import Register

class Odd(Register):
    name = "odd register"

def ask(history, key, value, seen):
    with history.asking(key, "write", value, client="a"):
        pass
    with history.asking(key, "read", client="b") as asked:
        asked.answered(seen)

def test_stale(history):
    ask(history, "x-1", 1, 1)
    ask(history, "x-2", 1, 2)
    history.judge(Register(0), keys="x-")

def test_sound_but_failed(history):
    history.judge_at_end(Register())
    ask(history, "x", 1, 1)
    assert 2 + 2 == 5, "arithmetic"

def test_own_model(history):
    history.judge_at_end(Odd())
    ask(history, "x", 1, 2)

def test_no_model(history):
    ask(history, "x", 1, 2)
    assert not history.operations
"""
CLUSTER = """
import pytest

@pytest.mark.coord_cluster(servers=1, hosts=0)
def test_cluster(coord_cluster, history):
    with coord_cluster.sync_client() as client:
        client.note("test", "a note")
    with history.asking("x", "write", 1, token="never-sent") as asked:
        asked.answered(None, 1)
    coord_cluster.judge()
"""


@pytest.fixture(autouse=True)
def _settings(request: pytest.FixtureRequest) -> None:
    if "pytester" in request.fixturenames:
        suite: pytest.Pytester = request.getfixturevalue("pytester")
        suite.makeini(
            "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
            "addopts = -p no:hypothesispytest --strict-markers\n"
        )


@pytest.fixture
def left(pytester: pytest.Pytester) -> Path:
    """Folders of tests that all failed."""
    pytester.makepyfile(test_it=SUITE)
    result = pytester.runpytest("--fault-directory", "left")
    result.assert_outcomes(failed=4)
    directory = Path(pytester.path) / "left"
    for name in ("stale", "sound_but_failed", "own_model", "no_model"):
        folder = directory / f"test_it-py-test_{name}"
        assert f"page: {folder / 'report.html'}" in result.outlines
        assert f"to judge it again: coordctl faults judge {folder}" in result.outlines
    return directory


def judge(folder: Path) -> Result:
    return CliRunner().invoke(cli, ["faults", "judge", str(folder)])


def test_a_violation_is_on_the_page_and_found_again(left: Path) -> None:
    """By the model that the test judged with, first value and keys included."""
    folder = left / "test_it-py-test_stale"
    assert read_history(folder / "history.jsonl").models == [Modelled("x-", "", "register", 0)]
    page = (folder / "report.html").read_text()
    assert "linearizable: register x-2" in page
    assert "no order explains these answers" in page
    result = judge(folder)
    assert result.exit_code == Exit.FAILED, result.output
    assert "linearizable: register x-2" in result.stdout
    assert "4 of 4 operations have a model" in result.stdout


def test_a_test_that_failed_before_its_end_tells_why_and_how_to_judge_it(left: Path) -> None:
    """What it recorded is sound."""
    folder = left / "test_it-py-test_sound_but_failed"
    assert "the test failed: AssertionError: arithmetic" in (folder / "report.html").read_text()
    result = judge(folder)
    assert result.exit_code == Exit.OK, result.output
    assert "2 of 2 operations have a model" in result.stdout


@pytest.mark.parametrize(
    ("name", "said"), [("own_model", "own model test_it.Odd"), ("no_model", "0 of 2")]
)
def test_what_only_the_test_could_judge_is_unknown(left: Path, name: str, said: str) -> None:
    """And so fails, with the reason."""
    result = judge(left / f"test_it-py-test_{name}")
    assert result.exit_code == Exit.FAILED, result.output
    assert "unknown" in result.stdout
    assert said in " ".join(result.stdout.split())


def test_a_cluster_that_was_judged_is_judged_again_by_its_log(pytester: pytest.Pytester) -> None:
    """Its folder has the log and what servers said of themselves."""
    pytester.makepyfile(test_it=CLUSTER)
    result = pytester.runpytest("--fault-directory", "left")
    result.assert_outcomes(failed=1)
    folder = Path(pytester.path) / "left" / "test_it-py-test_cluster"
    names = {"history.jsonl", "incident.log", "evidence.json", "report.html", "logs"}
    assert names <= {path.name for path in folder.iterdir()}
    assert "acknowledged, but lost" in (folder / "report.html").read_text()
    again = CliRunner().invoke(cli, ["faults", "judge", str(folder), "-o", "json"])
    assert again.exit_code == Exit.FAILED, again.output
    document = json.loads(again.stdout)
    details = [one["detail"] for one in document["judgements"] if one["verdict"] == "violation"]
    assert len(details) == 1
    assert "acknowledged, but lost" in details[0]


@pytest.mark.parametrize("name", KNOWN)
def test_a_model_is_found_by_its_name(name: str) -> None:
    """Each of the suite's own; nobody else's, whatever that calls itself."""
    model = model_named(name)
    assert model is not None
    assert name_of(model) == name
    assert name_of(type("Mine", (type(model),), {})()) not in KNOWN
    assert model_named("elsewhere.Mine") is None


def test_models_are_recorded_once_and_read_back(tmp_path: Path) -> None:
    """With whatever they begin with."""
    writer = HistoryWriter(tmp_path / "history.jsonl", {"test": "t"})
    told = [Modelled("a", "", name_of(Register()), [1, 2]), Modelled("", "w", name_of(Switch()))]
    for modelled in (*told, *told):
        writer.model(modelled)
    writer.close()
    assert writer.models == told
    assert read_history(writer.path).models == told
