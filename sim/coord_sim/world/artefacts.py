"""What a failing seed leaves behind for whoever examines it: `sim-failure-<seed>/`."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from coord import __version__
from coord.cli.timeline import Narrowing, Timeline
from coord.cli.timeline_text import item_text
from coord.model.entry import Recorded
from coord.store.incident import IncidentWriter, incident_header
from coord_sim.world.outcome import Outcome
from coord_sim.world.report import ReportInput, report_html

INCIDENT, TRACE, REPORT, REPEAT = "incident.log", "trace.txt", "report.html", "repeat.txt"
HERE = Path(__file__).resolve()
TOLD_ENTRIES = 400
"""Of the newest entries, this many are told in the report."""


class Happening(NamedTuple):
    """A fault, or the end of one, as it was brought about."""

    at_ms: int
    name: str
    about: str


class History(NamedTuple):
    """A node's log as it stood when the run ended: the state before its first entry, and all."""

    cluster: str
    start_index: int
    start_state: bytes
    records: Sequence[Recorded]


class Recording(NamedTuple):
    """A run with everything kept."""

    outcome: Outcome
    trace: Sequence[str]
    happenings: Sequence[Happening]
    history: History | None
    """None when no node had applied anything."""


def write_artefacts(recording: Recording, under: Path) -> Path:
    """Write the directory, replacing what an earlier run of the seed left; returns it."""
    directory = under / f"sim-failure-{recording.outcome.seed}"
    directory.mkdir(parents=True, exist_ok=True)
    repeat = recording.outcome.repeat_line(commit_or_version())
    (directory / REPEAT).write_text(f"{repeat}\n")
    with (directory / TRACE).open("w") as file:
        file.writelines(f"{line}\n" for line in recording.trace)
    if recording.history is not None:
        (directory / INCIDENT).write_bytes(incident_bytes(recording.history))
    told = told_entries(recording.history.records if recording.history else ())
    (directory / REPORT).write_text(
        report_html(
            ReportInput(
                outcome=recording.outcome,
                repeat=repeat,
                happenings=recording.happenings,
                entries=told,
                trace=list(recording.trace)[-TOLD_ENTRIES:],
                incident=INCIDENT if recording.history is not None else "",
            )
        )
    )
    return directory


def incident_bytes(history: History) -> bytes:
    """The log as `coordctl replay` and `coordctl sim explore` read it."""
    file = io.BytesIO()
    header = incident_header(
        history.cluster, history.start_index, history.start_state, __version__, 1
    )
    with IncidentWriter(file, header) as writer:
        for record in history.records:
            writer.write(record)
    return file.getvalue()


def told_entries(records: Iterable[Recorded], newest: int = TOLD_ENTRIES) -> list[str]:
    """The last entries in words, without what is only routine."""
    all_of_it = list(records)
    if not all_of_it:
        return []
    timeline = Timeline(Narrowing(first=max(1, all_of_it[-1].entry.index - newest)))
    return [item_text(item) for record in all_of_it for item in timeline.add(record)]


def commit_or_version(here: Path = HERE) -> str:
    """The commit of the checkout that this file belongs to, `-dirty` behind it where something was
    changed since; the version where it is installed, be it below somebody else's checkout."""
    if _git(here.parent, "ls-files", "--error-unmatch", here.name):
        commit = _git(here.parent, "describe", "--always", "--dirty", "--exclude=*")
        if commit:
            return commit
    return f"version {__version__}"


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; empty where it fails or is not there."""
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
