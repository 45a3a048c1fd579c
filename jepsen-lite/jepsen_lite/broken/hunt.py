"""Runs a broken build, seed by seed, until a violation is reported; and the unmodified build, whose
runs of the same kind must hold."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from jepsen_lite.broken.breakage import Breakage
from jepsen_lite.broken.build import install
from jepsen_lite.judge.verdict import Judgement, Verdict
from jepsen_lite.run.artefacts import TROUBLE, set_aside, tidy
from jepsen_lite.run.options import RunOptions, Stage, directory_of
from jepsen_lite.run.run import Report, run

RUN_S = 12.0
"""Of load. Short, because what a seed does not show another may."""
MOST_BROKEN_OFF = 3
"""Runs in a row without a verdict; then it is not for the seed that there is none."""
UNMODIFIED = "unmodified"
BUILDS = "builds"


class Try(msgspec.Struct, frozen=True):
    """A run of a broken build, or of the unmodified one."""

    options: RunOptions
    report: Report | None
    trouble: str = ""
    """Why there is no report."""

    @property
    def violations(self) -> list[Judgement]:
        judgements = self.report.judgements if self.report else []
        return [one for one in judgements if one.verdict is Verdict.VIOLATION]

    @property
    def holds(self) -> bool:
        return self.report is not None and not self.report.broken


class Hunted(msgspec.Struct, frozen=True):
    """What became of one breakage. The last of `tries` reported a violation if it was caught."""

    breakage: Breakage
    tries: list[Try]
    seconds: float
    """From the start of the first run to the last verdict."""

    @property
    def caught(self) -> bool:
        return bool(self.tries) and bool(self.tries[-1].violations)


Tell = Callable[[str, RunOptions, Stage], object]


class Hunt:
    """Runs below one directory. `tell` hears which build runs, how, and where the run is."""

    def __init__(
        self,
        base: Path,
        *,
        run_s: float = RUN_S,
        first_seed: int = 1,
        tell: Tell = lambda name, options, stage: None,
    ) -> None:
        self._base = base
        self._run_s = run_s
        self._first_seed = first_seed
        self._tell = tell

    async def hunt(self, breakage: Breakage, limit_s: float) -> Hunted:
        """One seed after the other until a violation is reported, or `limit_s` are over; the last
        run may go on beyond. Given up where run after run breaks off. Raises DoesNotFit."""
        options = self.options(breakage)
        if breakage.edits:
            coordctl = install(breakage.name, breakage.edits, self._base / BUILDS)
            options = msgspec.structs.replace(options, coordctl=coordctl)
        began = time.monotonic()
        tries: list[Try] = []
        seed = self._first_seed
        while not tries or time.monotonic() - began < limit_s:
            with _set(breakage.environ):
                tried = await self._run(breakage.name, msgspec.structs.replace(options, seed=seed))
            tries.append(tried)
            if tried.violations or _never_ends(tries):
                break
            seed += 1
        return Hunted(breakage, tries, time.monotonic() - began)

    async def control(self, hunted: Iterable[Hunted]) -> AsyncIterator[Try]:
        """The runs that reported a violation, each once, of the unmodified build on a machine that
        does not misbehave."""
        default = RunOptions()
        wanted: list[RunOptions] = []
        for one in hunted:
            if one.caught:
                options = msgspec.structs.replace(one.tries[-1].options, coordctl=default.coordctl)
                if options not in wanted:
                    wanted.append(options)
        for options in wanted:
            yield await self._run(UNMODIFIED, options)

    def options(self, breakage: Breakage) -> RunOptions:
        """Of its runs, but for seed and build."""
        return msgspec.convert(
            {
                "workload": breakage.workload,
                "nemesis": breakage.nemesis,
                "seconds": self._run_s,
                **breakage.options,
            },
            RunOptions,
        )

    async def _run(self, name: str, options: RunOptions) -> Try:
        directory = directory_of(self._base / name, options)
        set_aside(directory)
        try:
            report = await run(options, directory, lambda stage: self._tell(name, options, stage))
        except Exception as error:
            # A broken build may not even come up. That is no verdict, and the next seed is tried.
            directory.mkdir(parents=True, exist_ok=True)
            (directory / TROUBLE).write_text("".join(traceback.format_exception(error)))
            return Try(options, None, f"{type(error).__name__}: {error}")
        finally:
            tidy(directory)
        return Try(options, report)


def _never_ends(tries: Sequence[Try]) -> bool:
    last = tries[-MOST_BROKEN_OFF:]
    return len(last) == MOST_BROKEN_OFF and all(tried.report is None for tried in last)


@contextlib.contextmanager
def _set(environ: Mapping[str, str]) -> Iterator[None]:
    """These variables, for whatever is started within the block."""
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
