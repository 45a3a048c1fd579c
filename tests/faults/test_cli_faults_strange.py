"""What a stranger gives to `coordctl faults`: damaged folders, and places and rights that lack."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jepsen_lite.history.journal import read_history
from jepsen_lite.judge.watches import WatchWriter
from jepsen_lite.run.artefacts import keep
from jepsen_lite.workloads.judging import TO_ITS_END
from jepsen_lite.workloads.port import Evidence

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.model.events import NoteAdded
from coord.store.incident import IncidentFormat, IncidentWriter, incident_header
from tests.faults.made_history import MadeHistory
from tests.faults.made_logs import MadeLog

NOBODY = 65534


def faults(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["faults", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a run in which one note was written and watched, with all that judging it takes."""
    made = MadeLog()
    made.say(NoteAdded("watches/0", "k", "t1"))
    with (
        (tmp_path / "incident.log").open("wb") as file,
        IncidentWriter(
            file, incident_header("made", 1, b"", "test", 1), IncidentFormat.BINARY
        ) as writer,
    ):
        for record in made.records:
            writer.write(record)
    history = MadeHistory(tmp_path, {"workload": "watches", "seed": 1})
    history.done("watches/0", "note", begins_s=1.0, ends_s=1.1, index=len(made.records))
    history.mark("quiet", 2.0)
    history.writer.close()
    WatchWriter(tmp_path / "watches" / "0.jsonl", "watches/0", 1).close()
    keep(Evidence(read_history(history.path), made.log()), [], tmp_path)  # type: ignore[arg-type]
    return tmp_path


def empty(_: bytes) -> bytes:
    return b""


def binary(_: bytes) -> bytes:
    return random.Random(5).randbytes(4_000)


def other(_: bytes) -> bytes:
    return b"[1, 2]\n"


@pytest.mark.parametrize(
    "name", ["history.jsonl", "incident.log", "evidence.json", "watches/0.jsonl"]
)
@pytest.mark.parametrize("damage", [empty, binary, other])
def test_a_file_that_is_none_of_ours_is_refused_by_its_name(
    folder: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """With a word on what can be done."""
    path = folder / name
    path.write_bytes(damage(path.read_bytes()))
    result = faults("judge", folder)
    assert result.exit_code == Exit.USAGE, result.output
    assert f"{path}" in result.stderr
    assert "defect" not in result.stderr
    said = ("judges what clients saw without it", "a history begins with", "Take it away to judge")
    assert any(what_to_do in result.stderr for what_to_do in said)


def test_a_folder_that_is_whole_is_judged_and_its_history_holds(folder: Path) -> None:
    """But for what such a run lacks: nobody looked at servers."""
    result = faults("judge", folder)
    (told,) = [line for line in result.stdout.splitlines() if TO_ITS_END in line]
    assert told.split()[-4:] == ["holds", "log", "1", "operations"]
    assert "violation" not in result.stdout


@pytest.mark.parametrize("lost", [3, 100])
def test_a_history_that_lost_its_end_is_unknown(folder: Path, lost: int) -> None:
    """In the middle of its last line or of one before: the run had gone on."""
    path = folder / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-lost])
    result = faults("judge", folder)
    assert result.exit_code == Exit.FAILED, result.output
    (told,) = [line for line in result.stdout.splitlines() if TO_ITS_END in line]
    assert "unknown" in told
    assert "the end of the history is missing" in told


def test_a_history_that_lost_whole_lines_is_unknown(folder: Path) -> None:
    """Nothing else shows it."""
    path = folder / "history.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    result = faults("judge", folder)
    assert result.exit_code == Exit.FAILED, result.output
    assert "it does not say when the run became quiet" in result.stdout


@pytest.mark.parametrize("seed", range(12))
def test_no_flipped_bit_is_a_defect(folder: Path, seed: int) -> None:
    """Whatever it makes of the file, that is refused or judged."""
    rng = random.Random(seed)
    path = folder / rng.choice(("history.jsonl", "incident.log", "evidence.json"))
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    result = faults("judge", folder)
    assert result.exit_code in (Exit.FAILED, Exit.USAGE), result.output
    assert "defect" not in result.stderr


def test_a_number_without_end_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "etcd.log"
    path.write_text(f"INFO  jepsen.util - 0 :invoke :write {'9' * 5_000}\n")
    result = faults("judge", path, "--format", "jepsen-etcd")
    assert result.exit_code == Exit.USAGE, result.output
    assert "line 1: Exceeds the limit" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--html", "/nowhere/at/all.html"), "there is no folder /nowhere/at; make it first"),
        (("--html", "/proc/page.html"), "name a file that you may write"),
        (("--budget", "nan"), "--budget is nan; it must be a number of seconds"),
    ],
)
def test_an_option_that_cannot_be_met_is_refused(
    folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = faults("judge", folder, *arguments)
    assert result.exit_code == Exit.USAGE, result.output
    assert said in result.stderr


@pytest.mark.parametrize("urls", ["", ",", " "])
def test_no_address_is_not_taken_for_a_cluster_of_our_own(tmp_path: Path, urls: str) -> None:
    """As of a variable that is not set."""
    result = faults("run", "--nemesis", "none", "--attach", urls, "--directory", tmp_path / "runs")
    assert result.exit_code == Exit.USAGE, result.output
    assert "give the URLs of that cluster's servers" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_made_is_no_matter_of_a_run(tmp_path: Path) -> None:
    """Nothing was judged, so it is no violation."""
    (tmp_path / "file").write_text("")
    result = faults("run", "--nemesis", "none", "--directory", tmp_path / "file" / "runs")
    assert result.exit_code == Exit.USAGE, result.output
    assert "cannot be made: Not a directory; name another one" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nemesis", "disk-full"), "mounting a tmpfs needs root"),
        (("--nemesis", "halves", "--network", "namespaces"), "run as root, or use the proxy"),
        (("--nemesis", "none", "--directory", "{theirs}"), "cannot be written to by you"),
    ],
)
def test_somebody_without_rights_is_told_which(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Another user of this machine, who may read all of it."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid():
        pytest.skip("there is nobody else to be: it takes root and setpriv")
    theirs = "/usr" if "{theirs}" in arguments else str(tmp_path)
    words = [word.format(theirs=theirs) for word in arguments]
    done = subprocess.run(
        [
            setpriv, f"--reuid={NOBODY}", "--clear-groups",
            sys.executable, "-m", "coord.cli.main", "faults", "run", *words,
        ],
        capture_output=True, text=True, check=False, cwd="/", timeout=60,
    )  # fmt: skip
    if "No module named" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip(f"nobody else may read this installation: {done.stderr[-200:]}")
    assert done.returncode == Exit.USAGE, done.stderr
    assert said in done.stderr
