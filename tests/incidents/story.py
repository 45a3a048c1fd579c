"""Tells an incident to the core in the language of transcripts, hours at a time, and keeps the log
as JSON lines that `coordctl replay` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from coord_sim.core_world.driver import Driver

from coord import __version__
from coord.core.invariants import violations
from coord.core.state import State
from coord.model.decisions import Decision
from coord.model.entry import Recorded
from coord.model.incident import IncidentHeader
from tests.core.transcript import Transcript

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

Kind = TypeVar("Kind", bound=Decision)


class Story:
    """One incident as it goes on. `title` and `facts` stand at the head of its file."""

    def __init__(self, title: str, facts: Sequence[str], settings: str = "") -> None:
        self.title = title
        self.facts = tuple(facts)
        self._transcript = Transcript()
        self._transcript.driver = Driver(twin=False, check=False)
        self.notes: dict[int, str] = {}
        self.do("leader 1")
        # Hours pass between two entries, in which nothing happened but beats.
        self.do(f"configure logic=2 max_step_ms={24 * HOUR_MS} {settings}")

    @property
    def state(self) -> State:
        return self._transcript.driver.state

    @property
    def records(self) -> list[Recorded]:
        return self._transcript.driver.records

    def do(self, *lines: str) -> None:
        for line in lines:
            self._transcript.command(line)

    def note(self, text: str) -> None:
        """What the source says of what follows, in own words."""
        self.notes[self.state.meta.applied_index + 1] = text

    def hosts(self, names: Sequence[str], more: str = "devices=8") -> None:
        for name in names:
            self.do(f"host {name} {more}")

    def wait(self, duration_ms: int, but: Sequence[str] = ()) -> None:
        """Time passes, in which all live hosts but these beat; then silence is judged."""
        self.do(f"+{duration_ms}", f"beat all but {' '.join(but)}" if but else "beat all", "tick")

    def silent(self, names: Sequence[str], duration_ms: int = 4_000) -> None:
        """These hosts say nothing for so long; everybody else is well."""
        for _ in range(duration_ms // 500):
            self.wait(480, names)

    def gang(self, key: str) -> int:
        """Its generation now."""
        return self.state.gangs[key].generation

    def train(self, key: str, step: int) -> None:
        """Every task of the generation starts, where it has not, and finishes the step."""
        tasks = f"{key}/*#{self.gang(key)}"
        if self.state.gangs[key].phase == "starting":
            self.do(f"started {tasks}")
        self.do(f"progress {tasks} step={step}")

    def resume(self, key: str, step: int, but: Sequence[str] = ()) -> None:
        """The next generation is placed, sooner or later, starts, and finishes the step."""
        for _ in range(60):
            if self.state.gangs[key].phase == "starting":
                break
            self.wait(2_000, but)
        self.train(key, step)

    def save(self, key: str, step: int) -> None:
        self.do(f"begin {key}/0#{self.gang(key)} step={step}")
        self.do(f"shard {key}/*#{self.gang(key)} step={step}")

    def gone(self, key: str, but: Sequence[int] = ()) -> None:
        """What is left of a generation that is told to stop ends, and is reaped."""
        live = [self.state.tasks[name] for name in self.state.gangs[key].live]
        for task in live:
            if task.status == "stopping" and task.index not in but:
                self.do(f"exited {task.key} signal=15 expected")
        for task in live:
            if task.index not in but:
                self.do(f"reaped {task.key}")


def lines_of(story: Story) -> bytes:
    """The log as a person might have written it: without digests, so that what is asserted of it
    is all that it promises."""
    header = IncidentHeader("c", 1, coord_version=__version__, logic_version=2)
    told = [msgspec.json.encode(header), f"# {story.title}".encode()]
    told += [f"# {fact}".encode() for fact in story.facts]
    for record in story.records:
        entry = record.entry
        if entry.index in story.notes:
            told.append(f"# {story.notes[entry.index]}".encode())
        told.append(
            msgspec.json.encode({"entry": {"wall_ms": entry.wall_ms, "term": entry.term,
                                           "origin": entry.origin, "event": entry.event}})
        )  # fmt: skip
    return b"\n".join(told) + b"\n"


class Replayed:
    """What the core makes of a kept log."""

    def __init__(self, records: list[Recorded], state: State) -> None:
        self.records = records
        self.state = state
        assert violations(state) == []

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [one for record in self.records for one in record.decisions if isinstance(one, kind)]


def write(story: Story, path: Path) -> None:
    path.write_bytes(lines_of(story))
