"""What a failure of a role takes with it, and how a gang gives up size and gets it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from coord.model.canonical import canonical
from coord.model.settings import LONGEST_MS

if TYPE_CHECKING:
    from coord.model.spec import JobSpec

SCOPES = ("own", "role", "job")


class RoleRecovery(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How one role of a job recovers.

    `scope` is what restarts together, as one incident on one budget: `own` (a gang alone; a task
    alone where the role is no gang), `role` (all tasks of the role), `job` (every role). Who has
    ended already stays ended.
    """

    role: str
    scope: str = "own"
    required: bool = True
    """Whether the job fails with it. If not, it goes on trying without a limit, backing off as far
    as `restart` allows, ends alone when a program asks for no restart, and is not waited for."""
    shrink_after_ms: int = 0
    """A gang waits so long for room for all of it (for as many as it had), then starts with what
    fits, `min_replicas` at least. 0: at once."""
    grow_every_ms: int = 600_000
    """A gang below its size that has room moves into it when it has committed a checkpoint, at most
    once in this time. 0: never."""
    hot_spares: int = 0
    """How many of the role's `spares` are hot: their processes are up on the kept places and wait
    in `worker.stand_by()` for a rank. The others are warm: room alone."""

    def __post_init__(self) -> None:
        canonical(self)


def recovery_of(spec: JobSpec, role: str) -> RoleRecovery:
    """As the job says; else as a role recovers of which it says nothing."""
    for recovery in spec.recovery:
        if recovery.role == role:
            return recovery
    return _USUAL


_USUAL = RoleRecovery("")


def recovery_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """(path of the field, what is wrong with it)."""
    names = [role.name for role in spec.roles]
    seen: dict[str, int] = {}
    for at, recovery in enumerate(spec.recovery):
        path = f"recovery[{at}]"
        if recovery.role not in names:
            yield f"{path}.role", f"names {recovery.role!r}, which is no role of the job"
        elif recovery.role in seen:
            first = seen[recovery.role]
            yield f"{path}.role", f"is {recovery.role!r}, as is recovery[{first}]"
        seen.setdefault(recovery.role, at)
        if recovery.scope not in SCOPES:
            yield f"{path}.scope", f"is {recovery.scope!r}; it must be one of {', '.join(SCOPES)}"
        yield from _of_sizes(spec, recovery, path)
        yield from _of_spares(spec, recovery, path)
    ends = [role for role in spec.roles if not role.service]
    if ends and not any(recovery_of(spec, role.name).required for role in ends):
        yield "recovery", "requires no role that can finish; at least one must be required"


def _of_sizes(spec: JobSpec, recovery: RoleRecovery, path: str) -> Iterator[tuple[str, str]]:
    for name in ("shrink_after_ms", "grow_every_ms"):
        value = getattr(recovery, name)
        if not 0 <= value <= LONGEST_MS:
            yield f"{path}.{name}", f"is {value}; it must be 0 to {LONGEST_MS}"
    role = spec.role(recovery.role)
    if role is not None and recovery.shrink_after_ms and not role.gang:
        yield (
            f"{path}.shrink_after_ms",
            f"is {recovery.shrink_after_ms}; only a gang starts with fewer than it wants",
        )


def _of_spares(spec: JobSpec, recovery: RoleRecovery, path: str) -> Iterator[tuple[str, str]]:
    role = spec.role(recovery.role)
    if recovery.hot_spares < 0:
        yield f"{path}.hot_spares", f"is {recovery.hot_spares}; it must not be negative"
    elif role is not None and recovery.hot_spares > role.spares:
        yield (
            f"{path}.hot_spares",
            f"is {recovery.hot_spares}, above the {role.spares} spares of role {role.name!r}",
        )
