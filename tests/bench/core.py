"""Figures of the state machine and of replay: one process, no I/O but the file that is replayed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from coord import __version__
from coord.core.machine import apply
from coord.core.state import new_state
from coord.model.entry import Recorded
from coord.model.events import (
    CheckpointBegun,
    HeartbeatsSeen,
    LaunchFailed,
    ProgressReported,
    ShardSaved,
    TaskExited,
    TaskReaped,
    TaskStarted,
    TaskUnkillable,
)
from coord.store.incident import IncidentWriter, incident_header
from tests.bench.figures import Figure, reference_s
from tests.fleet_story import Story

TASK_EVENTS = (
    CheckpointBegun,
    LaunchFailed,
    ProgressReported,
    ShardSaved,
    TaskExited,
    TaskReaped,
    TaskStarted,
    TaskUnkillable,
)


def measure(runs: int) -> list[Figure]:
    """Apply of a task event, and replay of heartbeats and of everything else."""
    busy = busy_story()
    quiet = quiet_story()
    apply_us = Figure("core: apply of a task event", "us", 60, True, [], [])
    events = Figure("replay: events other than heartbeats", "1/s", 20_000, False, [], [])
    beats = Figure("replay: heartbeats", "1/s", 100_000, False, [], [])
    apply_us.note = f"mean over {_count(busy.records, TASK_EVENTS):,} events, 256 tasks on 64 hosts"
    events.note = "`coordctl replay FILE`, all of its time"
    beats.note = f"the same; frames of {len(quiet.state.hosts):,} hosts"
    with tempfile.TemporaryDirectory() as directory:
        busy_file = Path(directory) / "busy.log"
        quiet_file = Path(directory) / "quiet.log"
        write(busy, busy_file)
        write(quiet, quiet_file)
        for _ in range(runs):
            apply_us.references.append(reference_s())
            apply_us.values.append(task_event_us(busy.records))
            events.references.append(reference_s())
            events.values.append(_other_events(busy.records) / replay_s(busy_file))
            beats.references.append(reference_s())
            beats.values.append(_heartbeats(quiet.records) / replay_s(quiet_file))
    return [apply_us, events, beats]


def busy_story() -> Story:
    """64 hosts of 4 devices run jobs of 32 ranks that step, save, fail and end."""
    story = Story(hosts=64, devices=4)
    for round_ in range(12):
        for job in range(8):
            story.submit(f"job-{round_}-{job}", 32)
        story.obey()
        for step in range(1, 9):
            story.wait(500)
            for job in range(8):
                story.all_step(f"job-{round_}-{job}", step)
        for job in range(8):
            story.checkpoint(f"job-{round_}-{job}", 8)
        failing = next(task for task in sorted(story.running) if task.startswith(f"job-{round_}-0"))
        story.exit(failing, 0, 9)
        story.wait(2_000)
        for task in sorted(story.running):
            story.exit(task)
        story.wait(1_000)
    return story


def quiet_story() -> Story:
    """1,000 hosts that do nothing but live."""
    story = Story(hosts=1_000)
    story.wait(2_000_000, every_ms=1_000)
    return story


def task_event_us(records: list[Recorded]) -> float:
    """Microseconds a task event, over a whole history applied anew."""
    state = new_state()
    spent_ns = 0
    count = 0
    for record in records:
        if isinstance(record.entry.event, TASK_EVENTS):
            began_ns = time.perf_counter_ns()
            apply(state, record.entry)
            spent_ns += time.perf_counter_ns() - began_ns
            count += 1
        else:
            apply(state, record.entry)
    return spent_ns / count / 1_000


def replay_s(file: Path) -> float:
    """Seconds that `coordctl replay` takes, start of Python included."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "coord.cli.main", "replay", str(file)],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def write(story: Story, path: Path) -> None:
    """The history as an incident file."""
    header = incident_header("story", 1, b"", __version__, story.state.meta.logic_version)
    with path.open("wb") as file, IncidentWriter(file, header) as writer:
        for record in story.records:
            writer.write(record)


def _heartbeats(records: list[Recorded]) -> int:
    return sum(
        len(record.entry.event.slots)
        for record in records
        if isinstance(record.entry.event, HeartbeatsSeen)
    )


def _other_events(records: list[Recorded]) -> int:
    return sum(not isinstance(record.entry.event, HeartbeatsSeen) for record in records)


def _count(records: list[Recorded], kinds: tuple[type, ...]) -> int:
    return sum(isinstance(record.entry.event, kinds) for record in records)
