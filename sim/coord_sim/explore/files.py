"""What is kept of a finding on disk: the smallest log, the bad order as a log of its own, the
schedule between the two, and the report."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coord.core.invariants import violations
from coord.core.machine import apply
from coord.core.state import decode_state
from coord.model.entry import Recorded
from coord.store.incident import IncidentFormat, IncidentWriter, incident_header

from .findings import Finding
from .incident import Incident

FORMATS = ((IncidentFormat.BINARY, "log"), (IncidentFormat.JSON_LINES, "jsonl"))


def write_finding(directory: Path, finding: Finding) -> tuple[str, ...]:
    """Write a finding's files; returns each with what it is for, in words.

    `incident.*` is the good order and replays as it is; `broken.*` is the bad one, entry by entry
    as the state machine saw it; both in both formats.
    """
    directory.mkdir(parents=True, exist_ok=True)
    incident = finding.incident
    _write(directory, "incident", incident, incident.records)
    (directory / "schedule.json").write_bytes(msgspec.json.encode(finding.schedule) + b"\n")
    told = [
        f"{directory}/incident.log: the good order (the same as JSON lines beside it)",
        f"{directory}/schedule.json: what to change of it, for --schedule",
    ]
    violation = finding.run.violation
    bad = finding.run.records[: violation.at + 1] if violation else finding.run.records
    if replays(incident, bad):
        _write(directory, "broken", incident, bad)
        shown = "ends in the broken state" if shows(incident, bad) else "shows each decision"
        told.append(f"{directory}/broken.log: the bad order; `coordctl replay` {shown}")
    return tuple(told)


def replays(incident: Incident, records: tuple[Recorded, ...]) -> bool:
    """Whether these entries alone, from the same start, lead to what was recorded of them; an
    execution that lost part of the state on its way (in a snapshot) says more than its entries."""
    state = decode_state(incident.start)
    return all(apply(state, record.entry) == record for record in records)


def shows(incident: Incident, records: tuple[Recorded, ...]) -> bool:
    """Whether the state after them breaks an invariant, which `coordctl replay` will say."""
    state = decode_state(incident.start)
    for record in records:
        apply(state, record.entry)
    return bool(violations(state))


def _write(directory: Path, name: str, incident: Incident, records: tuple[Recorded, ...]) -> None:
    header = incident.header
    again = incident_header(
        header.cluster,
        header.start_index,
        incident.start if header.start_index > 1 else b"",
        header.coord_version,
        header.logic_version,
    )
    for file_format, suffix in FORMATS:
        with (
            (directory / f"{name}.{suffix}").open("wb") as file,
            IncidentWriter(file, again, file_format) as writer,
        ):
            for record in records:
                writer.write(record)
