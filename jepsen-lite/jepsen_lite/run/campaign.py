"""Several runs, one after the other, that can be interrupted and gone on with."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from coord import __version__
from jepsen_lite.nemeses.catalogue import NEMESES
from jepsen_lite.report.run_page import write_page
from jepsen_lite.report.wording import HOLDS, verdict_of
from jepsen_lite.run.abilities import Abilities
from jepsen_lite.run.artefacts import TROUBLE, VERDICT, set_aside, tidy
from jepsen_lite.run.options import RunOptions, Stage, directory_of
from jepsen_lite.run.run import Report, run
from jepsen_lite.workloads.catalogue import WORKLOADS

ALL = "all"
SKIPPED = "skipped"
BROKE_OFF = "broke off"


class Planned(msgspec.Struct, frozen=True):
    """A run to be. `skipped` says why this machine cannot; empty when it can."""

    options: RunOptions
    directory: Path
    skipped: str = ""

    @property
    def name(self) -> str:
        return f"{self.options.workload} x {self.options.nemesis}, seed {self.options.seed}"


class Done(msgspec.Struct, frozen=True):
    """What became of a run that was planned."""

    planned: Planned
    report: Report | None = None
    trouble: str = ""
    """Why there is no report, though it was not skipped."""
    before: bool = False
    """It was run by an earlier campaign, with the same options."""
    aside: Path | None = None
    """Where the folder went that was in its place."""

    @property
    def verdict(self) -> str:
        """`holds`, `violation`, `unknown`, `skipped` or `broke off`."""
        if self.planned.skipped:
            return SKIPPED
        if self.report is None:
            return BROKE_OFF
        return verdict_of(self.report.judgements)

    @property
    def bad(self) -> bool:
        return self.verdict not in (HOLDS, SKIPPED)


def names(words: str, every: Iterable[str]) -> list[str]:
    """Of `a,b+c` each part once; `all` stands for every one."""
    found: list[str] = []
    for word in words.split(","):
        found += every if word.strip() == ALL else [word.strip()]
    return list(dict.fromkeys(found))


def every_pair(
    workloads: str, nemeses: str, seeds: Sequence[int], options: RunOptions
) -> list[RunOptions]:
    """Each workload under each nemesis, for one seed after the other."""
    return [
        msgspec.structs.replace(options, workload=workload, nemesis=nemesis, seed=seed)
        for seed in seeds
        for workload in names(workloads, WORKLOADS)
        for nemesis in names(nemeses, NEMESES)
    ]


def plan(runs: Iterable[RunOptions], base: Path, abilities: Abilities) -> list[Planned]:
    """The options must have no `problems`."""
    return [
        Planned(
            options,
            directory_of(base, options),
            "; ".join(abilities.against_run(options.workload, options.nemesis)),
        )
        for options in runs
    ]


Run = Callable[[RunOptions, Path, Callable[[Stage], object]], Awaitable[Report]]
"""What carries out one run: see `run.run`."""


class Campaign:
    """Runs what is planned. `tell` hears where the run under way is, `ended` each that is over.

    A run that has a verdict from the same options and version is not run again. Without
    `keep_going` the first that is not good ends it all. Cancelled, everything ends; `under_way` is
    then the run that was interrupted.
    """

    def __init__(
        self,
        planned: Sequence[Planned],
        *,
        keep_going: bool = False,
        how: Run = run,
        tell: Callable[[Planned, Stage], object] = lambda planned, stage: None,
        ended: Callable[[Done], object] = lambda done: None,
    ) -> None:
        self.planned = planned
        self.done: list[Done] = []
        self.under_way: Planned | None = None
        self._keep_going = keep_going
        self._how = how
        self._tell = tell
        self._ended = ended

    async def run(self) -> None:
        for planned in self.planned:
            self.under_way = planned
            done = Done(planned) if planned.skipped else self._from_before(planned)
            done = done or await self._run(planned)
            self.done.append(done)
            self.under_way = None
            self._ended(done)
            if done.bad and not self._keep_going:
                return

    def _from_before(self, planned: Planned) -> Done | None:
        report = report_in(planned.directory)
        if report is None or report.version != __version__ or report.options != planned.options:
            return None
        return Done(planned, report, before=True)

    async def _run(self, planned: Planned) -> Done:
        aside = set_aside(planned.directory)
        try:
            report = await self._how(
                planned.options, planned.directory, lambda stage: self._tell(planned, stage)
            )
        except Exception as error:
            # One run that fails must not take the others with it; it fails the campaign.
            planned.directory.mkdir(parents=True, exist_ok=True)
            (planned.directory / TROUBLE).write_text("".join(traceback.format_exception(error)))
            return Done(planned, trouble="; ".join(_reasons(error)), aside=aside)
        finally:
            tidy(planned.directory)
        await asyncio.to_thread(write_page, report, planned.directory)
        return Done(planned, report, aside=aside)


def report_in(directory: Path) -> Report | None:
    """Of a run that came to its end there; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode((directory / VERDICT).read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError):
        return None


def _reasons(error: BaseException) -> Iterator[str]:
    """What went wrong, without the groups around it."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _reasons(one)
    else:
        yield f"{type(error).__name__}: {error}"
