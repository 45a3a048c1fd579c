"""Recordings for tests of replay: scenarios written by hand, applied and written with digests."""

from __future__ import annotations

import io
from pathlib import Path

from coord.core.machine import apply
from coord.core.state import decode_state, encode_state, new_state
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent, ClusterConfigured, HeartbeatsSeen, LeaderElected
from coord.store.incident import IncidentFormat, IncidentReader, IncidentWriter, incident_header

HERE = Path(__file__).parent
TWO_FAILURES = HERE / "incidents" / "two_failures.jsonl"


def entries_of(path: Path) -> list[Entry]:
    with path.open("rb") as file:
        return [located.record.entry for located in IncidentReader(file, path.name)]


def recorded(
    entries: list[Entry],
    file_format: IncidentFormat = IncidentFormat.BINARY,
    start_index: int = 1,
) -> bytes:
    """An incident file of what the entries lead to, from `start_index` on."""
    state = new_state()
    start_state = b""
    records: list[Recorded] = []
    for entry in entries:
        if entry.index == start_index and start_index > 1:
            start_state = encode_state(state)
            state = decode_state(start_state)
        record = apply(state, entry)
        if entry.index >= start_index:
            records.append(record)
    return written(records, file_format, start_index, start_state)


def written(
    records: list[Recorded],
    file_format: IncidentFormat = IncidentFormat.BINARY,
    start_index: int = 1,
    start_state: bytes = b"",
) -> bytes:
    file = io.BytesIO()
    header = incident_header("c1", start_index, start_state, "0.0.1", 1)
    with IncidentWriter(file, header, file_format) as writer:
        for record in records:
            writer.write(record)
    return file.getvalue()


def quiet_entries(count: int, slots: int = 4) -> list[Entry]:
    """A cluster in which nothing but heartbeats happens."""
    events: list[AnyEvent] = [LeaderElected(1, 1), ClusterConfigured("c1")]
    beat = HeartbeatsSeen("node:1", tuple(range(slots)), (1,) * slots)
    events += [beat] * count
    return [
        Entry(index, 1, 1_000 + index, Origin("node:1", 1, index), event)
        for index, event in enumerate(events, 1)
    ]
