"""Jobs as rows and paragraphs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from coord.cli.output import Column
from coord.cli.wording import (
    age_text,
    clock_text,
    count_text,
    listed,
    phase_text,
    resources_text,
)
from coord.client.views import GangView, JobView
from coord.model.entities import ENDED_GANG, Incident, QueueReason, Task, TaskStatus
from coord.model.recovery import RoleRecovery, recovery_of
from coord.model.spec import Resources, RoleSpec
from coord.model.weights import Weights

JOB_COLUMNS = (
    Column("JOB"),
    Column("STATUS", status=True),
    Column("QUEUE"),
    Column("GEN", right=True),
    Column("TASKS", right=True),
    Column("STEP", right=True),
    Column("RESTARTS", right=True),
    Column("AGE", right=True),
    Column("WHY"),
)
TASK_COLUMNS = (
    Column("TASK"),
    Column("STATUS", status=True),
    Column("HOST"),
    Column("DEVICES"),
    Column("STEP", right=True),
    Column("PID", right=True),
)
INCIDENT_COLUMNS = (
    Column("ID", right=True),
    Column("STATUS", status=True),
    Column("GANG"),
    Column("DETECT", right=True),
    Column("STOP", right=True),
    Column("PLACE", right=True),
    Column("START", right=True),
    Column("RESUME", right=True),
    Column("STEPS LOST", right=True),
    Column("DEVICE TIME", right=True),
    Column("ABOUT"),
)


def job_row(job: JobView, now_ms: int) -> tuple[str, ...]:
    """One line of `job list`. `now_ms` is log time, -1 when it is not known."""
    tasks = [task for gang in job.gangs for task in gang.tasks if not task.standby]
    running = sum(task.status == TaskStatus.RUNNING for task in tasks)
    step = max((gang.step for gang in job.gangs), default=-1)
    return (
        job.name,
        job.status,
        queue_text(job),
        str(job.generation or "-"),
        f"{running}/{sum(job.replicas)}",
        step_text(step),
        str(sum(gang.restarts for gang in job.gangs)),
        age_text((job.ended_ms or now_ms) - job.submitted_ms) if now_ms >= 0 else "-",
        job_why(job, now_ms),
    )


def queue_text(job: JobView) -> str:
    """`team`, `team #3` for the third that waits there, `#3` where it names no queue."""
    turn = f"#{job.position}" if job.position else ""
    return " ".join(part for part in (job.spec.queue, turn) if part) or "-"


def job_why(job: JobView, now_ms: int = -1) -> str:
    """Why it is not simply running: the end's reason, or what its first waiting gang waits for."""
    if job.reason:
        return f"{job.reason}: {job.detail}" if job.detail else job.reason
    waiting = () if job.finished else job.gangs
    return next((waiting_text(gang, now_ms) for gang in waiting if gang.queue_reason), "")


def waiting_text(gang: GangView, now_ms: int = -1) -> str:
    """`devices: needs 4, 2 free`; empty when the gang waits for nothing."""
    if gang.queue_reason == QueueReason.BACKOFF:
        wait_ms = gang.not_before_ms - now_ms
        return f"backoff: {clock_text(wait_ms)} more" if wait_ms > 0 <= now_ms else "backoff"
    detail = f": {gang.queue_detail}" if gang.queue_detail else ""
    return f"{gang.queue_reason}{detail}" if gang.queue_reason else ""


def step_text(step: int) -> str:
    return "-" if step < 0 else str(step)


def job_pairs(job: JobView, now_ms: int) -> list[tuple[str, str]]:
    """The head of `job show`."""
    checkpoint = job.checkpoint
    saved = (
        f"step {checkpoint.step}, generation {checkpoint.generation}, {checkpoint.path}"
        if checkpoint
        else "none committed"
    )
    lasted = (job.ended_ms if job.ended else now_ms) - job.submitted_ms
    age = f"{age_text(lasted)}, " if now_ms >= 0 or job.ended else ""
    return [
        ("job", job.name),
        ("status", job.status),
        ("reason", job_why(job, now_ms)),
        ("age", f"{age}submitted at index {job.submitted} by {job.actor or 'nobody named'}"),
        ("ended", f"at index {job.ended}" if job.ended else ""),
        ("queue", _queue_of(job)),
        ("checkpoint", saved),
        ("weights", weights_text(job.weights)),
        *(
            (f"role {role.name}", role_text(role, wanted, recovery_of(job.spec, role.name)))
            for role, wanted in zip(job.spec.roles, job.replicas, strict=False)
        ),
    ]


def _queue_of(job: JobView) -> str:
    spec = job.spec
    traits = [
        *([f"priority {spec.priority}"] if spec.priority else []),
        *([f"on the share of {spec.owner}"] if spec.owner else []),
        *([] if spec.preemptible else ["not preemptible"]),
    ]
    named = queue_text(job)
    return ", ".join([*([named] if named != "-" else []), *traits])


def weights_text(weights: Weights | None) -> str:
    """`version 3 of step 11 by d/trainer#7, file:/w/3`; empty where none were published."""
    if weights is None:
        return ""
    by = f"{weights.gang}#{weights.generation}"
    return f"version {weights.version} of step {weights.step} by {by}, {weights.uri}"


def role_text(role: RoleSpec, wanted: int, recovery: RoleRecovery) -> str:
    """`4 replicas (2 to 8), gang, 1 spare, each 1 device: python train.py`"""
    bounds = f" ({role.smallest} to {role.largest})" if role.smallest != role.largest else ""
    hot = f" ({recovery.hot_spares} hot)" if recovery.hot_spares else ""
    traits = [
        "gang" if role.gang else "independent",
        *(["exclusive"] if role.exclusive else []),
        *(["service"] if role.service else []),
        *([count_text(role.spares, "spare") + hot] if role.spares else []),
        *([f"restarts with its {recovery.scope}"] if recovery.scope != "own" else []),
        *([] if recovery.required else ["not required"]),
    ]
    needs = role.resources
    if needs != Resources():
        each = resources_text(needs.devices, needs.cpu_millis, needs.memory_mib)
        traits.append(f"each {each}")
    command = " ".join(role.command)
    return f"{count_text(wanted, 'replica')}{bounds}, {', '.join(traits)}: {command}"


def gang_lines(gang: GangView, now_ms: int) -> list[str]:
    """The state of one gang, and why."""
    head = f"gang {gang.key}  {gang.phase}"
    if gang.generation:
        head += f", generation {gang.generation} of {count_text(gang.size, 'task')}"
    if gang.step >= 0:
        head += f", at step {gang.step}"
    lines = [head]
    if gang.phase not in ENDED_GANG:
        if gang.queue_reason:
            lines.append(f"  waits for {waiting_text(gang, now_ms)}")
        if gang.awaits_fence:
            lines.append(f"  waits until fenced: {', '.join(gang.awaits_fence)}")
    if gang.restarts:
        budgets = (
            ("user", gang.restarts_user),
            ("infrastructure", gang.restarts_infrastructure),
            ("preemption", gang.restarts_preemption),
            ("unknown", gang.restarts_unknown),
        )
        spent = ", ".join(f"{count} {cause}" for cause, count in budgets if count)
        lines.append(f"  restarts: {gang.restarts}{f'; charged: {spent}' if spent else ''}")
    if gang.restore:
        lines.append(f"  started from step {gang.restore_step}, {gang.restore}")
    if gang.checkpoints:
        lines.append(f"  checkpoints: {checkpoints_text(gang)}")
    versions = sorted({task.weights: None for task in gang.tasks if task.weights})
    if versions:
        said = listed([str(version) for version in versions])
        lines.append(f"  works with weights of version {said}")
    spares = [hold.host for hold in gang.holds if hold.spare]
    if spares:
        lines.append(f"  spare places: {', '.join(spares)}")
    if gang.standbys:
        lines.append(f"  hot spares: {', '.join(gang.standbys)}")
    return lines


def checkpoints_text(gang: GangView) -> str:
    """`100, 200; set aside: 300`"""
    offered = [str(one.step) for one in gang.checkpoints if not one.set_aside]
    aside = [str(one.step) for one in gang.checkpoints if one.set_aside]
    said = ", ".join(offered) or "none"
    return f"{said}; set aside: {', '.join(aside)}" if aside else said


def rollback_lines(view: JobView, role: str) -> list[str]:
    """Where each gang that was taken back goes on."""
    return [
        f"{gang.key} goes on from step {max(one.step for one in offered)}"
        for gang in view.gangs
        if gang.role == (role or gang.role)
        and (offered := [one for one in gang.checkpoints if not one.set_aside])
    ]


def task_row(task: Task) -> tuple[str, ...]:
    # A hot spare keeps its key when it takes a rank.
    took = not task.standby and f"/{task.index}#{task.generation}" not in task.key
    return (
        f"{task.key} (rank {task.index})" if took else task.key,
        task.status,
        task.host,
        ",".join(map(str, task.devices)) or "-",
        step_text(task.step),
        str(task.pid or "-"),
    )


def incident_row(incident: Incident) -> tuple[str, ...]:
    """One line of `incident list`: how long each phase took that was reached."""
    ended = "resolved" if incident.resolved else "ended"
    detail = f": {incident.detail}" if incident.detail else ""
    return (
        str(incident.incident),
        "open" if incident.closed_ms < 0 else ended,
        f"{incident.gang}#{incident.generation}",
        *(phase_text(duration) for _, duration in phases_of(incident)),
        "-" if incident.closed_ms < 0 else str(incident.lost_steps),
        age_text(incident.cost.lost.total_ms) if incident.cost.device_millis else "-",
        f"{incident.cause}, {incident.subject}{detail}",
    )


def phases_of(incident: Incident) -> list[tuple[str, int]]:
    """Name and milliseconds of each phase, each from the end of the one before; -1: not reached."""
    marks: Sequence[tuple[str, int]] = (
        ("detection", incident.opened_ms),
        ("stop", incident.stopped_ms),
        ("placement", incident.placed_ms),
        ("start", incident.started_ms),
        ("resume", incident.closed_ms if incident.resolved else -1),
    )
    phases = []
    before = incident.last_sign_ms
    for name, mark in marks:
        phases.append((name, mark - before if mark >= 0 else -1))
        before = mark if mark >= 0 else before
    return phases
