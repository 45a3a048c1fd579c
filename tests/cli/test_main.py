"""The command itself: help that is quick, mistakes that are told, ends that are clean."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from coord.cli import main as main_module
from coord.cli.exits import Exit
from coord.cli.main import COMMANDS, cli
from tests.cli.recordings import quiet_entries, recorded

COORDCTL = [sys.executable, "-m", "coord.cli.main"]
HEAVY = ("rich", "aiohttp", "yaml", "msgspec", "coord.client", "coord.core", "coord.codec", "lmdb")


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COORDCTL, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_loads_no_command() -> None:
    """That is what keeps `coordctl --help` under 200 ms: nothing heavy is imported for it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "coord.cli.main", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    assert imported.isdisjoint(HEAVY)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", done.stdout, re.MULTILINE)
    assert "Exit codes:" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_has_help(name: str) -> None:
    """The table of lazy imports names nothing that is not there."""
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == Exit.OK
    assert "Usage:" in result.stdout


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(cli, ["jbo"])
    assert result.exit_code == Exit.USAGE
    assert "Did you mean 'job'?" in result.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """As with `coordctl replay --all FILE | head -1`."""
    path = tmp_path / "long.log"
    path.write_bytes(recorded(quiet_entries(20_000)))
    with subprocess.Popen(
        [*COORDCTL, "replay", "--all", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == Exit.OK


def test_ctrl_c_ends_without_a_traceback() -> None:
    """While it waits for input: 130, as shells have it, and nothing but an end of line."""
    with subprocess.Popen(
        [*COORDCTL, "job", "submit", "--dry-run", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        wait_until_reading(process.pid)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (Exit.INTERRUPTED, b"", b"\n")


def wait_until_reading(pid: int) -> None:
    """Until the process sleeps in a read of its pipe, as the kernel tells it."""
    import time

    deadline_s = time.monotonic() + 30
    while "pipe_read" not in Path(f"/proc/{pid}/wchan").read_text():
        assert time.monotonic() < deadline_s, "it never came to reading"
        time.sleep(0.01)


def test_a_defect_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is raised, the user reads a sentence and how to get more."""
    monkeypatch.setitem(main_module.COMMANDS, "note", main_module.Lazy("coord.cli.main:gone", ""))
    assert main_module.run(["note"]) == Exit.UNKNOWN
    told = capsys.readouterr().err
    assert "a defect in coord: AttributeError" in told
    assert "coordctl --debug" in told
    with pytest.raises(AttributeError):
        main_module.run(["--debug", "note"])


def test_the_version_is_told() -> None:
    from coord import __version__

    assert run("--version").stdout == f"coord {__version__}\n"
    assert "PATH" in os.environ
