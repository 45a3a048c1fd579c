"""A run as it goes: a moving line on a terminal, one line for each run that is over elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from coord.cli.wording import age_text
from jepsen_lite.cli.telling import line_of
from jepsen_lite.run.campaign import Done, Planned
from jepsen_lite.run.options import Stage

BESIDES_S = 20.0
"""What start, healing and judging of a run take, until one has been seen."""


class Watching:
    """Everything goes to stderr. To be entered; `tell` and `ended` are for a Campaign."""

    def __init__(self, planned: list[Planned]) -> None:
        self._left = [one for one in planned if not one.skipped]
        self._runs = len(self._left)
        self._several = len(planned) > 1
        self._besides_s = BESIDES_S
        self._began_s = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Watching:
        if not sys.stderr.isatty():
            return self
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("starting", total=1.0, told="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def tell(self, planned: Planned, stage: Stage) -> None:
        """Where the run under way is."""
        if planned in self._left:
            self._left.remove(planned)
            self._began_s = time.monotonic()
        if self._bar is None:
            return
        number = f"{self._runs - len(self._left)}/{self._runs} " if self._several else ""
        told = (
            f"{stage.what}, {stage.operations:,} operations, {stage.faults:,} faults, "
            f"{age_text(int(1000 * self._remaining_s(planned)))} left"
        )
        self._bar.update(
            self._task, description=number + planned.name, completed=stage.share, told=told
        )

    def ended(self, done: Done) -> None:
        """A run is over, or was not necessary."""
        if done.planned in self._left:
            self._left.remove(done.planned)
        elif done.report is not None:
            self._besides_s = max(done.report.seconds - done.planned.options.seconds, 0.0)
        if self._several or done.aside:
            self.say(line_of(done))

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._bar is None:
            click.echo(line, err=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False)

    def _remaining_s(self, planned: Planned) -> float:
        """Of all runs: the load is as long as asked for, the rest as the last time."""
        passed_s = time.monotonic() - self._began_s
        this_s = max(planned.options.seconds + self._besides_s - passed_s, 0.0)
        return this_s + sum(one.options.seconds + self._besides_s for one in self._left)
