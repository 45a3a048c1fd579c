"""What queues are charged with: who claims how many devices. Kept beside the rows of gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coord.model.entities import Gang, Job
from coord.model.spec import Resources

DEVICE = 1_000
"""Thousandths of a whole one."""


class Claim(NamedTuple):
    """A gang's queue and owner, and what they are charged with for it, in thousandths of
    devices."""

    queue: str
    owner: str
    amount: int


class Claims:
    """By gang; and the sums of them by queue, and by queue and owner."""

    def __init__(self) -> None:
        self.of: dict[str, Claim] = {}
        self.queues: dict[str, int] = {}
        self.owners: dict[tuple[str, str], int] = {}

    def copy(self) -> Claims:
        copy = Claims()
        copy.of, copy.queues, copy.owners = dict(self.of), dict(self.queues), dict(self.owners)
        return copy

    def note(self, gang: Gang, before: Gang | None, jobs: Mapping[str, Job]) -> None:
        """The gang's row is written anew; `before` is what it was."""
        known = self.of.get(gang.key)
        if not gang.claim:
            if known is not None:
                self._add(known, -1)
                del self.of[gang.key]
            return
        if known is not None:
            if before is not None and _charged(gang) == _charged(before):
                return
            self._add(known, -1)
        job = jobs[gang.job]
        claim = Claim(job.spec.queue, owner_of(job), charge_of(gang, job))
        self.of[gang.key] = claim
        self._add(claim, 1)

    def _add(self, claim: Claim, sign: int) -> None:
        owner = (claim.queue, claim.owner)
        used = self.owners.get(owner, 0) + sign * claim.amount
        if used:
            self.owners[owner] = used
        else:
            self.owners.pop(owner, None)
        self.queues[claim.queue] = self.queues.get(claim.queue, 0) + sign * claim.amount


def each_of(need: Resources) -> int:
    """Thousandths of devices that one replica takes."""
    return need.devices * DEVICE + need.device_millis


def owner_of(job: Job) -> str:
    """On whose share the job runs."""
    return job.spec.owner or job.actor


def charge_of(gang: Gang, job: Job) -> int:
    """What the gang's queue is charged with for it, its spares included, warm and hot."""
    if not gang.claim:
        return 0
    role = job.spec.role(gang.role)
    assert role is not None, f"gang {gang.key} of a role its job does not have"
    spares = sum(hold.spare for hold in gang.holds) + len(gang.standbys)
    return (gang.claim + spares) * each_of(role.resources)


def _charged(gang: Gang) -> tuple[object, ...]:
    return (gang.claim, gang.holds, gang.standbys)
