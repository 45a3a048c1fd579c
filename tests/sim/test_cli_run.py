"""`coordctl sim run`: what it prints, how it ends, what it leaves behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from coord_sim.cli import SUBCOMMANDS
from coord_sim.cli import run as cli_run
from coord_sim.world import campaign
from coord_sim.world.artefacts import (
    INCIDENT,
    REPEAT,
    REPORT,
    TRACE,
    commit_or_version,
    write_artefacts,
)
from coord_sim.world.options import WorldOptions
from coord_sim.world.run import record_seed, run_seed

from coord import __version__
from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.cli.replay import replay_file
from coord.cli.replay_telling import DocumentTelling
from coord.cli.timeline import Narrowing
from tests.sim.fake_runs import HERE


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sim", "run", *arguments])


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_is_there_and_has_help(name: str) -> None:
    result = CliRunner().invoke(cli, ["sim", name, "--help"])
    assert result.exit_code == Exit.OK, result.output
    assert "Usage:" in result.stdout


def test_a_mistyped_subcommand_gets_a_suggestion() -> None:
    result = CliRunner().invoke(cli, ["sim", "rnu"])
    assert result.exit_code == Exit.USAGE
    assert "Did you mean 'run'?" in result.stderr


def test_a_seed_prints_the_same_bytes_every_time() -> None:
    """Its trace's digest among them."""
    arguments = ("--seeds", "1", "--seed", "4242", "--seconds", "10", "-o", "json")
    first, second = run(*arguments), run(*arguments)
    assert (first.exit_code, first.stderr) == (Exit.OK, "")
    assert first.stdout_bytes == second.stdout_bytes
    document = json.loads(first.stdout)
    assert document["outcomes"][0]["digest"] == run_seed(4242, WorldOptions(seconds=10)).digest
    assert document["ok"] is True


def test_a_table_tells_which_faults_happened_and_which_never() -> None:
    result = run("--seeds", "1", "--seconds", "5", "--faults", "server", "--workers", "1")
    assert result.exit_code == Exit.OK
    lines = result.stdout.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("server.")]
    assert "server.crash" in named
    assert "server.pause" in named
    assert "--faults server" in result.stdout


def test_a_failure_is_one_line_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exit code says so."""
    monkeypatch.setattr(campaign.Plan.__new__, "__defaults__", fake_defaults("broken_from_seven"))
    result = run("--seeds", "9", "--workers", "1", "--artefacts", "-")
    assert result.exit_code == Exit.FAILED
    assert "seed 7 broke a promise: all is well" in result.stdout
    assert (
        "coordctl sim run --seeds 1 --seed 7 --nodes 3 --seconds 60 --faults all" in result.stdout
    )


def fake_defaults(name: str) -> tuple[object, ...]:
    """Of the fields of `Plan` that have defaults, with another function that runs a seed."""
    return tuple({**campaign.Plan._field_defaults, "run_seed": f"{HERE}:{name}"}.values())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--nodes", "0"), "--nodes is 0; it must be 1 to 7"),
        (("--faults", "dsik"), "--faults names 'dsik'; there are agent, "),
        (("--off", "G99"), "--off is 'G99'; the rules are G1, "),
        (("--seeds", "0"), "0 is not in the range"),
        (("--minutes", "0"), "0 is not in the range"),
        (("--minutes", "inf"), "'inf' is no number to count with"),
        (("--faults", ""), "--faults is empty; for a cluster without any say none"),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr


def test_artefacts_replay_and_say_how_to_repeat(tmp_path: Path) -> None:
    """The log of a seed is an incident file as any other."""
    recording = record_seed(5, WorldOptions(seconds=15))
    broken = msgspec.structs.replace(recording.outcome, broken="pigs <fly>", detail="they do not")
    directory = write_artefacts(recording._replace(outcome=broken), tmp_path)
    assert directory.name == "sim-failure-5"
    with (tmp_path / "told.json").open("w") as told:
        summary = replay_file(
            str(directory / INCIDENT), Narrowing(nothing=True), DocumentTelling(told)
        )
    assert (summary.exit_code, summary.verified) == (Exit.OK, recording.outcome.entries)
    assert "--seed 5 --nodes 3 --seconds 15 --faults all" in (directory / REPEAT).read_text()
    assert len((directory / TRACE).read_text().splitlines()) == len(recording.trace)
    page = (directory / REPORT).read_text()
    assert "pigs &lt;fly&gt;" in page
    assert recording.outcome.digest in page
    assert "GenerationStarted" in page


def test_ctrl_c_prints_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends with 130, as everywhere."""

    def interrupted(plan: campaign.Plan, tell: object) -> campaign.Result:
        def stop(progress: campaign.Progress) -> None:
            if progress.done == 2:
                raise KeyboardInterrupt

        return campaign.run_campaign(plan, stop)

    monkeypatch.setattr(campaign.Plan.__new__, "__defaults__", fake_defaults("uneventful"))
    monkeypatch.setattr(cli_run, "run_campaign", interrupted)
    result = run("--seeds", "1000", "--workers", "1")
    assert result.exit_code == Exit.INTERRUPTED
    assert "seeds         2 (1 to 2), 0 failed" in result.stdout


def test_a_failure_is_told_though_its_files_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A hunt of an hour must not end in the name of a directory."""
    (tmp_path / "sim-failure-7").write_text("a file where the directory would be")
    recording = record_seed(7, WorldOptions(seconds=1))
    monkeypatch.setattr(campaign.Plan.__new__, "__defaults__", fake_defaults("broken_from_seven"))
    monkeypatch.setattr(cli_run, "record_seed", lambda seed, options: recording)
    result = run("--seeds", "9", "--workers", "1", "--artefacts", str(tmp_path))
    assert result.exit_code == Exit.FAILED
    assert "seed 7 broke a promise: all is well" in result.stdout
    assert "seed 7 leaves no files: " in result.stderr
    assert "says more" not in result.stdout


def test_a_seed_that_does_not_repeat_is_said_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its files are of another run than the one that failed."""
    recording = record_seed(7, WorldOptions(seconds=1))
    monkeypatch.setattr(campaign.Plan.__new__, "__defaults__", fake_defaults("broken_from_seven"))
    monkeypatch.setattr(cli_run, "record_seed", lambda seed, options: recording)
    result = run("--seeds", "9", "--workers", "1", "--artefacts", str(tmp_path))
    assert "seed 7 went another way" in result.stderr
    assert f"digest {recording.outcome.digest}, before d" in result.stderr
    assert f"{tmp_path}/sim-failure-7/report.html says more" in result.stdout


def test_ctrl_c_while_files_are_written_tells_the_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And ends with 130."""

    def interrupted(seed: int, options: WorldOptions) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign.Plan.__new__, "__defaults__", fake_defaults("broken_from_seven"))
    monkeypatch.setattr(cli_run, "record_seed", interrupted)
    result = run("--seeds", "9", "--workers", "1", "--artefacts", str(tmp_path))
    assert result.exit_code == Exit.INTERRUPTED
    assert "seed 7 broke a promise: all is well" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_commit_told_is_that_of_the_code(tmp_path: Path) -> None:
    """Not that of the checkout that somebody has installed it below."""
    code, installed = tmp_path / "code.py", tmp_path / "installed.py"
    code.write_text("one = 1\n")
    installed.write_text("two = 2\n")
    for arguments in (
        ("init", "-q"),
        ("add", "code.py"),
        ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "Begin"),
    ):
        subprocess.run(("git", *arguments), cwd=tmp_path, check=True)
    assert commit_or_version(installed) == f"version {__version__}"
    commit = commit_or_version(code)
    assert 7 <= len(commit) <= 40
    code.write_text("one = 2\n")
    assert commit_or_version(code) == f"{commit}-dirty"
