"""Events said more simply: fewer replicas, smaller numbers, shorter words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from coord.model.events import AnyEvent, HostRegistered, JobSubmitted
from coord.model.spec import JobSpec, RoleSpec

NAMES = (
    "type", "host", "task", "job", "role", "agent", "boot", "cluster", "incarnation", "node",
    "term", "slots", "incarnations", "settings", "tasks", "spec", "subject", "source", "name",
    "path", "shard", "digest", "version", "observed", "expected", "user_error",
)  # fmt: skip
"""Fields that say who or what an event is about: they are left as they are."""

SMALLEST: dict[str, int] = {"pid": 1, "replicas": 1, "devices": 1, "grace_ms": 1, "step": 1}
"""For numbers that must not be 0, or read better so."""

PLAIN_COMMAND = ("run",)


def plainer_events(event: AnyEvent) -> Iterator[AnyEvent]:
    """The event with less in it, most first: everything plain, then one field at a time."""
    if isinstance(event, JobSubmitted):
        yield from (replace(event, spec=spec) for spec in _plainer_specs(event.spec))
        return
    plain = {
        name: value
        for name in event.__struct_fields__
        if name not in NAMES and (value := _plainest(name, getattr(event, name))) is not None
    }
    if not plain:
        return
    yield replace(event, **plain)
    if len(plain) > 1:
        for name, value in plain.items():
            yield replace(event, **{name: value})


def generations_of(event: AnyEvent, job: str) -> tuple[int, ...]:
    """Generations of the job of which an event names tasks."""
    return tuple(number for name, number in map(_run_of, _tasks(event)) if name == job and number)


def without_generation(event: AnyEvent, job: str, gone: int) -> AnyEvent:
    """The event as it would be had that generation of the job never been."""
    if isinstance(event, HostRegistered):
        found = tuple(replace(one, task=_renamed(one.task, job, gone)) for one in event.tasks)
        return event if found == event.tasks else replace(event, tasks=found)
    task = getattr(event, "task", "")
    again = _renamed(task, job, gone)
    return event if again == task else replace(event, task=again)


def _tasks(event: AnyEvent) -> tuple[str, ...]:
    if isinstance(event, HostRegistered):
        return tuple(found.task for found in event.tasks)
    task = getattr(event, "task", "")
    return (task,) if task else ()


def _run_of(task: str) -> tuple[str, int]:
    """(job, generation) of `job/role/index#generation`."""
    generation = task.rpartition("#")[2]
    return task.partition("/")[0], int(generation) if generation.isdigit() else 0


def _renamed(task: str, job: str, gone: int) -> str:
    name, generation = _run_of(task)
    if name != job or generation <= gone:
        return task
    return f"{task.rpartition('#')[0]}#{generation - 1}"


def _plainest(name: str, value: Any) -> Any:
    """The plainest value of a field; None when it is that already."""
    plain: Any = None
    if isinstance(value, bool):
        plain = False
    elif isinstance(value, int):
        plain = min(SMALLEST.get(name, 0), value) if value >= 0 else value
        if name in ("exit_code", "signal"):
            plain = value if value in (0, 1, 9) else 1 if name == "exit_code" else 9
    elif isinstance(value, str):
        plain = ""
    elif isinstance(value, tuple):
        plain = ()
    elif isinstance(value, dict):
        plain = {}
    return None if plain == value else plain


def _plainer_specs(spec: JobSpec) -> Iterator[JobSpec]:
    roles = tuple(_plain_role(role) for role in spec.roles)
    if roles != spec.roles:
        yield replace(spec, roles=roles)
    for at, role in enumerate(spec.roles):
        if len(spec.roles) > 1:
            yield replace(spec, roles=(*spec.roles[:at], *spec.roles[at + 1 :]))
        for plainer in _plainer_roles(role):
            yield replace(spec, roles=(*spec.roles[:at], plainer, *spec.roles[at + 1 :]))


def _plain_role(role: RoleSpec) -> RoleSpec:
    """Without words that matter to nobody but the task itself."""
    command = PLAIN_COMMAND if role.command else role.command
    return replace(role, command=command, env={}, workdir="")


def _plainer_roles(role: RoleSpec) -> Iterator[RoleSpec]:
    for replicas in dict.fromkeys((1, role.replicas // 2, role.replicas - 1)):
        if 0 < replicas < role.replicas:
            smallest = min(role.min_replicas, replicas)
            largest = role.max_replicas and max(role.max_replicas, replicas)
            yield replace(role, replicas=replicas, min_replicas=smallest, max_replicas=largest)
    if role.spares:
        yield replace(role, spares=0)
    if role.hang_ms:
        yield replace(role, hang_ms=0)
    need = role.resources
    plain = replace(need, devices=min(need.devices, 1), cpu_millis=0, memory_mib=0)
    if plain != need:
        yield replace(role, resources=plain)
    if msgspec.json.encode(_plain_role(role)) != msgspec.json.encode(role):
        yield _plain_role(role)
