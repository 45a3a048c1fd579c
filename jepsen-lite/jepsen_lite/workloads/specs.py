"""Jobs that the workloads submit."""

from __future__ import annotations

import sys
from pathlib import Path

from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec
from jepsen_lite.judge.exported import TOKEN_VARIABLE

PATIENT = RestartPolicy(
    user_limit=100_000,
    infrastructure_limit=100_000,
    unknown_limit=100_000,
    no_progress_limit=100_000,
    backoff_ms=50,
    backoff_max_ms=500,
)
"""No misfortune that a nemesis brings about makes a job fail."""
NO_HOST_HAS = 4_097
"""Devices: one more than a host may offer."""
RANK = Path(__file__).with_name("rank.py")


def register_job(name: str, token: str, most: int) -> JobSpec:
    """A job that never runs and can be resized to 1 to `most` replicas: it begins with 1."""
    role = RoleSpec(
        name="value",
        command=("true",),
        replicas=1,
        max_replicas=most,
        resources=Resources(devices=NO_HOST_HAS),
        env={TOKEN_VARIABLE: token},
    )
    return JobSpec(name=name, roles=(role,))


def small_job(
    name: str,
    token: str,
    command: tuple[str, ...],
    *,
    replicas: int = 1,
    most: int = 0,
    gang: bool = True,
    devices: int = 0,
    restart: RestartPolicy = PATIENT,
) -> JobSpec:
    """A job of one role that is over soon, and takes next to nothing of a host."""
    role = RoleSpec(
        name="work",
        command=command,
        replicas=replicas,
        min_replicas=1,
        max_replicas=most or replicas,
        gang=gang,
        resources=Resources(devices=devices, cpu_millis=1, memory_mib=1),
        grace_ms=500,
        env={TOKEN_VARIABLE: token},
    )
    return JobSpec(name=name, roles=(role,), restart=restart)


def training_job(
    name: str,
    token: str,
    directory: Path,
    *,
    ranks: int,
    most: int,
    steps: int,
    step_ms: int,
    save_every: int,
    exclusive: bool = False,
    stubborn: bool = False,
) -> JobSpec:
    """A gang of fake ranks, a device each, that write diaries below `directory`. The ranks of a
    stubborn one ignore SIGTERM, as do those of an exclusive one."""
    heedless = ("--stubborn",) if stubborn or exclusive else ()
    role = RoleSpec(
        name="trainer",
        command=(
            sys.executable,
            str(RANK),
            "--truth",
            str(directory / "truth"),
            f"--steps={steps}",
            f"--step-ms={step_ms}",
            f"--save-every={save_every}",
            *heedless,
        ),
        replicas=ranks,
        min_replicas=1,
        max_replicas=most,
        exclusive=exclusive,
        resources=Resources(devices=1),
        grace_ms=500,
        env={TOKEN_VARIABLE: token},
    )
    checkpoints = str(directory / "checkpoints" / name)
    return JobSpec(name=name, roles=(role,), restart=PATIENT, checkpoint_dir=checkpoints)
