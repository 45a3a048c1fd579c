"""A cluster of real processes for a test, with a client and the log beside it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from coord.cli.demo_log import JobLog
from coord.cli.local import LocalCluster
from coord.cli.processes import marked
from coord.client.errors import Unavailable
from coord.client.sync import SyncClient
from coord.client.views import GangView, JobView
from coord.model.entities import Task, TaskStatus
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RoleSpec

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits.py"
PATIENT = Settings(lease_ms=20_000, suspect_ms=10_000)
"""For tests in which no host dies: however busy the machine is, none may look dead."""
QUICK = Settings(lease_ms=4_000, suspect_ms=2_000, heartbeat_ms=400, fence_ms=1_000)
"""For tests in which one does."""
PATIENCE_S = 60.0
POLL_S = 0.05


class Fleet:
    """A running cluster. `wait_for` is the only way to let time pass."""

    def __init__(self, cluster: LocalCluster, client: SyncClient) -> None:
        self.cluster = cluster
        self.client = client
        self.log = JobLog()

    def wait_for(
        self, what: str, condition: Callable[[], Any], patience_s: float = PATIENCE_S
    ) -> Any:
        """The condition's value once it is true; the log is fetched before each look."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.log.fetch(self.client)
                value = condition()
            except Unavailable as error:
                value, trouble = None, str(error)
            else:
                trouble = ""
            if value:
                return value
            assert time.monotonic() < deadline, f"waited {patience_s} s for {what}. {trouble}"
            time.sleep(POLL_S)

    def job(self, name: str = "digits") -> JobView:
        return self.client.job(name)

    def gang(self, name: str = "digits") -> GangView:
        (gang,) = self.job(name).gangs
        return gang

    def running_tasks(self, name: str = "digits") -> list[Task]:
        """Tasks of the current generation that have a process, by index."""
        gang = self.gang(name)
        tasks = [
            task
            for task in gang.tasks
            if task.generation == gang.generation and task.status == TaskStatus.RUNNING
        ]
        return sorted(tasks, key=lambda task: task.index)

    def wait_in_full_swing(self) -> None:
        """All ranks run and have saved since their start."""
        self.wait_for("training to be in full swing", lambda: self.log.in_full_swing)

    def processes_of_tasks(self) -> list[psutil.Process]:
        """Every process of the cluster that belongs to a task."""
        return [
            process
            for process in marked(self.cluster.mark)
            if "COORD_TASK" in process.environ() and process.status() != psutil.STATUS_ZOMBIE
        ]


def digits_job(
    directory: Path,
    *,
    name: str = "digits",
    ranks: int = 2,
    steps: int = 200,
    step_ms: int = 40,
    script: Path = DIGITS,
    **role: Any,
) -> JobSpec:
    """The example as a job of `ranks` ranks, a device each, that saves every ten steps."""
    command = (
        sys.executable,
        str(script),
        "--steps",
        str(steps),
        "--step-ms",
        str(step_ms),
        "--checkpoint-every",
        "10",
        "--output",
        str(directory / f"weights-{name}"),
    )
    trainer = RoleSpec(
        name="trainer",
        command=command,
        replicas=ranks,
        resources=Resources(devices=1),
        grace_ms=role.pop("grace_ms", 2_000),
        **role,
    )
    return JobSpec(
        name=name, roles=(trainer,), checkpoint_dir=str(directory / f"checkpoints-{name}")
    )
