"""Jobs for scenarios: made in a line, or read from what users submit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from coord.cli.jobfile import read_job
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

Job = JobSpec | RoleSpec | Mapping[str, Any] | str | Path
"""A job, its only role, the contents of a job file, or the path of one."""


def job(
    name: str = "job",
    role: str = "trainer",
    *,
    replicas: int = 1,
    devices: int = 1,
    steps: int = 10,
    step_s: float = 0.5,
    checkpoint_every: int = 2,
    restart: RestartPolicy | None = None,
    **fields: Any,
) -> JobSpec:
    """A job of one role whose simulated program makes `steps` steps of `step_s` seconds each, with
    a checkpoint every so many (0: none), then exits with 0. `steps=0` runs until it is stopped.

    `devices` a replica; `fields` are those of `RoleSpec` (gang, exclusive, spares, hang_ms, env).
    Restarts are generous and quick unless `restart` says otherwise. A worker of your own
    (`Scenario.worker`) does what it likes with all that.
    """
    fixed = {
        "SIM_LAST_STEP": str(steps),
        "SIM_STEP_S": str(step_s),
        "SIM_CHECKPOINT_EVERY": str(checkpoint_every),
    }
    given = {
        "resources": Resources(devices, 500, 128),
        "grace_ms": 2_000,
        **fields,
        "env": {**fixed, **fields.get("env", {})},
    }
    command = given.pop("command", ("train",) if steps else ("serve",))
    generous = RestartPolicy(100, 100, 100, 100, backoff_ms=200, backoff_max_ms=1_000)
    return JobSpec(
        name,
        (RoleSpec(role, tuple(command), replicas, **given),),
        restart if restart is not None else generous,
        f"/checkpoints/{name}",
    )


def spec_of(what: Job) -> JobSpec:
    """The job that is meant. Raises JobFileError, which tells all that is wrong with it."""
    if isinstance(what, JobSpec):
        return what
    if isinstance(what, RoleSpec):
        return JobSpec("job", (what,), checkpoint_dir="/checkpoints/job")
    if isinstance(what, Mapping):
        return read_job(msgspec.json.encode(dict(what)), "the job given")
    path = Path(what)
    return read_job(path.read_bytes(), path.name)
