"""One schedule that somebody gives: read, checked against the log, executed once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from .findings import inverted_pairs
from .found import Found, Progress, StrategyProgress
from .incident import Incident
from .schedule import AgentCrash, AnyChange, LoseHosts, Pause, Reorder, Schedule, first_position
from .shrink import Execute

NAME = "the given schedule"


class BadSchedule(ValueError):
    """The text is no schedule, or not one for this log. The message names what is wrong."""


def parse_schedule(text: str) -> Schedule:
    """A schedule as JSON, or as `@file`. Raises BadSchedule."""
    given = text
    if text.startswith("@"):
        try:
            given = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSchedule(f"{text[1:]} cannot be read: {error}") from error
    try:
        schedule = msgspec.json.decode(given, type=Schedule)
    except msgspec.MsgspecError as error:
        raise BadSchedule(
            f"{error}; a schedule is "
            '{"changes":[{"type":"Flip","first":6,"second":14}]} with positions from 0'
        ) from error
    if not schedule.changes:
        raise BadSchedule("it changes nothing; `coordctl replay` tells the log as it is")
    return schedule


def check_schedule(incident: Incident, schedule: Schedule) -> None:
    """Raises BadSchedule when it speaks of entries or hosts that the log does not have."""
    size = len(incident.records)
    hosts = _hosts(incident)
    for change in schedule.changes:
        kind = type(change).__name__
        for name, position in _positions(change):
            if not 0 <= position < size:
                raise BadSchedule(
                    f"{name} of {kind} is {position}; the log has positions 0 to {size - 1}"
                )
        for late, early in inverted_pairs(change):
            if late >= early:
                raise BadSchedule(f"{kind} moves {late} after {early}, where it is already")
        if isinstance(change, Reorder):
            expected = list(range(change.start, change.start + len(change.order)))
            if sorted(change.order) != expected:
                raise BadSchedule(
                    f"order of Reorder must hold each of {change.start} to "
                    f"{change.start + len(change.order) - 1} once"
                )
        for host in _hosts_of(change):
            if host not in hosts:
                raise BadSchedule(f"{kind} is about host {host!r}, of which the log does not tell")


def _positions(change: AnyChange) -> list[tuple[str, int]]:
    names = ("at", "first", "second", "until_after", "again_after", "start")
    found = [(name, getattr(change, name)) for name in names if hasattr(change, name)]
    return found or [("position", first_position(change))]


def _hosts_of(change: AnyChange) -> tuple[str, ...]:
    if isinstance(change, LoseHosts):
        return change.hosts
    return (change.host,) if isinstance(change, AgentCrash | Pause) else ()


def _hosts(incident: Incident) -> dict[str, None]:
    told = [getattr(record.entry.event, "host", "") for record in incident.records]
    return dict.fromkeys([*incident.start_state().hosts, *told])


class GivenSchedule:
    """A search that tries one schedule."""

    def __init__(self, incident: Incident, schedule: Schedule, execute: Execute) -> None:
        check_schedule(incident, schedule)
        self._incident = incident
        self._schedule = schedule
        self._execute = execute
        self._progress = Progress((StrategyProgress(NAME),))

    def run(self, tick: Callable[[], None]) -> Iterator[Found]:
        """The one execution, if it breaks something."""
        started_s = time.process_time()
        run = self._execute(self._incident, self._schedule)
        cpu_s = time.process_time() - started_s
        consumed = 1000 * min(run.consumed, len(self._incident.records))
        share = consumed // len(self._incident.records)
        broke = run.violation is not None
        one = StrategyProgress(
            NAME, 1, int(broke), cpu_s, consumed_median=share, consumed_min=share,
            bound="this one schedule", finished=True,
        )  # fmt: skip
        note = "" if broke else "The schedule breaks nothing."
        self._progress = Progress((one,), 1, cpu_s, note=note)
        tick()
        if broke:
            yield Found(self._schedule, run, NAME, 1, cpu_s)

    def progress(self) -> Progress:
        """Before and after the one execution."""
        return self._progress
