"""`coordctl faults`: what it lists, what it refuses, what it judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jepsen_lite.cli import SUBCOMMANDS
from jepsen_lite.nemeses.catalogue import NEMESES
from jepsen_lite.nemeses.port import NEEDS
from jepsen_lite.workloads.catalogue import WORKLOADS

from coord.cli.exits import Exit
from coord.cli.main import cli
from tests.faults.made_history import MadeHistory, stale_read

ETCD = """\
INFO  jepsen.util - 0 :invoke :write 3
INFO  jepsen.util - 0 :ok :write 3
INFO  jepsen.util - 1 :invoke :read nil
INFO  jepsen.util - 1 :ok :read {read}
"""
TEXT = (
    '{:process 0, :type :invoke, :f :append, :key "0", :value "x"}\n'
    '{:process 0, :type :ok, :f :append, :key "0", :value "x"}\n'
    '{:process 0, :type :invoke, :f :get, :key "0", :value nil}\n'
    '{:process 0, :type :ok, :f :get, :key "0", :value "x"}\n'
)


def faults(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, ["faults", *arguments], env=env)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_is_there_and_has_help(name: str) -> None:
    result = faults(name, "--help")
    assert result.exit_code == Exit.OK, result.output
    assert "Usage:" in result.stdout
    assert name in faults("--help").stdout


def test_the_list_explains_every_workload_and_nemesis() -> None:
    result = faults("list")
    assert result.exit_code == Exit.OK, result.output
    lines = result.stdout.splitlines()
    for kind in (*(kind() for kind in WORKLOADS.values()), *NEMESES.values()):
        told = [line for line in lines if line.startswith(f"{kind.name} ") and kind.line in line]
        assert len(told) == 1, kind.name
        assert all(need in told[0] for need in kind.needs)


def test_the_list_says_what_the_machine_lacks_and_what_to_do() -> None:
    """Without any program at hand there is no compiler, no mount, no namespace; the proxy stays."""
    result = faults("list", "-o", "json", env={"PATH": ""})
    document = json.loads(result.stdout)
    lacking = {row["name"]: row["lacking"] for row in document["nemeses"]}
    assert "there is no C compiler" in lacking["power-cut"][0]
    assert "disk.full" in lacking["disk-full"][0]
    assert lacking["halves"] == lacking["slow"] == []
    assert "no namespaces: there is no `ip`: install iproute2" in document["network"]


def test_every_need_of_a_nemesis_is_one_that_can_be_looked_for() -> None:
    assert {need for nemesis in NEMESES.values() for need in nemesis.needs} <= set(NEEDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "registers"), "--nemesis"),
        (("--nemesis", "kill-leeder"), "there is no nemesis 'kill-leeder'; there are none, kill-"),
        (("--nemesis", "slow+all"), "there is no nemesis 'all'"),
        (("--nemesis", "slow", "--workload", "sums"), "there is no workload 'sums'; there are reg"),
        (("--nemesis", "slow", "--workload", "registers+churn"), "both drain hosts"),
        (("--nemesis", "slow", "--minutes", "0"), "--minutes"),
        (("--nemesis", "slow", "--servers", "4"), "'4' is not one of '3', '5'"),
        (("--nemesis", "slow", "--rate", "-1"), "--rate"),
        (("--nemesis", "slow", "--network", "pigeons"), "pigeons"),
        (("--nemesis", "kill-agent", "--hosts", "0"), "agents: there are no hosts; give --hosts 1"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    result = faults("run", *arguments, "--directory", str(tmp_path / "runs"))
    assert result.exit_code == Exit.USAGE, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nemesis", "power-cut"), "power-cut is not possible here: disk.lose_unsynced"),
        (("--nemesis", "slow", "--network", "namespaces"), "install iproute2"),
    ],
)
def test_a_nemesis_that_the_machine_lacks_is_an_error_alone(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    directory = str(tmp_path / "runs")
    result = faults("run", *arguments, "--directory", directory, env={"PATH": ""})
    assert result.exit_code == Exit.USAGE, result.output
    assert said in result.stderr
    assert "install" in result.stderr


def test_a_history_alone_is_judged_by_search(tmp_path: Path) -> None:
    result = faults("judge", str(stale_read(tmp_path)))
    assert result.exit_code == Exit.FAILED, result.output
    assert "violation" in result.stdout
    assert "no order explains these answers" in result.stdout
    assert "judged without the log: 3 of 3 operations have a model" in result.stdout


def test_a_folder_without_a_log_is_judged_by_its_history(tmp_path: Path) -> None:
    path, page = stale_read(tmp_path), tmp_path / "page.html"
    result = faults("judge", str(path.parent), "--html", str(page), "-o", "json")
    assert result.exit_code == Exit.FAILED, result.output
    document = json.loads(result.stdout)
    assert document["verdict"] == "violation"
    assert document["figures"]["operations"] == 3
    assert "no order explains these answers" in page.read_text()


def test_a_history_in_which_nothing_can_be_judged_is_unknown(tmp_path: Path) -> None:
    """And so fails: nobody may take it for a success."""
    made = MadeHistory(tmp_path)
    made.done("jobs/0", "submit", begins_s=1, ends_s=2, key="jobs-1")
    made.writer.close()
    result = faults("judge", str(made.path))
    assert result.exit_code == Exit.FAILED, result.output
    assert "unknown" in result.stdout


@pytest.mark.parametrize(("read", "code"), [(3, Exit.OK), (4, Exit.FAILED)])
def test_a_history_of_others_is_judged(tmp_path: Path, read: int, code: Exit) -> None:
    path = tmp_path / "etcd.log"
    path.write_text(ETCD.format(read=read))
    page = tmp_path / "page.html"
    result = faults("judge", str(path), "--format", "jepsen-etcd", "--html", str(page))
    assert result.exit_code == code, result.output
    assert "line 3 to line 4" in page.read_text()
    assert " ns" not in result.stdout + page.read_text()
    if code is Exit.FAILED:
        assert "which was over at line 4" in result.stdout


def test_a_key_value_history_of_others_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "kv.txt"
    path.write_text(TEXT)
    result = faults("judge", str(path), "--format", "porcupine-kv")
    assert result.exit_code == Exit.OK, result.output
    assert "linearizable" in result.stdout


def test_a_corrupt_history_is_refused_with_its_line(tmp_path: Path) -> None:
    path = stale_read(tmp_path)
    lines = path.read_text().splitlines()
    lines[3] = lines[3][:20]
    path.write_text("\n".join(lines) + "\n")
    result = faults("judge", str(path))
    assert result.exit_code == Exit.USAGE, result.output
    assert "history.jsonl: line 4:" in result.stderr
    assert "keep its first 3 lines" in result.stderr


def test_a_history_that_a_crash_cut_off_is_judged_and_said_to_be(tmp_path: Path) -> None:
    path = stale_read(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    result = faults("judge", str(path))
    assert "was cut off after" in result.stdout


@pytest.mark.parametrize(
    ("form", "said"),
    [("run", 'a history begins with {"type":"run",...}'), ("porcupine-kv", "line 1: ")],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, form: str, said: str) -> None:
    path = tmp_path / "etcd.log"
    path.write_text(ETCD.format(read=3))
    result = faults("judge", str(path), "--format", form)
    assert result.exit_code == Exit.USAGE, result.output
    assert said in result.stderr


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    result = faults("judge", str(tmp_path))
    assert result.exit_code == Exit.USAGE, result.output
    assert "give the history.jsonl of a run" in result.stderr
    assert faults("judge", str(tmp_path / "nowhere")).exit_code == Exit.USAGE


def test_damaged_evidence_is_refused_and_says_what_is_left(tmp_path: Path) -> None:
    stale_read(tmp_path)
    (tmp_path / "incident.log").write_bytes(b"")
    (tmp_path / "evidence.json").write_text('{"sightings": 3}')
    result = faults("judge", str(tmp_path))
    assert result.exit_code == Exit.USAGE, result.output
    assert "evidence.json" in result.stderr
    assert "judges what clients saw without it" in result.stderr
