"""What a user installs: the wheel, in an environment that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
INSTALL_TIMEOUT_S = 300


def run(*command: str | Path, cwd: Path, timeout: float = INSTALL_TIMEOUT_S) -> str:
    """The command's output; its stderr is in the failure when it fails."""
    # The environment under test must see neither this checkout nor this virtual environment.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=kept, timeout=timeout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the checkout stays clean."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(
        ROOT / "coord", tree / "coord", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, tree, cwd=tree)
    (built,) = out.glob("coord-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that holds the wheel and what it depends on."""
    place = tmp_path_factory.mktemp("empty")
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=place)
    return place / "bin"


def test_the_wheel_holds_every_module_and_the_marker_of_types(wheel: Path) -> None:
    """Generated code and py.typed included, tests and examples not."""
    names = zipfile.ZipFile(wheel).namelist()
    expected = sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "coord").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    )
    assert any(name.startswith("coord/pb/") for name in expected)
    assert sorted(name for name in names if name.startswith("coord/")) == expected
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"coord"}


def test_coordctl_explains_itself_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """`coordctl --help` needs nothing but the wheel's own dependencies."""
    said = run(installed / "coordctl", "--help", cwd=tmp_path, timeout=60)
    for command in ("up", "demo", "server", "agent", "job", "host", "events", "replay"):
        assert f"  {command} " in said


@pytest.mark.parametrize(
    "command", ["up", "demo", "server", "agent", "job", "host", "events", "cluster", "replay"]
)
def test_every_command_loads_in_an_empty_environment(
    installed: Path, tmp_path: Path, command: str
) -> None:
    """Nothing in the package needs what only a developer has."""
    assert "Usage:" in run(installed / "coordctl", command, "--help", cwd=tmp_path, timeout=60)


def test_the_client_library_loads_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """So does what training code and agents import."""
    run(installed / "python", "-c", "import coord.client, coord.worker", cwd=tmp_path, timeout=60)
