"""`examples/sim_agent.py` as a stranger runs it: the mistake is found, and mended it passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from coord_sim.world.ground_truth import ONE_OWNER

ROOT = Path(__file__).parents[2]
SUITE = "examples/test_sim_agent.py"


def run(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """pytest on the example, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE, *options],
        cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_planted_mistake_is_found_and_can_be_repeated() -> None:
    """By the number of seeds that the example asks for, without a word about what to look for."""
    found = run("-x")
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert ONE_OWNER in found.stdout
    line = next(line for line in found.stdout.splitlines() if line.startswith("pytest "))
    seed = line.rpartition(" ")[2]
    again = run("--sim-seed", seed)
    assert again.returncode == pytest.ExitCode.TESTS_FAILED
    assert told(again.stdout) == told(found.stdout)


def told(output: str) -> list[str]:
    """What the violation says, with its times."""
    lines = [line for line in output.splitlines() if line.startswith("E  ")]
    assert lines
    return lines


def test_the_careful_agent_passes_with_every_seed() -> None:
    """The same test, the same seeds."""
    passed = run(AGENT="careful")
    assert passed.returncode == pytest.ExitCode.OK, passed.stdout
    assert "30 passed" in passed.stdout
