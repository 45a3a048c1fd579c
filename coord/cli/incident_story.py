"""What the log tells of one incident: what led to it, and what was decided until it closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coord.cli.timeline import Item, Line, Narrowing, Timeline, only_counted
from coord.cli.why import Causes
from coord.client.errors import EventsGone
from coord.model.decisions import IncidentClosed, IncidentOpened
from coord.model.entities import Incident
from coord.model.ids import decision_cause

if TYPE_CHECKING:
    from coord.client import Client
    from coord.model.entry import Recorded

PAGE = 1_000
PAGES = 50
"""How far an incident is followed: one that waits for long has many heartbeats in it."""
CHAIN = 64
"""Entries before it that are looked up, one by one, by the causes that name them."""


class Story(msgspec.Struct, frozen=True):
    """`why` are the refs that led to it, oldest first, beginning with the evidence."""

    led_to_it: tuple[Item, ...]
    followed: tuple[Item, ...]
    why: tuple[str, ...]
    note: str = ""
    """What of it is not told, and why."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Those that the evidence names, each once."""
        named = [host for item in self.led_to_it for host in item.hosts]
        return tuple(dict.fromkeys(named))


async def read_story(client: Client, incident: Incident) -> Story:
    """From the log as far as it is kept."""
    try:
        span, note = await _span(client, incident)
    except EventsGone as error:
        return Story((), (), (), f"the log of it is not kept any more: {error}")
    causes = Causes()
    for recorded in span:
        causes.add(recorded)
    opening = _opening(span, incident)
    before: dict[int, Recorded] = {}
    try:
        await _look_up(client, incident.opened, causes, opening, before)
    except EventsGone as error:
        note = note or f"what led to it is not kept any more: {error}"
    refs = causes.behind(opening) if opening else frozenset[str]()
    first = [before[index] for index in sorted(before)]
    why = Timeline(Narrowing(everything=True, refs=refs), start_ms=incident.last_sign_ms)
    led_to_it = [item for recorded in [*first, *span[:1]] for item in why.add(recorded)]
    told = Timeline(Narrowing(incident.job), start_ms=incident.last_sign_ms)
    followed = [item for recorded in span for item in told.add(recorded)]
    lines = [item.ref for item in led_to_it if isinstance(item, Line) and item.ref in refs]
    return Story(tuple(led_to_it), tuple(followed), tuple(lines), note)


async def _span(client: Client, incident: Incident) -> tuple[list[Recorded], str]:
    """Entries from its opening to its closing, without those that only count, and what is left
    out."""
    found: list[Recorded] = []
    start = incident.opened
    for _ in range(PAGES):
        page = await client.events(start, PAGE)
        for recorded in page.events:
            if recorded.entry.index == incident.opened or not only_counted(recorded):
                found.append(recorded)
            if _closes(recorded, incident):
                return found, ""
        if not page.events:
            return found, ""
        start = page.next
    return found, f"told up to index {start - 1}; the rest: coordctl events --from {start}"


def _closes(recorded: Recorded, incident: Incident) -> bool:
    return any(
        isinstance(decision, IncidentClosed) and decision.incident == incident.incident
        for decision in recorded.decisions
    )


def _opening(span: list[Recorded], incident: Incident) -> str:
    """The decision that opened it."""
    for recorded in span[:1]:
        for ordinal, decision in enumerate(recorded.decisions):
            if isinstance(decision, IncidentOpened) and decision.incident == incident.incident:
                return decision_cause(recorded.entry.index, ordinal)
    return ""


async def _look_up(
    client: Client, opened: int, causes: Causes, opening: str, before: dict[int, Recorded]
) -> None:
    """Fetch what its causes name that stands before it, and what those name."""
    for _ in range(CHAIN if opening else 0):
        wanted = sorted(
            index
            for index in {int(ref.partition(".")[0]) for ref in causes.behind(opening)}
            if index < opened and index not in before
        )
        if not wanted:
            return
        page = await client.events(wanted[-1], 1)
        for recorded in page.events:
            before[recorded.entry.index] = recorded
            causes.add(recorded)


def why_text(story: Story) -> str:
    """`12 -> 40.0 -> 40.1`: indexes of the log, from the evidence to the incident."""
    return " -> ".join(story.why)
