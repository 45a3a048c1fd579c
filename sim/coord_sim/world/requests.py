"""What simulated people ask for, drawn by what they have last seen of the cluster."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence

import msgspec

from coord.core.state import State
from coord.model.entities import FINISHED_JOB, HostStatus
from coord.model.events import (
    AnyEvent,
    DrainRequested,
    EvictionsAllowed,
    HostRemovalRequested,
    JobCancelRequested,
    JobResizeRequested,
    JobSubmitted,
    NoteAdded,
    UndrainRequested,
)
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

GRACE_MS = 1_000
WEIGHTS = {
    "submit": 4,
    "cancel": 1,
    "resize": 2,
    "drain": 1,
    "undrain": 2,
    "allow": 1,
    "remove": 1,
    "note": 2,
    "read": 4,
    "output": 1,
}
"""Of what people ask for, unless somebody says otherwise."""


class Look(enum.Enum):
    """What is only looked at."""

    STATE = "state"
    OUTPUT = "output"
    """Of some task, through its agent."""


class JobSeen(msgspec.Struct, frozen=True):
    """An unfinished job. Of each role: name, fewest and most replicas."""

    name: str
    roles: tuple[tuple[str, int, int], ...]


class HostSeen(msgspec.Struct, frozen=True):
    """A host that was not removed."""

    name: str
    lost: bool
    out_of_service: bool
    """Drained by somebody, or in quarantine."""


class Seen(msgspec.Struct, frozen=True):
    """What a read showed, as of a log index."""

    index: int = 0
    jobs: tuple[JobSeen, ...] = ()
    hosts: tuple[HostSeen, ...] = ()
    frozen: bool = False
    """Too many hosts are silent at once; verdicts wait for an operator."""


class Mix(msgspec.Struct, frozen=True):
    """How often a client asks for something on average, and for what. `weights` are by names in
    `KINDS`; what is not named there has its weight in `WEIGHTS`, and 0 takes it away."""

    gap_s: float = 2.0
    weights: dict[str, int] = {}
    jobs_limit: int = 4
    """With so many unfinished jobs in sight nobody submits another."""
    timeout_s: float = 10.0
    in_flight: int = 16
    """Calls of one client at once."""


def seen_in(state: State) -> Seen:
    """What a person sees who lists jobs and hosts."""
    jobs = [
        JobSeen(name, tuple((role.name, role.smallest, role.largest) for role in job.spec.roles))
        for name, job in state.jobs.items()
        if job.status not in FINISHED_JOB
    ]
    hosts = [
        HostSeen(
            name, host.status == HostStatus.LOST, host.drain_requested or bool(host.quarantine)
        )
        for name, host in state.hosts.items()
        if host.status != HostStatus.REMOVED
    ]
    return Seen(state.meta.applied_index, tuple(jobs), tuple(hosts), state.meta.frozen)


class Asker:
    """Draws one client's requests. `removable` names lost hosts whose machines are gone for good:
    whoever removes a lost host vouches that nothing of it runs any more."""

    def __init__(
        self, name: str, rng: random.Random, mix: Mix, removable: Callable[[], Sequence[str]]
    ) -> None:
        self._name = name
        self._rng = rng
        self._mix = mix
        self._removable = removable
        self._jobs = 0

    def wait_s(self) -> float:
        """Until the next request."""
        return self._rng.expovariate(1.0 / self._mix.gap_s)

    def draw(self, seen: Seen) -> AnyEvent | Look:
        """The next request. What cannot be asked becomes a note."""
        weights = [self._mix.weights.get(kind, WEIGHTS[kind]) for kind in KINDS]
        kind = self._rng.choices(list(KINDS), weights)[0]
        return KINDS[kind](self, seen) or self.note(seen)

    def submit(self, seen: Seen) -> AnyEvent | None:
        """A new job; now and then under a name that is taken, or one that cannot be."""
        if len(seen.jobs) >= self._mix.jobs_limit:
            return None
        self._jobs += 1
        name = f"{self._name}-job{self._jobs}"
        chance = self._rng.random()
        if chance < 0.05 and seen.jobs:
            name = self._rng.choice(seen.jobs).name
        elif chance < 0.08:
            name = "no such name"
        return JobSubmitted(draw_job(self._rng, name))

    def cancel(self, seen: Seen) -> AnyEvent | None:
        job = self._job(seen)
        name = job.name if job and self._rng.random() < 0.95 else "nobody-knows-it"
        return JobCancelRequested(name, "", "drawn")

    def resize(self, seen: Seen) -> AnyEvent | None:
        """Mostly to what the role allows."""
        job = self._job(seen)
        if job is None:
            return None
        role, smallest, largest = self._rng.choice(job.roles)
        replicas = self._rng.randint(smallest, largest + (self._rng.random() < 0.1))
        return JobResizeRequested(job.name, role, replicas, "", "drawn")

    def drain(self, seen: Seen) -> AnyEvent | None:
        """One host, as long as others stay in service."""
        serving = [host for host in seen.hosts if not host.out_of_service]
        if len(serving) < 2:
            return None
        return DrainRequested(self._rng.choice(serving).name, "", "drawn")

    def undrain(self, seen: Seen) -> AnyEvent | None:
        out = [host for host in seen.hosts if host.out_of_service]
        return UndrainRequested(self._rng.choice(out).name, "", "drawn") if out else None

    def remove(self, seen: Seen) -> AnyEvent | None:
        gone = list(self._removable())
        lost = [host.name for host in seen.hosts if host.lost and host.name in gone]
        return (
            HostRemovalRequested(self._rng.choice(lost), "", "its machine is gone")
            if lost
            else None
        )

    def allow(self, seen: Seen) -> AnyEvent | None:
        """Where verdicts wait, and now and then where none does."""
        return EvictionsAllowed("", "looked") if seen.frozen or self._rng.random() < 0.1 else None

    def note(self, seen: Seen) -> AnyEvent:
        size = self._rng.choice((5, 5, 5, 50, 2_000))
        return NoteAdded("", f"as of {seen.index}", "x" * size)

    def _job(self, seen: Seen) -> JobSeen | None:
        return self._rng.choice(seen.jobs) if seen.jobs else None


KINDS: dict[str, Callable[[Asker, Seen], AnyEvent | Look | None]] = {
    "submit": Asker.submit,
    "cancel": Asker.cancel,
    "resize": Asker.resize,
    "drain": Asker.drain,
    "undrain": Asker.undrain,
    "allow": Asker.allow,
    "remove": Asker.remove,
    "note": Asker.note,
    "read": lambda asker, seen: Look.STATE,
    "output": lambda asker, seen: Look.OUTPUT,
}


def draw_job(rng: random.Random, name: str) -> JobSpec:
    """Gangs of trainers, with samplers and services beside them, that restart as drawn."""
    roles = [_role(rng, "trainer", gang=True)]
    if rng.random() < 0.4:
        roles.append(_role(rng, "sampler", gang=False))
    if rng.random() < 0.3:
        roles.append(RoleSpec("service", ("serve",), gang=False, service=True, grace_ms=GRACE_MS))
    policy = RestartPolicy(
        user_limit=rng.randrange(6),
        infrastructure_limit=rng.randrange(4, 30),
        no_progress_limit=rng.randrange(2, 8),
        backoff_ms=rng.choice((200, 500, 1_000)),
        backoff_max_ms=4_000,
    )
    return JobSpec(name, tuple(roles), policy, checkpoint_dir=f"/checkpoints/{name}")


def _role(rng: random.Random, name: str, *, gang: bool) -> RoleSpec:
    replicas = rng.randint(1, 4)
    return RoleSpec(
        name,
        ("train",) if gang else ("sample",),
        replicas=replicas,
        min_replicas=rng.randrange(replicas + 1),
        max_replicas=replicas + rng.randrange(3),
        gang=gang,
        exclusive=rng.random() < 0.3,
        spares=rng.choice((0, 0, 1, 2)) if gang else 0,
        resources=Resources(rng.choice((0, 1, 1, 2)), rng.choice((0, 500, 2_000)), 128),
        grace_ms=GRACE_MS,
        hang_ms=rng.choice((0, 0, 6_000, 15_000)),
    )
