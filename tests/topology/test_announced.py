"""Where an agent says that its host stands: from flags to the registration."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from coord.agent.config import AgentConfig
from coord.cli import agent as agent_command
from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.client import Agent
from coord.model.place import Place, Rail


def test_flags_say_where_the_host_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the environment, for what is the same on all hosts of a rack."""
    seen: list[AgentConfig] = []

    def run(config: AgentConfig) -> int:
        seen.append(config)
        return 0

    monkeypatch.setattr(agent_command, "_run", run)
    arguments = ["agent", "--zone", "z1", "--rack", "r1", "--nvlink", "n1"]
    arguments += ["--rail", "mlx5_0=leaf-1", "--rail", "mlx5_1"]
    result = CliRunner().invoke(cli, arguments, env={"COORD_POD": "p1"})
    assert result.exit_code == 0, result.output
    assert seen[0].place == Place("z1", "p1", "r1", "n1")
    assert seen[0].rails == (Rail("mlx5_0", "leaf-1"), Rail("mlx5_1"))
    assert seen[0].problems() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--zone", "a/b"], "--zone is 'a/b'"),
        (["--rack", " r1"], "--rack is ' r1'"),
        (["--rail", "=leaf"], "write NAME or NAME=SWITCH"),
        (["--rail", "mlx5_0="], "write NAME or NAME=SWITCH"),
        (["--rail", "a=x", "--rail", "a=y"], "--rail a is given twice"),
    ],
)
def test_a_name_that_cannot_be_is_usage(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, ["agent", *arguments])
    assert result.exit_code == Exit.USAGE, result.output
    assert told in result.stderr


def test_an_agent_in_a_program_checks_them_too(tmp_path: Path) -> None:
    config = AgentConfig(
        servers=("http://127.0.0.1:1",),
        data_dir=tmp_path,
        place=Place("a/b"),
        rails=(Rail("a"), Rail("a"), Rail("")),
    )
    problems = " ".join(config.problems())
    for told in ("zone 'a/b'", "rail 'a' is named twice", "rail ''"):
        assert told in problems


async def test_an_agent_announces_where_its_host_stands() -> None:
    """In its registration."""
    agent = Agent(
        ["http://127.0.0.1:1"], host="h1", agent_id="a", boot="b", address="lan",
        next_seq=lambda: 1, place=Place("z1"), rails=[Rail("a", "l1")],
    )  # fmt: skip
    assert (agent._offer.place, agent._offer.rails) == (Place("z1"), (Rail("a", "l1"),))
