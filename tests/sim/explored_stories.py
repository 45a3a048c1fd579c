"""Small incidents for the tests of the explorer, made of a story that is told entry by entry."""

from __future__ import annotations

from pathlib import Path

from coord_sim.explore.execute import Explored
from coord_sim.explore.incident import Incident, load, replayed

from coord.core.state import encode_state, new_state
from coord.model.entry import Origin
from coord.model.events import AnyEvent, HeartbeatsSeen, NoteAdded, TaskExited, TaskReaped
from coord.model.incident import IncidentHeader
from coord.model.settings import Settings
from tests.fleet_story import Story

HISTORIES = Path(__file__).parent.parent / "histories"

QUICK = Settings(
    lease_ms=3_000, heartbeat_ms=500, suspect_ms=1_500, fence_ms=1_000, unkillable_ms=2_000,
    breaker_window_ms=3_000,
)  # fmt: skip


def incident_of(story: Story) -> Incident:
    assert encode_state(new_state())
    return replayed(IncidentHeader("story", 1), b"", story.records)


def explored(story: Story) -> Explored:
    return Explored(incident_of(story))


def history(name: str) -> Incident:
    return load(HISTORIES / f"0.1.0-{name}.jsonl")


def two_hosts() -> Story:
    """A gang of two, one rank on each host, that has made a step."""
    story = Story(hosts=2, settings=QUICK)
    story.submit("d", 2, grace_ms=1_000)
    story.wait(500)
    story.all_step("d", 1)
    return story


def crash_and_restart() -> Story:
    """One rank dies, the other one is stopped, both start again."""
    story = two_hosts()
    story.exit("d/trainer/0#1", 1)
    story.wait(1_000)
    story.all_step("d", 2)
    return story


def position(story: Story, kind: type, nth: int = 0) -> int:
    """Of the nth event of that kind."""
    found = [at for at, record in enumerate(story.records) if isinstance(record.entry.event, kind)]
    return found[nth]


def note(story: Story, client: str, text: str, seen_index: int = 0) -> int:
    """A note of a client that has seen so much; returns its position."""
    event: AnyEvent = NoteAdded(client, "d", text)
    seq = sum(1 for record in story.records if record.entry.origin.actor == f"client:{client}") + 1
    story.add(Origin(f"client:{client}", 0, seq, seen_index), event)
    return len(story.records) - 1


__all__ = [
    "QUICK", "HeartbeatsSeen", "TaskExited", "TaskReaped", "crash_and_restart", "explored",
    "history", "incident_of", "note", "position", "two_hosts",
]  # fmt: skip
