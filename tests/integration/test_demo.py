"""The demo, as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.cluster import ROOT


def test_the_demo_recovers_from_three_failures(tmp_path: Path) -> None:
    """Exit code 0, its last line, one line an incident, and a file that replays."""
    done = subprocess.run(
        [sys.executable, "-m", "coord.cli.main", "demo", "--output", str(tmp_path / "demo")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "demo: 3 incidents recovered, weights identical, replay matches"
    incidents = [line.split(":")[0].strip() for line in lines if "  incident " in line]
    assert incidents == ["incident 1", "incident 2", "incident 3"]
    assert (tmp_path / "demo" / "incident.log").stat().st_size > 0


def test_the_demo_says_what_it_lacks(tmp_path: Path) -> None:
    """Outside a checkout it names the script that it did not find, and the remedy."""
    done = subprocess.run(
        [sys.executable, "-m", "coord.cli.main", "demo", "--script", str(tmp_path / "none.py")],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert str(tmp_path / "none.py") in done.stderr
    assert "--script" in done.stderr
