"""What must hold in a random history, judged by what truly happened.

The invariants of `coord/core/invariants.py` are checked by the driver, entry by entry; here stands
what only the ground truth can tell (processes that live, beats that were heard, work that was done)
and what only the history can tell (what was decided before).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from coord.core.state import State
from coord.model.care import QuarantineState
from coord.model.entities import ENDED_GANG, Gang, GangPhase, Host, HostStatus, JobStatus
from coord.model.entry import Recorded
from coord.model.settings import Settings
from coord.model.spec import RoleSpec

from .machines import Machine
from .placements import Placements
from .recoveries import Recoveries
from .reports import Reports
from .saves import Saves
from .together import Together
from .verdicts import Verdicts
from .violation import CoreViolation


class Truth:
    """Remembers what was decided, and compares it with what the machines know."""

    def __init__(self, state: State, machines: dict[str, Machine], settings: Settings) -> None:
        self.machines = machines
        self.verdicts = Verdicts(state, machines, settings)
        self.placements = Placements(state)
        self.recoveries = Recoveries(state)
        self.saves = Saves(state)
        self.reports = Reports(state)
        self.together = Together(state)

    def look_at(self, record: Recorded, true_ms: int) -> None:
        """Compare what an entry decided with what is true at that moment."""
        self.reports.look_at(record)
        self.verdicts.look_at(record, true_ms)
        self.placements.look_at(record)
        self.recoveries.look_at(record)
        self.saves.look_at(record)
        self.together.look_at(record)

    def look_at_machines(self) -> None:
        """No two processes own a device, are one rank of one generation, or exclusive and run
        twice."""
        exclusive: Counter[str] = Counter()
        ranks: Counter[str] = Counter()
        for machine in self.machines.values():
            owners: Counter[int] = Counter()
            for process in machine.processes.values():
                if not process.alive:
                    continue
                owners.update(process.devices)
                if not process.standby:
                    run = f"{process.job}/{process.role}/{process.index}#{process.generation}"
                    ranks[run] += 1
                if process.exclusive and not process.standby:
                    exclusive[f"{process.job}/{process.role}/{process.index}"] += 1
            twice = [device for device, count in owners.items() if count > 1]
            if twice:
                raise CoreViolation(
                    "a device has at most one live owner", f"{machine.name}: {twice}"
                )
        for name, count in ranks.items():
            if count > 1:
                raise CoreViolation("a rank has one process", f"{name} has {count}")
        for name, count in exclusive.items():
            if count > 1:
                raise CoreViolation("an exclusive task runs once", f"{name} runs {count} times")


def unmet(state: State) -> Iterable[str]:
    """What is not done although all is calm and the fleet has room for it."""
    for gang in state.gangs.values():
        role = state.jobs[gang.job].spec.role(gang.role)
        if role is not None and gang.phase not in ENDED_GANG:
            yield from _unmet_gang(state, gang, role)
    for job in state.jobs.values():
        if job.status not in (JobStatus.RUNNING, JobStatus.QUEUED):
            continue
        for role, replicas in zip(job.spec.roles, job.replicas, strict=True):
            gangs = [state.gangs[key] for key in job.gangs]
            count = sum(1 for one in gangs if one.role == role.name and one.index < replicas)
            if not role.gang and count != replicas:
                yield f"{job.name}/{role.name} has {count} tasks of {replicas} wanted"


def _kept_out(state: State, host: Host) -> bool:
    """In quarantine, or proposed for it: nobody has yet looked at what cannot be killed there."""
    row = state.quarantines.get(host.host)
    return bool(host.quarantine) or (row is not None and row.state == QuarantineState.PROPOSED)


def _unmet_gang(state: State, gang: Gang, role: RoleSpec) -> Iterator[str]:
    if role.service and gang.phase == GangPhase.RUNNING:
        return
    need, wanted = role.resources, min(role.smallest, gang.desired) if role.gang else 1
    fits = sum(
        min(
            host.devices // need.devices if need.devices else wanted,
            host.cpu_millis // need.cpu_millis if need.cpu_millis else wanted,
            host.memory_mib // need.memory_mib if need.memory_mib else wanted,
        )
        for host in state.hosts.values()
        if host.status == HostStatus.UP and not host.drain and not _kept_out(state, host)
    )
    if gang.phase != GangPhase.WAITING or fits >= wanted:
        yield f"{gang.key} is {gang.phase} {gang.queue_reason}: {gang.queue_detail}"
