"""How a generation begins, once its gang has a place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from coord.core import fleet
from coord.core.checkpoints import drop_unfinished
from coord.core.incidents import incident_placed
from coord.core.placement import Plan
from coord.core.queueing.queues import QUEUES_SINCE
from coord.core.recovery import spares
from coord.core.recovery.generations import all_started
from coord.core.step import Step
from coord.core.stopping import role_of
from coord.model.decisions import Placement, SpareActivated, TasksPlaced
from coord.model.entities import Gang, GangPhase, JobStatus, QueueReason, Task, TaskStatus
from coord.model.ids import task_key
from coord.model.standby_decisions import StandbyPromoted

NOBODY: Mapping[int, str] = MappingProxyType({})


def start(step: Step, gang: Gang, plan: Plan, taken: Mapping[int, str] = NOBODY) -> None:
    """A place was found: the next generation begins there. `taken`: index -> the standby of the
    gang that takes it."""
    state = step.state
    job = state.jobs[gang.job]
    generation = job.generation + 1
    state.put_job(replace(job, generation=generation, status=_status(job.status)))
    drop_unfinished(step, gang)
    saved = state.newest_checkpoint(gang.key)
    weights = state.weights.get(gang.job)
    tasks = _tasks(step, gang, plan, generation, taken)
    keys = [task.key for task in tasks]
    fleet.take(step, [task for task in tasks if task.key not in gang.standbys])
    causes = (step.cause, gang.cause) if gang.cause != step.cause else (step.cause,)
    placements = tuple(
        Placement(key, spot.host, spot.devices) for key, spot in zip(keys, plan.places, strict=True)
    )
    restore, restore_step = (saved.path, saved.step) if saved else ("", -1)
    cause = step.decide(
        TasksPlaced(causes, gang.job, gang.key, generation, placements, restore, restore_step)
    )
    for spot in plan.places:
        if spot.spare:
            step.decide(SpareActivated((cause,), gang.job, gang.key, generation, spot.host))
    started = _promote(step, gang, [tasks[at] for at in sorted(taken)], cause)
    gang = replace(
        gang,
        phase=GangPhase.STARTING,
        size=len(keys),
        generation=generation,
        live=tuple(keys),
        claim=len(keys) if state.meta.logic_version >= QUEUES_SINCE else 0,
        victims=(),
        reserving=False,
        reserved=(),
        together=0,
        spares=spares.wanted(state, gang),
        succeeded=0,
        started=started,
        cause=cause,
        queue_reason=QueueReason.NONE,
        queue_detail="",
        not_before_ms=0,
        holds=plan.spares,
        holds_until_ms=0,
        hosts=tuple(spot.host for spot in plan.places),
        address=state.hosts[plan.places[0].host].address,
        port=_rendezvous_port(step, plan.places[0].host),
        step=-1,
        progress_ms=0,
        began_ms=0,
        restore=restore,
        restore_step=restore_step,
        weights=weights.version if weights else 0,
        weights_uri=weights.uri if weights else "",
        standbys=tuple(key for key in gang.standbys if key not in keys),
        standby_ends=0,
        standby_from_ms=0,
    )
    incident_placed(step, gang)
    state.put_gang(all_started(step, gang) if started == gang.size else gang)


def _promote(step: Step, gang: Gang, tasks: list[Task], cause: str) -> int:
    """Standbys become tasks of this generation; returns how many of them are up."""
    for task in tasks:
        fleet.change(step, task)
        step.decide(
            StandbyPromoted(
                (cause,), gang.job, gang.key, task.generation, task.key, task.host, task.index
            )
        )
    return sum(task.status == TaskStatus.RUNNING for task in tasks)


def _tasks(
    step: Step, gang: Gang, plan: Plan, generation: int, taken: Mapping[int, str]
) -> list[Task]:
    """One for each place, by index; each must have started in time."""
    need = role_of(step, gang).resources
    tasks = []
    for at, spot in enumerate(plan.places):
        index = at if gang.index < 0 else gang.index
        key = taken.get(at) or task_key(gang.job, gang.role, index, generation)
        task = Task(
            key=key,
            job=gang.job,
            role=gang.role,
            index=index,
            generation=generation,
            gang=gang.key,
            host=spot.host,
            status=TaskStatus.PLACED,
            placed_ms=step.now_ms,
            devices=spot.devices,
            cpu_millis=need.cpu_millis,
            memory_mib=need.memory_mib,
            device_millis=need.device_millis,
        )
        if at in taken:
            was = step.state.tasks[key]
            task = replace(task, status=was.status, pid=was.pid)
        tasks.append(task)
        launch_timeout_ms = step.state.meta.settings.launch_timeout_ms
        step.state.timers.arm("task", key, step.now_ms + launch_timeout_ms)
    return tasks


def _rendezvous_port(step: Step, name: str) -> int:
    """A port of index 0's host, another one for each generation; 0 when the host offers none.

    One that another gang listens on is only given again when all are in use.
    """
    state = step.state
    host = state.hosts[name]
    if not host.ports:
        return 0
    rows = [state.gangs.get(state.tasks[key].gang) for key in host.tasks]
    used = {gang.port: None for gang in rows if gang is not None and gang.hosts[:1] == (name,)}
    at = host.next_port % len(host.ports)
    in_turn = (*host.ports[at:], *host.ports[:at])
    port = next((port for port in in_turn if port not in used), in_turn[0])
    next_port = host.ports.index(port) + 1
    state.put_host(replace(host, next_port=next_port))
    return port


def _status(status: JobStatus) -> JobStatus:
    return JobStatus.RUNNING if status == JobStatus.QUEUED else status
