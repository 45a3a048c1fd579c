"""What a person asks for: a job, its roles, their resources and how to restart them."""

from __future__ import annotations

import msgspec

from coord.model.canonical import canonical
from coord.model.contradictions import contradictions
from coord.model.recovery import RoleRecovery, recovery_problems
from coord.model.settings import LONGEST_MS

# Nothing here leaves out defaults when encoded: msgspec compares them by identity, so two equal
# jobs, one built and one decoded, would give different bytes, and with them different digests.

NAME_LENGTH_LIMIT = 63
REPLICAS_LIMIT = 65_536
PRIORITY_LIMIT = 1_000_000
"""Priorities lie between this and its negative."""


class Resources(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one replica takes: whole devices, thousandths of a CPU, mebibytes of memory.

    `device_millis` is a part of one device, in thousandths, instead of whole ones. `device_types`
    names the types that will do, in no order; empty: any. `rails` is on how many rails its host
    must be.
    """

    devices: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    device_millis: int = 0
    device_types: tuple[str, ...] = ()
    rails: int = 0

    def __post_init__(self) -> None:
        canonical(self)


class RestartPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often a gang may restart for each cause before its job fails, and how fast.

    The first restart is immediate; the n-th without progress in between waits
    `backoff_ms * 2**(n-2)`, at most `backoff_max_ms`. Preemptions, drains and resizes are free.
    `no_progress_limit` restarts in a row whose step never passed the best one fail the job.
    """

    user_limit: int = 3
    infrastructure_limit: int = 20
    unknown_limit: int = 10
    no_progress_limit: int = 5
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000

    def __post_init__(self) -> None:
        canonical(self)


class Placing(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the replicas of a role may stand. Levels are those of `place.LEVELS`."""

    within: str = ""
    """A level: all of a gang stands in one domain of it, or has no place."""
    prefer_within: str = ""
    """A level: all of a gang in one domain of it where that is possible, else in few."""
    spread: str = ""
    """A level over whose domains the replicas are spread."""
    spread_skew: int = 1
    """By how many replicas two of those domains may differ."""
    whole_hosts: bool = False
    """No other task on its hosts."""
    per_host: int = 0
    """At most so many replicas on one host; 0: as many as fit."""
    apart_from: tuple[str, ...] = ()
    """No host is shared with these: roles of the same job, or `job/NAME` for all of another."""
    near: str = ""
    """A role of the same job that stands before it: in the domain of that one, at `near_level`."""
    near_level: str = "rack"
    near_required: bool = False
    """Whether it waits for a place there, or goes elsewhere."""
    after: tuple[str, ...] = ()
    """Roles of the same job that it starts after: it gets no place before all their tasks run, or
    they have ended. Who runs already runs on when they restart."""

    def __post_init__(self) -> None:
        canonical(self)


class RoleSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A number of equal tasks.

    `gang`: all start, stop and restart together, under one generation; otherwise each task on its
    own. `exclusive`: a task may only restart after its old host is fenced. `service`: it has no end
    of its own and is stopped once every other role has succeeded. `min_replicas` and
    `max_replicas` of 0 mean `replicas`.
    """

    name: str
    command: tuple[str, ...]
    replicas: int = 1
    min_replicas: int = 0
    max_replicas: int = 0
    gang: bool = True
    exclusive: bool = False
    service: bool = False
    spares: int = 0
    """Places kept free beside a gang, each large enough for one replica."""
    resources: Resources = Resources()
    env: dict[str, str] = {}
    workdir: str = ""
    grace_ms: int = 10_000
    """Between SIGTERM and SIGKILL."""
    hang_ms: int = 0
    """Without progress for this long after its first progress, a gang has hung; 0: never."""
    placement: Placing = Placing()

    def __post_init__(self) -> None:
        canonical(self)

    @property
    def smallest(self) -> int:
        return self.min_replicas or self.replicas

    @property
    def largest(self) -> int:
        return self.max_replicas or self.replicas


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A named set of roles. `checkpoint_dir` is where its workers save, visible to all of them."""

    name: str
    roles: tuple[RoleSpec, ...]
    restart: RestartPolicy = RestartPolicy()
    checkpoint_dir: str = ""
    queue: str = ""
    """Which queue it waits in; empty: the one that needs no configuration."""
    priority: int = 0
    """Within its queue; the higher goes first."""
    owner: str = ""
    """On whose share it runs; empty: whoever submitted it."""
    preemptible: bool = True
    hang_floor_ms: int = 0
    """Learn, from how its gangs progress, when one without `hang_ms` has hung, and never say so
    before this time; 0: do not learn."""
    recovery: tuple[RoleRecovery, ...] = ()
    """Of roles that do not recover in the usual way."""

    def __post_init__(self) -> None:
        canonical(self)

    def role(self, name: str) -> RoleSpec | None:
        return next((role for role in self.roles if role.name == name), None)


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong with a job. `path` is like `roles[0].replicas`."""

    path: str
    message: str


def spec_problems(spec: JobSpec) -> list[Problem]:
    """Everything wrong with a job that types cannot say; empty when it may be submitted."""
    found = _name_problems("name", spec.name)
    if not spec.roles:
        found.append(Problem("roles", "is empty; a job needs at least one role"))
    elif all(role.service for role in spec.roles):
        found.append(Problem("roles", "are all services; at least one must be able to finish"))
    seen: dict[str, int] = {}
    for at, role in enumerate(spec.roles):
        path = f"roles[{at}]"
        found += _name_problems(f"{path}.name", role.name)
        if role.name in seen:
            found.append(
                Problem(f"{path}.name", f"is {role.name!r}, as is roles[{seen[role.name]}]")
            )
        seen.setdefault(role.name, at)
        found += _role_problems(path, role)
        for field, message in contradictions(spec, at):
            found.append(Problem(f"{path}.{field}", message))
    if not -PRIORITY_LIMIT <= spec.priority <= PRIORITY_LIMIT:
        found.append(
            Problem(
                "priority",
                f"is {spec.priority}; it must be -{PRIORITY_LIMIT} to {PRIORITY_LIMIT}",
            )
        )
    found += [Problem(path, message) for path, message in recovery_problems(spec)]
    if not 0 <= spec.hang_floor_ms <= LONGEST_MS:
        found.append(Problem("hang_floor_ms", _outside(spec.hang_floor_ms)))
    for name in spec.restart.__struct_fields__:
        value = getattr(spec.restart, name)
        if not 0 <= value <= LONGEST_MS:
            found.append(Problem(f"restart.{name}", _outside(value)))
    return found


def _outside(value: int) -> str:
    return (
        f"is {value}; it must not be negative"
        if value < 0
        else f"is {value}; it must be at most {LONGEST_MS}"
    )


def _name_problems(path: str, name: str) -> list[Problem]:
    if not name:
        return [Problem(path, "is empty")]
    if len(name) > NAME_LENGTH_LIMIT:
        return [Problem(path, f"has {len(name)} characters; the limit is {NAME_LENGTH_LIMIT}")]
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum()) or not name[0].isalnum():
        return [
            Problem(
                path,
                f"is {name!r}; use ASCII letters, digits, '-', '_' and '.', letter or digit first",
            )
        ]
    return []


def _role_problems(path: str, role: RoleSpec) -> list[Problem]:
    found = []
    if not role.command or not role.command[0]:
        found.append(Problem(f"{path}.command", "is empty; name the program and its arguments"))
    for name in ("min_replicas", "max_replicas", "spares", "grace_ms", "hang_ms"):
        if not 0 <= getattr(role, name) <= LONGEST_MS:
            found.append(Problem(f"{path}.{name}", _outside(getattr(role, name))))
    for name in role.resources.__struct_fields__:
        value = getattr(role.resources, name)
        if isinstance(value, int) and value < 0:
            found.append(
                Problem(f"{path}.resources.{name}", f"is {value}; it must not be negative")
            )
    if not 1 <= role.replicas <= REPLICAS_LIMIT:
        found.append(
            Problem(f"{path}.replicas", f"is {role.replicas}; it must be 1 to {REPLICAS_LIMIT}")
        )
    if role.smallest > role.replicas:
        found.append(
            Problem(
                f"{path}.min_replicas", f"is {role.min_replicas}, above replicas {role.replicas}"
            )
        )
    if not role.replicas <= role.largest <= REPLICAS_LIMIT:
        found.append(
            Problem(
                f"{path}.max_replicas",
                f"is {role.max_replicas}, not {role.replicas} to {REPLICAS_LIMIT}",
            )
        )
    if role.spares > REPLICAS_LIMIT:
        found.append(
            Problem(f"{path}.spares", f"is {role.spares}; it must be at most {REPLICAS_LIMIT}")
        )
    if role.spares and not role.gang:
        found.append(Problem(f"{path}.spares", f"is {role.spares}; only a gang keeps spares"))
    for name, value in role.env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            found.append(
                Problem(f"{path}.env", f"names a variable {name!r} that no process can be given")
            )
    return found
