"""The example in three roles, on real processes: whoever dies, the others go on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from coord.cli.jobfile import read_job
from coord.model.entities import JobStatus, Task, TaskStatus
from coord.model.events import WeightsLoaded, WeightsPublished
from coord.model.spec import JobSpec
from tests.integration.cluster import ROOT, Fleet

JOB = ROOT / "examples" / "rl.yaml"


def job_in(directory: Path) -> JobSpec:
    """The example's job with this directory for its own, and somewhat fewer steps."""
    text = JOB.read_text().replace("/tmp/coord-rl", str(directory)).replace('"300"', '"150"')
    text = text.replace("python3", sys.executable)
    text = text.replace("examples/rl.py", str(ROOT / "examples" / "rl.py"))
    return read_job(text.encode(), JOB.name)


def running(fleet: Fleet, role: str) -> dict[int, Task]:
    """By index, tasks of the role that have a process."""
    tasks = [task for gang in fleet.job("rl").gangs for task in gang.tasks if task.role == role]
    return {task.index: task for task in tasks if task.status == TaskStatus.RUNNING}


def loaded(fleet: Fleet, task: str) -> list[int]:
    """Versions that the task told to work with."""
    events = [record.entry.event for record in fleet.log.records if record.accepted]
    return [one.version for one in events if isinstance(one, WeightsLoaded) and one.task == task]


def published(fleet: Fleet) -> list[WeightsPublished]:
    events = [record.entry.event for record in fleet.log.records if record.accepted]
    return [event for event in events if isinstance(event, WeightsPublished)]


def test_each_role_recovers_by_itself(start_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """A sampler's death and the trainer's leave the others running; environments die all the time;
    weights only go forward, and what was learned is right."""
    fleet = start_fleet(nodes=1, agents=2, devices=1)
    fleet.client.submit_job(job_in(tmp_path / "rl"))
    fleet.wait_for("weights to be in use", lambda: loaded_by_all(fleet))
    samplers, trainers = running(fleet, "sampler"), running(fleet, "trainer")

    psutil.Process(samplers[0].pid).kill()
    again = fleet.wait_for("the sampler to be back", lambda: other_than(fleet, samplers[0]))
    fleet.wait_for("it to have weights", lambda: loaded(fleet, again.key))
    assert keys(running(fleet, "trainer")) == keys(trainers)
    assert running(fleet, "sampler")[1].key == samplers[1].key

    before = published(fleet)[-1]
    psutil.Process(trainers[1].pid).kill()
    after = fleet.wait_for(
        "the new trainer to publish",
        lambda: [one for one in published(fleet) if generation(one) > generation(before)],
    )
    assert after[0].version > before.version
    assert keys(running(fleet, "sampler")) == [again.key, samplers[1].key]

    fleet.wait_for("the end", lambda: fleet.job("rl").status == JobStatus.COMPLETED, 120)
    versions = [one.version for one in published(fleet)]
    assert versions == sorted(set(versions))
    assert json.loads((tmp_path / "rl" / "result.json").read_text())["lever"] == 3


def keys(tasks: dict[int, Task]) -> list[str]:
    return [tasks[index].key for index in sorted(tasks)]


def loaded_by_all(fleet: Fleet) -> bool:
    tasks = running(fleet, "sampler")
    return len(tasks) == 2 and all(loaded(fleet, task.key) for task in tasks.values())


def other_than(fleet: Fleet, task: Task) -> Task | None:
    found = running(fleet, task.role).get(task.index)
    return found if found is not None and found.key != task.key else None


def generation(event: WeightsPublished) -> int:
    return int(event.task.rpartition("#")[2])
