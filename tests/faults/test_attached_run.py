"""Runs on a cluster that somebody else started: what can be done there, what is judged, what is
left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from jepsen_lite.cluster.attached import Attached, Unreachable
from jepsen_lite.judge.agreement import SAME_STATE
from jepsen_lite.judge.exported import ONCE
from jepsen_lite.nemeses.catalogue import NEMESES
from jepsen_lite.report.wording import HOLDS, verdict_of
from jepsen_lite.run.abilities import Abilities
from jepsen_lite.run.again import judge_again
from jepsen_lite.run.attached import abilities_there, attached_to, lacking_for, leave_nothing
from jepsen_lite.run.campaign import plan
from jepsen_lite.run.options import RunOptions
from jepsen_lite.run.run import run
from jepsen_lite.workloads.specs import register_job
from msgspec.structs import replace

from coord.cli.exits import Exit
from coord.cli.local import LocalCluster
from coord.cli.main import cli
from coord.client import SyncClient
from tests.free_ports import free_ports

NOWHERE = "http://127.0.0.1:9"
READY_S = 90.0
"""Of a busy machine."""


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three servers and an agent, which know nothing of the suite."""
    with LocalCluster(tmp_path / "theirs", agents=1, devices=2) as cluster:
        cluster.start()
        cluster.wait_ready(READY_S)
        yield cluster


def hooks_for(cluster: LocalCluster, directory: Path) -> Path:
    """Servers can be paused; nothing else."""
    lines = ["servers:"]
    for (node, server), url in zip(cluster.servers.items(), cluster.urls, strict=True):
        lines.append(
            f"  node-{node}: {{url: '{url}', pause: kill -STOP {server.pid}, "
            f"resume: kill -CONT {server.pid}}}"
        )
    path = directory / "hooks.yaml"
    path.write_text("\n".join(lines))
    return path


def test_a_cluster_of_others_is_loaded_broken_by_hooks_judged_and_left_clean(
    theirs: LocalCluster, tmp_path: Path
) -> None:
    """Its own jobs and hosts are left alone, nothing of a run lives on, not even in the way of the
    next one with the same seed, and the folder can be judged again."""
    with SyncClient(theirs.urls, actor="theirs") as client:
        client.submit_job(register_job("jobs-of-theirs", "", 3))
    options = RunOptions(
        workload="registers+watches+jobs",
        nemesis="pause-short",
        seconds=3.0,
        attach=(theirs.urls[0],),
        hooks=str(hooks_for(theirs, tmp_path)),
    )
    assert options.problems() == []
    abilities = asyncio.run(abilities_there(options))
    assert abilities.against_run(options.workload, options.nemesis) == []
    assert "drains and removes hosts" in abilities.against_run("churn", "none")[0]
    report = asyncio.run(run(options, tmp_path / "run"))
    assert verdict_of(report.judgements) == HOLDS, report.broken
    again = asyncio.run(run(replace(options, seconds=1.0, workload="registers"), tmp_path / "2"))
    assert verdict_of(again.judgements) == HOLDS, again.broken
    assert {ONCE, SAME_STATE} <= {one.check for one in report.judgements}
    assert report.figures.faults > 0
    assert f"--attach {theirs.urls[0]} --hooks" in report.repeat
    assert verdict_of(judge_again(tmp_path / "run").judgements) == HOLDS
    with SyncClient(theirs.urls, actor="theirs") as client:
        assert [job.name for job in client.jobs() if not job.finished] == ["jobs-of-theirs"]
        assert not any(host.drain for host in client.hosts())
    assert all(child.running for child in theirs.children)


def test_jobs_of_a_run_that_broke_off_are_cancelled_and_no_others(tmp_path: Path) -> None:
    """They are told by the end of their names."""
    with LocalCluster(tmp_path / "theirs", nodes=1, agents=0) as cluster:
        cluster.start()
        cluster.wait_ready(READY_S)
        with SyncClient(cluster.urls, actor="theirs") as client:
            for name in ("register-run-1", "register-run-2", "theirs"):
                client.submit_job(register_job(name, "", 3))
            attached = attached_to(RunOptions(attach=tuple(cluster.urls)))
            assert asyncio.run(leave_nothing(attached, "-run-1")) == []
            left = {job.name for job in client.jobs() if not job.finished}
    assert left == {"register-run-2", "theirs"}


def test_a_cluster_that_does_not_answer_is_told_before_anything_is_run() -> None:
    """With the addresses and what to look at."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(Unreachable, match=f"no server of {url} answers .* check the addresses"):
        asyncio.run(abilities_there(RunOptions(attach=(url,))))


def test_a_nemesis_without_its_hooks_is_refused_with_what_to_write(tmp_path: Path) -> None:
    """Without any hooks, none can be had."""
    bare = Attached([NOWHERE])
    assert all(lacking_for(bare, nemesis) for nemesis in NEMESES)
    assert lacking_for(bare, "kill-leader") == [
        "the hooks name 0 servers, it takes 1: name them in --hooks FILE"
    ]
    assert "without --attach" in lacking_for(bare, "power-cut")[0]
    hooks = tmp_path / "hooks.yaml"
    hooks.write_text(
        "servers: {one: {kill: a, start: b}, two: {url: 'http://b', kill: a}}\n"
        "network: {cut: a, heal: b}\n"
    )
    attached = Attached([NOWHERE], hooks=hooks)
    assert lacking_for(attached, "kill-leader") == [
        "give servers.one.url: it has to be known who leads",
        "give servers.two.start in the file of hooks",
    ]
    assert lacking_for(attached, "isolate-leader") == ["give network.mend in the file of hooks"]
    assert lacking_for(attached, "ring")[0].startswith("the hooks name 2 servers, it takes 3")


def test_what_cannot_be_had_there_is_skipped_with_its_reason(tmp_path: Path) -> None:
    """As on a machine that lacks something."""
    there = Abilities({}, workloads={"churn": "not ours"}, nemeses={"slow": "no hook"})
    runs = [
        RunOptions(workload=workload, nemesis=nemesis, attach=(NOWHERE,))
        for workload, nemesis in (("registers", "none"), ("jobs+churn", "none"), ("jobs", "slow"))
    ]
    skipped = [planned.skipped for planned in plan(runs, tmp_path, there)]
    assert skipped == ["", "churn: not ours", "slow: no hook"]


def test_hooks_that_cannot_be_read_are_a_problem_of_the_options(tmp_path: Path) -> None:
    """Told before anybody is asked."""
    problems = RunOptions(hooks=str(tmp_path / "nothing.yaml")).problems()
    assert len(problems) == 1
    assert "cannot be read" in problems[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--attach", NOWHERE), Exit.UNAVAILABLE, f"--attach: no server of {NOWHERE} answers"),
        (("--hooks", "nothing.yaml"), Exit.USAGE, "nothing.yaml cannot be read"),
        (("--attach", "gopher://x"), Exit.USAGE, "gopher://x"),
    ],
)
def test_the_command_refuses_a_cluster_that_cannot_be_used(
    arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    """Before anything is made."""
    result = CliRunner().invoke(cli, ["faults", "run", "--nemesis", "none", *arguments])
    assert result.exit_code == code, result.output
    assert said in result.stderr
