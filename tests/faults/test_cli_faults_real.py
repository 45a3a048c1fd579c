"""`coordctl faults run` on real processes: what it leaves, and that it leaves nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from jepsen_lite.cluster.leftovers import MARK_FILE, mounts

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.cli.processes import marked

PATIENCE_S = 60.0
POLL_S = 0.05


def faults(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["faults", *arguments])


def left_by(directory: Path) -> list[object]:
    """What still carries the mark of the run in this folder."""
    mark = (directory / MARK_FILE).read_text().strip()
    return [*marked(mark), *mounts(mark)]


def test_a_run_is_judged_told_and_not_repeated(tmp_path: Path) -> None:
    """Ten seconds of clients while leaders are killed; then the same command once more, and the
    folder judged again by itself."""
    arguments = ("run", "--nemesis", "kill-leader", "--minutes", "0.16667", "--seed", "3")
    result = faults(*arguments, "--directory", str(tmp_path), "-o", "json")
    assert result.exit_code == Exit.OK, result.output
    document = json.loads(result.stdout)
    [run] = document["runs"]
    assert (document["ok"], run["verdict"], run["broken"]) == (True, "holds", [])
    assert run["figures"]["operations"] > 50
    assert run["figures"]["faults"] > 0
    folder = tmp_path / "registers-kill-leader-3"
    assert {path.name for path in folder.iterdir()} >= {
        "history.jsonl",
        "incident.log",
        "evidence.json",
        "verdict.json",
        "report.html",
        "logs",
    }
    assert not (folder / "disks").exists()
    assert left_by(folder) == []
    assert "kill -9 of the leader" in (folder / "report.html").read_text()

    again = faults(*arguments, "--directory", str(tmp_path))
    assert again.exit_code == Exit.OK, again.output
    assert "It was judged before, with the same options" in again.stdout
    assert run["repeat"] in again.stdout

    judged = faults("judge", str(folder), "-o", "json")
    assert judged.exit_code == Exit.OK, judged.output
    kept = json.loads((folder / "verdict.json").read_text())["judgements"]
    told = json.loads(judged.stdout)["judgements"]
    assert [(one["check"], one["verdict"], one["detail"]) for one in told] == [
        (one["check"], one["verdict"], one["detail"]) for one in kept
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_every_process_and_keeps_what_was_recorded(
    tmp_path: Path, number: signal.Signals
) -> None:
    """So does SIGTERM, by which a CI ends what takes too long."""
    command = [sys.executable, "-m", "coord.cli.main", "faults", "run", "--nemesis", "slow"]
    run = subprocess.Popen(
        [*command, "--minutes", "5", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder = tmp_path / "registers-slow-1"
    try:
        wait_for_operations(folder / "history.jsonl", run)
        run.send_signal(number)
        _, said = run.communicate(timeout=PATIENCE_S)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == Exit.INTERRUPTED, said
    assert left_by(folder) == []
    assert "interrupted: 1 run not judged" in said
    assert f"`coordctl faults judge {folder}` judges them" in said
    assert "Traceback" not in said
    judged = faults("judge", str(folder), "-o", "json")
    assert judged.exit_code == Exit.OK, judged.output
    assert msgspec.json.decode(judged.stdout)["verdict"] == "holds"


def wait_for_operations(path: Path, run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists() or path.read_text().count('"complete"') < 20:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "no operations"
        time.sleep(POLL_S)
