"""Several runs: which are made, which are made again, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from jepsen_lite.history.journal import HistoryWriter
from jepsen_lite.judge.verdict import Judgement, Verdict
from jepsen_lite.run.abilities import Abilities
from jepsen_lite.run.campaign import Campaign, Done, Planned, every_pair, names, plan
from jepsen_lite.run.figures import Figures
from jepsen_lite.run.options import RunOptions, Stage
from jepsen_lite.run.run import Report

from coord import __version__

EVERYTHING = Abilities({})


class Runs:
    """Carries out runs at once: each leaves a history and a verdict. `verdicts` by nemesis, else
    it holds; `raises` by nemesis."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.verdicts: dict[str, Verdict] = {}
        self.raises: dict[str, Exception] = {}
        self.hangs = ""
        self.hanging = asyncio.Event()

    async def __call__(
        self, options: RunOptions, directory: Path, tell: Callable[[Stage], object]
    ) -> Report:
        directory.mkdir(parents=True)  # noqa: ASYNC240
        HistoryWriter(directory / "history.jsonl", {"seed": options.seed}).close()
        self.made.append(f"{options.workload} {options.nemesis} {options.seed}")
        tell(Stage("load", 0.5, 10, 1))
        if options.nemesis == self.hangs:
            self.hanging.set()
            await asyncio.Event().wait()
        if options.nemesis in self.raises:
            raise self.raises[options.nemesis]
        verdict = self.verdicts.get(options.nemesis, Verdict.LINEARIZABLE)
        report = Report(
            options,
            options.command(),
            __version__,
            Figures(1, 1, 0, 0, 0, 0.0, 1.0),
            [Judgement("a promise", verdict)],
            str(directory),
            1.0,
        )
        (directory / "verdict.json").write_bytes(msgspec.json.encode(report))
        return report


def planned(base: Path, workload: str, nemesis: str, **more: float) -> list[Planned]:
    options = msgspec.structs.replace(RunOptions(), **more)
    return plan(every_pair(workload, nemesis, [options.seed], options), base, EVERYTHING)


async def campaign(runs: Runs, planned: list[Planned], *, keep_going: bool = False) -> list[Done]:
    made = Campaign(planned, keep_going=keep_going, how=runs)
    await made.run()
    return made.done


def test_commas_make_runs_and_plus_joins_within_one() -> None:
    pairs = every_pair("registers,jobs+watches", "kill-leader,slow", [4, 5], RunOptions())
    assert [(one.workload, one.nemesis, one.seed) for one in pairs] == [
        (workload, nemesis, seed)
        for seed in (4, 5)
        for workload in ("registers", "jobs+watches")
        for nemesis in ("kill-leader", "slow")
    ]


def test_all_stands_for_every_one_once() -> None:
    assert names("b,all", ["a", "b"]) == ["b", "a"]


async def test_every_run_that_holds_is_followed_by_the_next(tmp_path: Path) -> None:
    runs = Runs()
    done = await campaign(runs, planned(tmp_path, "registers,jobs", "slow"))
    assert [one.verdict for one in done] == ["holds", "holds"]
    assert (tmp_path / "jobs-slow-1" / "report.html").exists()


@pytest.mark.parametrize("verdict", [Verdict.VIOLATION, Verdict.UNKNOWN])
async def test_the_first_that_does_not_hold_ends_it(tmp_path: Path, verdict: Verdict) -> None:
    """Unless it is told to keep going."""
    runs = Runs()
    runs.verdicts["slow"] = verdict
    done = await campaign(runs, planned(tmp_path, "registers", "slow,lossy"))
    assert [one.verdict for one in done] == [verdict]
    done = await campaign(runs, planned(tmp_path, "registers", "slow,lossy"), keep_going=True)
    assert [one.verdict for one in done] == [verdict, "holds"]
    assert [one.bad for one in done] == [True, False]


async def test_what_was_judged_is_not_run_again(tmp_path: Path) -> None:
    runs = Runs()
    await campaign(runs, planned(tmp_path, "registers", "slow"))
    done = await campaign(runs, planned(tmp_path, "registers", "slow,lossy"))
    assert runs.made == ["registers slow 1", "registers lossy 1"]
    assert [one.before for one in done] == [True, False]


async def test_other_options_make_it_run_again_and_nothing_is_lost(tmp_path: Path) -> None:
    runs = Runs()
    await campaign(runs, planned(tmp_path, "registers", "slow"))
    done = await campaign(runs, planned(tmp_path, "registers", "slow", rate=7.0))
    assert len(runs.made) == 2
    assert done[0].aside == tmp_path / "registers-slow-1.before-1"
    assert (done[0].aside / "verdict.json").exists()


async def test_a_run_that_was_interrupted_is_made_anew(tmp_path: Path) -> None:
    """What it had recorded is kept beside it."""
    runs = Runs()
    runs.hangs = "lossy"
    hanging = Campaign(planned(tmp_path, "registers", "slow,lossy"), how=runs)
    task = asyncio.create_task(hanging.run())
    async with asyncio.timeout(10):
        await runs.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.under_way is not None
    assert hanging.under_way.options.nemesis == "lossy"
    assert [one.verdict for one in hanging.done] == ["holds"]
    runs.hangs = ""
    done = await campaign(runs, planned(tmp_path, "registers", "slow,lossy"))
    assert [one.before for one in done] == [True, False]
    assert (tmp_path / "registers-lossy-1.before-1" / "history.jsonl").exists()


async def test_a_run_that_breaks_off_fails_and_says_why(tmp_path: Path) -> None:
    """It has no verdict, so it is made again the next time."""
    runs = Runs()
    runs.raises["slow"] = ExceptionGroup("some", [OSError("no room"), ValueError("no sense")])
    done = await campaign(runs, planned(tmp_path, "registers", "slow,lossy"), keep_going=True)
    assert [one.verdict for one in done] == ["broke off", "holds"]
    assert done[0].bad
    assert done[0].trouble == "OSError: no room; ValueError: no sense"
    assert "no room" in (tmp_path / "registers-slow-1" / "trouble.txt").read_text()
    runs.raises.clear()
    again = await campaign(runs, planned(tmp_path, "registers", "slow,lossy"))
    assert [(one.verdict, one.before) for one in again] == [("holds", False), ("holds", True)]


async def test_what_the_machine_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    runs = Runs()
    lacking = Abilities({"disk.full": "no mount; mounting a tmpfs needs root"})
    pairs = every_pair("registers", "disk-full+slow,slow", [1], RunOptions())
    done = await campaign(runs, plan(pairs, tmp_path, lacking))
    assert [one.verdict for one in done] == ["skipped", "holds"]
    assert done[0].planned.skipped == "disk.full: no mount; mounting a tmpfs needs root"
    assert not done[0].bad
    assert runs.made == ["registers slow 1"]
