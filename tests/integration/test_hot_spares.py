"""A rank dies, and a process that is up already takes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
from msgspec.structs import replace

from coord.cli.jobfile import read_job
from coord.model.decisions import GenerationStarted, IncidentClosed, IncidentOpened
from coord.model.entities import Task, TaskStatus
from coord.model.recovery import RoleRecovery
from coord.model.standby_decisions import StandbyEnded, StandbyPlaced, StandbyPromoted
from tests.integration.cluster import QUICK, ROOT, Fleet, digits_job


def waiting(fleet: Fleet) -> list[Task]:
    """Standbys that are up."""
    tasks = fleet.gang().tasks
    return [task for task in tasks if task.standby and task.status == TaskStatus.RUNNING]


def submit(fleet: Fleet, directory: Path, steps: int) -> None:
    job = digits_job(directory, ranks=2, steps=steps, spares=1)
    fleet.client.submit_job(replace(job, recovery=(RoleRecovery("trainer", hot_spares=1),)))
    fleet.wait_in_full_swing()
    fleet.wait_for("a standby to be up", lambda: waiting(fleet))


def test_a_standby_takes_the_rank_that_was_killed(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """In the process that it has; the other rank keeps its place; another standby is launched."""
    fleet = start_fleet(nodes=3, agents=3)
    submit(fleet, tmp_path, steps=400)
    first, second = fleet.running_tasks()
    (standby,) = waiting(fleet)
    os.kill(second.pid, signal.SIGKILL)
    fleet.wait_for("the next generation", lambda: fleet.log.decisions(StandbyPromoted))
    fleet.wait_for("it to run", lambda: len(fleet.log.decisions(GenerationStarted)) == 2)
    again, promoted = fleet.running_tasks()
    assert (promoted.key, promoted.pid, promoted.host) == (standby.key, standby.pid, standby.host)
    assert (promoted.index, promoted.standby) == (1, False)
    assert psutil.pid_exists(promoted.pid)
    assert (again.host, again.devices) == (first.host, first.devices)
    (next_one,) = fleet.wait_for("the next standby to be up", lambda: waiting(fleet))
    assert (next_one.host, next_one.key != standby.key) == (second.host, True)
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert len(fleet.log.decisions(IncidentOpened)) == 1
    fleet.wait_for("all processes to end", lambda: not fleet.processes_of_tasks())
    (closed,) = fleet.log.decisions(IncidentClosed)
    took_ms = closed.stop_ms + max(closed.placement_ms, 0) + max(closed.start_ms, 0)
    print(f"from the death of the rank to the new generation running: {took_ms} ms of log time")


def test_a_lost_host_gives_its_rank_to_the_standby_and_a_dead_standby_costs_nothing(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """The standby is killed first: no incident, another one in its place. Then a machine goes."""
    fleet = start_fleet(nodes=1, agents=4, settings=QUICK)
    submit(fleet, tmp_path, steps=500)
    (dead,) = waiting(fleet)
    os.kill(dead.pid, signal.SIGKILL)
    fleet.wait_for(
        "another standby",
        lambda: [task for task in waiting(fleet) if task.key != dead.key],
    )
    assert [one.task for one in fleet.log.decisions(StandbyEnded)] == [dead.key]
    assert fleet.log.decisions(IncidentOpened) == []
    first, second = fleet.running_tasks()
    (standby,) = waiting(fleet)
    fleet.cluster.agents[second.host].kill()
    os.kill(second.pid, signal.SIGKILL)
    fleet.wait_for("a promotion", lambda: fleet.log.decisions(StandbyPromoted))
    fleet.wait_for("it to run", lambda: len(fleet.log.decisions(GenerationStarted)) == 2)
    again, promoted = fleet.running_tasks()
    assert (promoted.key, promoted.pid) == (standby.key, standby.pid)
    assert again.host == first.host
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert len(fleet.log.decisions(StandbyPlaced)) >= 3
    fleet.wait_for("all processes to end", lambda: not fleet.processes_of_tasks())


def test_the_example_asks_for_a_hot_spare() -> None:
    path = ROOT / "examples" / "digits_hot.yaml"
    job = read_job(path.read_bytes(), path.name)
    assert (job.roles[0].spares, job.recovery[0].hot_spares) == (1, 1)
