"""An exploration from its search to its report: findings kept once, shrunk, confirmed and told."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from .confirm import Confirmer, confirmed
from .files import write_finding
from .findings import Finding, Findings, merged
from .found import Found, Progress
from .schedule import Schedule
from .shrink import TRIALS, Execute, shrink
from .span import Span
from .telling import FindingTold, Report, coverage_told, finding_told

INLINE_BYTES = 1_500
"""A longer schedule does not fit a command line that people copy; a file is to be written."""


class Search(Protocol):
    """What yields executions that break something, and says how far it is."""

    def run(self, tick: Callable[[], None]) -> Iterator[Found]:
        """`tick` is called now and then, whether or not anything is found."""
        ...

    def progress(self) -> Progress: ...


class Asked(msgspec.Struct, frozen=True):
    """What somebody asked for. Of `budget_s` and `schedules` one is set; `out` is a directory for
    the files of each finding, None for none."""

    seed: int = 1
    budget_s: float | None = None
    schedules: int | None = None
    budget_text: str = ""
    out: Path | None = None
    repeat_options: tuple[str, ...] = ()
    """Options that choose the entries, for the command that repeats a finding."""


class Exploration:
    """One run. `search` until it ends or the caller stops, then `report`, once."""

    def __init__(
        self,
        span: Span,
        asked: Asked,
        search: Search,
        execute: Execute,
        confirmer: Confirmer | None = None,
    ) -> None:
        self._span = span
        self.asked = asked
        self._search = search
        self._execute = execute
        self._confirmer = confirmer
        self.findings = Findings(span.incident)
        self.interrupted = False
        self.unwritten: list[str] = []
        """What could not be kept on disk, and why."""
        self.raised: Exception | None = None
        """What ended the search early: code that is explored may do what it never should."""

    def search(self, tick: Callable[[], None] = lambda: None) -> Iterator[Finding]:
        """Every finding that is the first of its kind, as it is found. Until it is stopped by
        KeyboardInterrupt, which `interrupted` then says, or by an error, which `raised` holds."""
        try:
            for found in self._search.run(tick):
                finding = self.findings.add(found)
                if finding is not None:
                    yield finding
        except KeyboardInterrupt:
            self.interrupted = True
        except Exception as error:
            self.raised = error

    def progress(self) -> Progress:
        return self._search.progress()

    def opening(self) -> Report:
        """The report before anything was tried."""
        return self._report(())

    def report(
        self,
        trials: int = TRIALS,
        go_on: Callable[[], bool] = lambda: True,
        shrinking: Callable[[int, int], None] = lambda done, of: None,
    ) -> Report:
        """Shrink what was found, as far as `trials` for each and `go_on` allow, and tell it."""
        original = len(self._span.incident.records)
        shrunk: list[Finding] = []
        found = list(self.findings)
        try:
            for done, finding in enumerate(found):
                shrinking(done, len(found))
                shrunk.append(shrink(finding, self._execute, trials, go_on))
        except KeyboardInterrupt:
            self.interrupted = True
            shrunk += found[len(shrunk) :]
        kept = confirmed(merged(shrunk), None if self.interrupted else self._confirmer)
        told = tuple(
            self._told(finding, number, original) for number, finding in enumerate(kept, 1)
        )
        return self._report(told)

    def _told(self, finding: Finding, number: int, original: int) -> FindingTold:
        files: tuple[str, ...] = ()
        if self.asked.out is not None:
            directory = self.asked.out / f"finding-{number}"
            try:
                files = write_finding(directory, finding)
            except OSError as error:
                self.unwritten.append(f"{directory} could not be written: {error}")
        if files:
            repeat = repeat_command(str(directory / "incident.log"), directory / "schedule.json")
        else:
            schedule = finding.origin or finding.schedule
            file = self._span.incident.name
            repeat = repeat_command(file, schedule, self.asked.repeat_options)
        return finding_told(finding, number, original, repeat=repeat, files=files)

    def _report(self, findings: tuple[FindingTold, ...]) -> Report:
        incident, progress = self._span.incident, self.progress()
        timed = self.asked.schedules is None
        notes = [*self._span.notes, *((progress.note,) if progress.note else ()), *self.unwritten]
        if self.raised is not None:
            notes.append(
                f"The search ended early, since an execution raised {self.raised!r}; applying an "
                "event never may. Run it again as `coordctl --debug ...` to see where."
            )
        return Report(
            file=incident.name,
            cluster=incident.header.cluster,
            coord_version=incident.header.coord_version,
            first_index=incident.header.start_index,
            entries=len(incident.records),
            entries_in_file=self._span.entries,
            verified=self._span.verified,
            lasted_ms=incident.records[-1].now_ms - incident.records[0].now_ms,
            seed=self.asked.seed,
            budget=self.asked.budget_text,
            schedules=progress.schedules,
            findings=findings,
            coverage=coverage_told(progress, timed),
            notes=tuple(notes),
            beyond=self.findings.beyond,
            interrupted=self.interrupted,
            took_s=round(progress.cpu_s, 2) if timed else None,
        )


def repeat_command(file: str, schedule: Schedule | Path, options: tuple[str, ...] = ()) -> str:
    """The command line that executes a schedule again, to be copied into a shell."""
    if isinstance(schedule, Path):
        given = f"@{schedule}"
    else:
        given = msgspec.json.encode(schedule).decode()
        if len(given) > INLINE_BYTES:
            return ""
    words = ["coordctl", "sim", "explore", file, *options, "--schedule", given]
    return " ".join(shlex.quote(word) for word in words)
