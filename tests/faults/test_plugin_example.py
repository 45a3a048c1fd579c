"""`examples/flags.py` as a stranger runs it: the mistake is found, and mended it passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = "examples/test_flags.py"


def run(**env: str) -> subprocess.CompletedProcess[str]:
    """pytest on the example, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE],
        cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_planted_mistake_is_found_and_shown() -> None:
    """A stale answer, the misfortune that brought it about, and the line that repeats it."""
    found = run()
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "Violated: linearizable: register" in found.stdout
    assert "pause-leader: SIGSTOP to the leader" in found.stdout
    assert f"pytest {SUITE}::" in found.stdout
    assert "--fault-seed 1" in found.stdout


def test_the_careful_service_passes_the_same_test() -> None:
    """Though its leader stands still as well."""
    passed = run(FLAGS="careful")
    assert passed.returncode == pytest.ExitCode.OK, passed.stdout
    assert "1 passed" in passed.stdout
