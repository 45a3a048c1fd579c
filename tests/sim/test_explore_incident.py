"""What can be taken apart, and what is said of what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from coord_sim.explore.incident import (
    IncidentDiffers,
    IncidentTooShort,
    LogicUnknown,
    load,
    replayed,
)
from msgspec.structs import replace

from coord.model.incident import IncidentHeader
from coord.store.incident import IncidentCorrupt, IncidentTruncated

from .explored_stories import HISTORIES, two_hosts


def test_a_recorded_history_is_loaded_as_it_is() -> None:
    """Every entry had a digest, and every digest is what the replay derives."""
    incident = load(HISTORIES / "0.1.0-transcript-hang.jsonl")
    assert incident.verified == len(incident.records) == 63
    assert incident.index(0) == 1


def test_an_entry_that_replays_otherwise_is_named() -> None:
    story = two_hosts()
    records = [*story.records]
    records[3] = replace(records[3], digest="0" * 32)
    with pytest.raises(IncidentDiffers, match="entry 4") as refused:
        replayed(IncidentHeader("story", 1), b"", records)
    assert refused.value.index == 4


@pytest.mark.parametrize("count", [0, 1])
def test_it_takes_two_entries_for_another_order(count: int) -> None:
    with pytest.raises(IncidentTooShort, match=f"has {count} entries"):
        replayed(IncidentHeader("story", 1), b"", two_hosts().records[:count])


def test_rules_of_a_later_release_are_refused() -> None:
    with pytest.raises(LogicUnknown, match="version 99"):
        replayed(IncidentHeader("story", 1, logic_version=99), b"", two_hosts().records)


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "incident.log"
    path.write_bytes(b'{"type":"IncidentHeader","format":9}\n')
    with pytest.raises(IncidentCorrupt, match="format 9"):
        load(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "incident.log"
    path.write_bytes(b"")
    with pytest.raises(IncidentTruncated):
        load(path)


def test_a_start_state_of_another_index_is_refused() -> None:
    with pytest.raises(IncidentCorrupt, match="begins with 5"):
        replayed(IncidentHeader("story", 5), b"", two_hosts().records)
